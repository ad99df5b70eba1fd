import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew } from '../../api/session'
import { ask, Button, Card, Dialog, Form, Icon, IconButton, Notice, TextField, Time, told } from '../../ui'
import { passkeys } from '../gate/passkey'

interface Options { publicKey: PublicKeyCredentialCreationOptionsJSON }

/** Keys that devices hold, with which one signs in without a password. */
export function Passkeys() {
  const list = session.value!.user.passkeys
  const [adding, setAdding] = useState(false)
  return (
    <Card title="Passkeys">
      <div class="stack">
        {list.length === 0 && <p class="muted">A passkey signs you in by your fingerprint, face or security key. Nobody can guess it or talk you out of it.</p>}
        {list.map((k) => (
          <div key={k.id} class="row-between">
            <span class="row"><Icon name="key" /> <strong>{k.name}</strong> <span class="muted small">last used <Time of={k.last_used_at} /></span></span>
            <IconButton look="ghost" small icon="trash" label={`Delete the passkey ${k.name}`} onClick={() => drop(k)} />
          </div>
        ))}
        {passkeys ? <div class="form-actions"><Button icon="plus" onClick={() => setAdding(true)}>Add a passkey</Button></div> : <Notice>Passkeys need a browser that knows them, and a name in the address bar: at an IP address there are none.</Notice>}
      </div>
      {adding && <Add onClose={() => setAdding(false)} />}
    </Card>
  )
}

function drop(k: { id: string; name: string }) {
  ask({
    title: `Delete the passkey ${k.name}?`, action: 'Delete', text: 'It does not sign in any more. The device may keep offering it until it is deleted there too.',
    run: async () => {
      await request('DELETE', '/session/passkeys/' + k.id)
      await renew()
      told('The passkey was deleted.')
    },
  })
}

function Add({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState(''), [password, setPassword] = useState('')
  const submit = async () => {
    const { publicKey } = (await request('POST', '/session/passkeys/options', { password })) as Options
    const credential = (await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) })) as PublicKeyCredential | null
    if (!credential) return
    await request('POST', '/session/passkeys', { name: name || 'Passkey', credential: credential.toJSON() })
    await renew()
    told('The passkey was added.')
    onClose()
  }
  return (
    <Dialog title="Add a passkey" onClose={onClose}>
      <Form submit="Go on" onSubmit={submit}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="My laptop" hint="So that you know it again." autoFocus />
        <TextField label="Your password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" />
      </Form>
    </Dialog>
  )
}

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
        {list.length === 0 && <p class="muted">Sign in with your fingerprint, face or security key. A passkey can’t be guessed or phished.</p>}
        {list.map((k) => (
          <div key={k.id} class="row-between">
            <span class="row"><Icon name="key" /> <strong>{k.name}</strong> <span class="muted small">{k.last_used_at ? <>last used <Time of={k.last_used_at} /></> : 'never used'}</span></span>
            <IconButton look="ghost" small icon="trash" label={`Delete passkey ${k.name}`} onClick={() => drop(k)} />
          </div>
        ))}
        {passkeys ? <div class="form-actions"><Button icon="plus" onClick={() => setAdding(true)}>Add passkey</Button></div> : <Notice>Passkeys need a browser that supports them, and a hostname in the address bar. They don’t work on an IP address.</Notice>}
      </div>
      {adding && <Add onClose={() => setAdding(false)} />}
    </Card>
  )
}

function drop(k: { id: string; name: string }) {
  ask({
    title: `Delete passkey ${k.name}?`, action: 'Delete', text: 'You can no longer sign in with it. Your device may still offer it until you delete it there too.',
    run: async () => {
      await request('DELETE', '/session/passkeys/' + k.id)
      await renew()
      told('Passkey deleted.')
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
    told('Passkey added.')
    onClose()
  }
  return (
    <Dialog title="Add passkey" onClose={onClose}>
      <Form submit="Continue" onSubmit={submit}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="My laptop" hint="A name to recognize it by." autoFocus />
        <TextField label="Current password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" />
      </Form>
    </Dialog>
  )
}

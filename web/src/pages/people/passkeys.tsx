import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew } from '../../api/session'
import { ask, Button, Card, Dialog, Form, Icon, IconButton, Notice, TextField, Time, told } from '../../ui'
import { rich, t } from '../../words'
import { passkeys } from '../gate/passkey'

interface Options { publicKey: PublicKeyCredentialCreationOptionsJSON }

/** Keys that devices hold, with which one signs in without a password. */
export function Passkeys() {
  const list = session.value!.user.passkeys
  const [adding, setAdding] = useState(false)
  return (
    <Card title={t('passkeys.title')}>
      <div class="stack">
        {list.length === 0 && <p class="muted">{t('passkeys.about')}</p>}
        {list.map((k) => (
          <div key={k.id} class="row-between">
            <span class="row"><Icon name="key" /> <strong>{k.name}</strong> <span class="muted small">{k.last_used_at ? rich('passkeys.used', { when: <Time of={k.last_used_at} /> }) : t('passkeys.unused')}</span></span>
            <IconButton look="ghost" small icon="trash" label={t('passkeys.delete', { name: k.name })} onClick={() => drop(k)} />
          </div>
        ))}
        {passkeys ? <div class="form-actions"><Button icon="plus" onClick={() => setAdding(true)}>{t('passkeys.add')}</Button></div> : <Notice>{t('passkeys.unsupported')}</Notice>}
      </div>
      {adding && <Add onClose={() => setAdding(false)} />}
    </Card>
  )
}

function drop(k: { id: string; name: string }) {
  ask({
    title: t('passkeys.delete.title', { name: k.name }), action: t('inbox.delete'), text: t('passkeys.delete.text'),
    run: async () => {
      await request('DELETE', '/session/passkeys/' + k.id)
      await renew()
      told(t('passkeys.deleted'))
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
    told(t('passkeys.added'))
    onClose()
  }
  return (
    <Dialog title={t('passkeys.add')} onClose={onClose}>
      <Form submit={t('factor.continue')} onSubmit={submit} of={[name, password]} disabled={password === ''}>
        <TextField label={t('passkeys.name')} name="name" value={name} onInput={setName} placeholder={t('passkeys.name.example')} hint={t('passkeys.name.hint')} autoFocus />
        <TextField label={t('me.password.now')} name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" />
      </Form>
    </Dialog>
  )
}

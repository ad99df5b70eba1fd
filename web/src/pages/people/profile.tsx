// The signed-in user's own name, password, second factor and sessions.
import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew } from '../../api/session'
import { Card, Form, NewPassword, Page, TextField, told } from '../../ui'
import { Passkeys } from './passkeys'
import { SecondFactor } from './factor'
import { Sessions } from './sessions'

export function Profile() {
  return (
    <Page title="Your profile" intro={session.value!.user.email}>
      <div class="grid-2">
        <div class="stack"><Name /><Password /></div>
        <div class="stack"><SecondFactor /><Passkeys /></div>
      </div>
      <Sessions />
    </Page>
  )
}

function Name() {
  const { user } = session.value!
  const [name, setName] = useState(user.name), [email, setEmail] = useState(user.email), [password, setPassword] = useState('')
  const moves = email !== user.email
  const submit = async () => {
    await request('PATCH', '/session/profile', { name, ...(moves ? { email, current_password: password } : {}) })
    await renew()
    setPassword('')
    told('Saved.')
  }
  return (
    <Card title="Name and email">
      <Form submit="Save" onSubmit={submit} disabled={name === user.name && !moves}>
        <TextField label="Name" name="name" value={name} onInput={setName} autoComplete="name" />
        <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} autoComplete="email" disabled={user.role !== 'owner'}
          hint={user.role === 'owner' ? 'You sign in with this address.' : 'You sign in with this address. The account’s owner can change it under Team.'} />
        {moves && <TextField label="Current password" name="current_password" type="password" value={password} onInput={setPassword} autoComplete="current-password" />}
      </Form>
    </Card>
  )
}

function Password() {
  const [now, setNow] = useState(''), [next, setNext] = useState('')
  const submit = async () => {
    await request('PATCH', '/session/profile', { password: next, current_password: now })
    setNow('')
    setNext('')
    told('Password changed. All your other sessions were signed out.')
  }
  return (
    <Card title="Password">
      <Form submit="Change password" onSubmit={submit} disabled={!now || !next}>
        <TextField label="Current password" name="current_password" type="password" value={now} onInput={setNow} autoComplete="current-password" />
        <NewPassword label="New password" value={next} onInput={setNext} />
      </Form>
    </Card>
  )
}

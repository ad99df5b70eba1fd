import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew, signOut } from '../../api/session'
import { Button, Form, NewPassword, Notice, TextField, told } from '../../ui'
import { Frame } from './frame'

/** Asks for an own password. It is shown alone to whoever did not choose theirs. */
export function ChoosePassword() {
  const [now, setNow] = useState(''), [next, setNext] = useState('')
  const submit = async () => {
    await request('PATCH', '/session/profile', { password: next, current_password: now })
    await renew()
    told('Password changed.')
  }
  return (
    <Frame title="Choose your own password" intro="The password you signed in with was generated or set for you, so others may know it. Choose one that only you know.">
      <Form onSubmit={submit} submit="Change password" disabled={!now || !next || now === next}>
        <TextField label="Current password" name="current_password" type="password" hint="The one you signed in with." value={now} onInput={setNow} autoComplete="current-password" autoFocus />
        <NewPassword label="New password" value={next} onInput={setNext} />
        {now !== '' && now === next && <Notice tone="warn">This is the password you already have. Choose a different one.</Notice>}
      </Form>
      <div class="row-between small">
        <span class="muted">Signed in as {session.value!.user.email}</span>
        <Button look="ghost" small icon="out" onClick={() => signOut()}>Sign out</Button>
      </div>
    </Frame>
  )
}

// Where the viewer signs in again, before they do what concerns the whole server.
import { useEffect, useState } from 'preact/hooks'
import { ApiError, session } from '../../api/client'
import { asked } from '../../api/proof'
import { signIn } from '../../api/session'
import { Dialog, Form, TextField } from '../../ui'
import { CodeField, needsCode } from '.'
import { PasskeyButton } from './passkey'

/** The place where it is asked for. */
export function SignInAgain() {
  const done = asked.value
  return done ? <Ask done={done} /> : null
}

function Ask({ done }: { done: (done: boolean) => void }) {
  const [{ kind, user }] = useState(session.value!)
  const [password, setPassword] = useState(''), [code, setCode] = useState('')
  const [second, setSecond] = useState(false)
  useEffect(() => () => done(false), []) // who is signed out in the meantime did not sign in again
  const entered = () => {
    if (session.value?.user.id === user.id) done(true)
    else location.reload() // the passkey was somebody else's, whom nothing here is for
  }
  const submit = async () => {
    try {
      await signIn(user.email, password, second ? code : undefined, kind)
    } catch (error) {
      if (error instanceof ApiError && error.code === 'invalid_credentials') throw new ApiError(401, { code: 'wrong_password', message: '' })
      if (!needsCode(error)) throw error
      setSecond(true)
      return
    }
    entered()
  }
  return (
    <Dialog title="Sign in again" onClose={() => done(false)}>
      <div class="stack">
        <p>This concerns the whole server, and you signed in more than 15 minutes ago. Sign in again to go on.</p>
        <Form onSubmit={submit} submit="Sign in" disabled={second ? code === '' : password === ''}>
          {second ? (
            <CodeField value={code} onInput={setCode} />
          ) : (
            <>
              <TextField label="Email" type="email" value={user.email} onInput={() => { /* it stays who is signed in */ }} autoComplete="username" readOnly />
              <TextField label="Password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" autoFocus />
            </>
          )}
        </Form>
        {!second && user.passkeys.length > 0 && <PasskeyButton onDone={entered} />}
      </div>
    </Dialog>
  )
}

// What is shown to those who are not signed in.
import { useState } from 'preact/hooks'
import { ApiError, request, session } from '../../api/client'
import { signIn, welcome } from '../../api/session'
import { useRead } from '../../api/query'
import { cameFrom, go, params, path } from '../../router'
import { Failure, Form, Loading, NewPassword, Notice, TextField } from '../../ui'
import { Frame } from './frame'
import { PasskeyButton } from './passkey'

export function Gate({ at }: { at: string }) {
  if (at === '/welcome') return <Welcome />
  if (at === '/forgot') return <Forgot />
  return <SignIn />
}

/** Where the viewer wanted to go before they had to sign in. */
function wanted(): string {
  return ['/sign-in', '/forgot', '/welcome'].includes(path.value) ? '/' : location.pathname + location.search
}

function SignIn() {
  const [email, setEmail] = useState('')
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  const [second, setSecond] = useState(false)
  const done = () => { if (!cameFrom()) go(wanted(), { replace: true }) } // the server has the page, which main asks for
  const submit = async () => {
    try {
      await signIn(email, password, second ? code : undefined)
    } catch (error) {
      if (!needsCode(error)) throw error
      setSecond(true)
      return
    }
    done()
  }
  return (
    <Frame title="Sign in">
      <Form onSubmit={submit} submit="Sign in">
        {second ? (
          <CodeField value={code} onInput={setCode} />
        ) : (
          <>
            <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} autoComplete="username" autoFocus />
            <TextField label="Password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" />
          </>
        )}
      </Form>
      {!second && <PasskeyButton onDone={done} />}
      <p class="small"><a href="/forgot">Forgot your password?</a></p>
    </Frame>
  )
}

function needsCode(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'second_factor_required'
}

function CodeField({ value, onInput }: { value: string; onInput: (code: string) => void }) {
  return <TextField label="Code" name="code" hint="From your authenticator app. You can also use a recovery code." value={value} onInput={onInput} autoComplete="one-time-code" autoFocus mono />
}

function Forgot() {
  const [email, setEmail] = useState('')
  const [sent, setSent] = useState(false)
  const submit = async () => {
    await Promise.all([request('POST', '/session/forgot', { email }), request('POST', '/session/recover', { email })]) // whose it is stays a secret
    setSent(true)
  }
  return (
    <Frame title="Reset your password" intro="We’ll email you a link to set a new password.">
      {sent ? <Notice tone="ok">If {email} belongs to a team member, we sent a link to it; for a mailbox, to its recovery address. The link works once. If nothing comes, ask the person who manages your mailbox for a link.</Notice> : (
        <Form onSubmit={submit} submit="Send link">
          <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} autoComplete="username" autoFocus />
        </Form>
      )}
      <p class="small"><a href="/sign-in">Back to sign in</a></p>
    </Frame>
  )
}

interface Invited { email: string; name: string; may_change_email: boolean }

function Welcome() {
  const token = params.value.get('token') ?? ''
  const { data, error } = useRead('welcome' + token, () => request('GET', '/session/welcome?token=' + encodeURIComponent(token)) as Promise<Invited>)
  if (error) {
    return (
      <Frame title="Link expired or already used">
        {error.status === 404 ? <Notice tone="warn"><a href="/sign-in">Sign in</a>, or ask the person who sent you the link for a new one.</Notice> : <Failure error={error} />}
      </Frame>
    )
  }
  return (
    <Frame title="Welcome to Mailstead" intro="Set up your sign-in.">
      {data ? <WelcomeForm token={token} invited={data} /> : <Loading lines={3} />}
    </Frame>
  )
}

function WelcomeForm({ token, invited }: { token: string; invited: Invited }) {
  const [email, setEmail] = useState(invited.may_change_email ? '' : invited.email)
  const [name, setName] = useState(invited.name)
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  const [second, setSecond] = useState(false)
  const submit = async () => {
    try {
      await welcome({ token, password, name: name || undefined, email: invited.may_change_email ? email || invited.email : undefined, code: second ? code : undefined })
    } catch (error) {
      if (!needsCode(error)) throw error
      setSecond(true)
      return
    }
    go('/', { replace: true })
  }
  return (
    <Form onSubmit={submit} submit="Save and sign in">
      <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} autoComplete="username" placeholder={invited.email} disabled={!invited.may_change_email}
        hint={invited.may_change_email ? `Leave empty to keep ${invited.email}.` : undefined} />
      <TextField label="Your name" name="name" value={name} onInput={setName} autoComplete="name" />
      <NewPassword value={password} onInput={setPassword} />
      {second && <CodeField value={code} onInput={setCode} />}
      {session.value && <Notice>You are signed in as {session.value.user.email}. Saving signs you in with the email above instead.</Notice>}
    </Form>
  )
}

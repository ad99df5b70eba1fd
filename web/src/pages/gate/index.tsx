// What is shown to those who are not signed in.
import { useState } from 'preact/hooks'
import { ApiError, request, session } from '../../api/client'
import { signIn, welcome } from '../../api/session'
import { useRead } from '../../api/query'
import { cameFrom, go, params, path } from '../../router'
import { Failure, Form, Loading, NewPassword, Notice, TextField } from '../../ui'
import { rich, t } from '../../words'
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
    <Frame title={t('gate.sign_in')}>
      <Form onSubmit={submit} submit={t('gate.sign_in')}>
        {second ? (
          <CodeField value={code} onInput={setCode} />
        ) : (
          <>
            <TextField label={t('gate.email')} name="email" type="email" value={email} onInput={setEmail} autoComplete="username" autoFocus />
            <TextField label={t('ui.password')} name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" />
          </>
        )}
      </Form>
      {!second && <PasskeyButton onDone={done} />}
      <p class="small"><a href="/forgot">{t('gate.forgot')}</a></p>
    </Frame>
  )
}

export function needsCode(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'second_factor_required'
}

export function CodeField({ value, onInput }: { value: string; onInput: (code: string) => void }) {
  return <TextField label={t('gate.code')} name="code" hint={t('gate.code.hint')} value={value} onInput={onInput} autoComplete="one-time-code" autoFocus mono />
}

function Forgot() {
  const [email, setEmail] = useState('')
  const [sent, setSent] = useState(false)
  const submit = async () => {
    await Promise.all([request('POST', '/session/forgot', { email }), request('POST', '/session/recover', { email })]) // whose it is stays a secret
    setSent(true)
  }
  return (
    <Frame title={t('gate.reset')} intro={t('gate.reset.intro')}>
      {sent ? <Notice tone="ok">{t('gate.reset.sent', { email })}</Notice> : (
        <Form onSubmit={submit} submit={t('gate.reset.send')}>
          <TextField label={t('gate.email')} name="email" type="email" value={email} onInput={setEmail} autoComplete="username" autoFocus />
        </Form>
      )}
      <p class="small"><a href="/sign-in">{t('gate.back')}</a></p>
    </Frame>
  )
}

interface Invited { email: string; name: string; may_change_email: boolean }

function Welcome() {
  const token = params.value.get('token') ?? ''
  const { data, error } = useRead('welcome' + token, () => request('GET', '/session/welcome?token=' + encodeURIComponent(token)) as Promise<Invited>)
  if (error) {
    return (
      <Frame title={t('gate.expired')}>
        {error.status === 404 ? <Notice tone="warn">{rich('gate.expired.text', { sign_in: <a href="/sign-in">{t('gate.sign_in')}</a> })}</Notice> : <Failure error={error} />}
      </Frame>
    )
  }
  return (
    <Frame title={t('gate.welcome')} intro={t('gate.welcome.intro')}>
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
    <Form onSubmit={submit} submit={t('gate.welcome.save')}>
      <TextField label={t('gate.email')} name="email" type="email" value={email} onInput={setEmail} autoComplete="username" placeholder={invited.email} disabled={!invited.may_change_email}
        hint={invited.may_change_email ? t('gate.welcome.keep', { email: invited.email }) : undefined} />
      <TextField label={t('gate.name')} name="name" value={name} onInput={setName} autoComplete="name" />
      <NewPassword value={password} onInput={setPassword} />
      {second && <CodeField value={code} onInput={setCode} />}
      {session.value && <Notice>{t('gate.welcome.other', { email: session.value.user.email })}</Notice>}
    </Form>
  )
}

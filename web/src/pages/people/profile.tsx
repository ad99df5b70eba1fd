// The signed-in user's own name, password, second factor and sessions.
import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew, signOut } from '../../api/session'
import { useRead } from '../../api/query'
import { ask, Badge, Button, Card, Form, IconButton, NewPassword, Page, Show, TextField, Time, told } from '../../ui'
import { Passkeys } from './passkeys'
import { SecondFactor } from './factor'

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

interface Session { id: string; ip: string; user_agent: string; created_at: string; last_used_at: string | null; current: boolean }

function Sessions() {
  const list = useRead('sessions', () => request('GET', '/session/list') as Promise<{ data: Session[] }>, { kinds: ['token'] })
  const end = async (s: Session) => {
    await request('DELETE', '/session/list/' + s.id)
    await list.reload()
  }
  const everywhere = () => ask({
    title: 'Sign out everywhere?', action: 'Sign out everywhere', text: 'This ends the session on this device too. API tokens keep working.', run: () => signOut(true),
  })
  return (
    <Card title="Sessions" flush actions={<Button small icon="out" onClick={everywhere}>Sign out everywhere</Button>}>
      <Show of={list}>
        {({ data }) => (
          <div class="rows">
            {data.map((s) => (
              <div key={s.id} class="line">
                <span class="grow truncate">{browserOf(s.user_agent)} {s.current && <Badge tone="ok">this device</Badge>}<br /><span class="muted small">{s.ip || 'this server'}, signed in <Time of={s.created_at} form="date" />, last used <Time of={s.last_used_at ?? s.created_at} /></span></span>
                {!s.current && <IconButton look="ghost" small icon="x" label={`End session: ${browserOf(s.user_agent)}`} onClick={() => end(s)} />}
              </div>
            ))}
          </div>
        )}
      </Show>
    </Card>
  )
}

const browsers: [RegExp, string][] = [[/Edg\//, 'Edge'], [/OPR\//, 'Opera'], [/Firefox\//, 'Firefox'], [/Chrome\//, 'Chrome'], [/Safari\//, 'Safari']]
const systems: [RegExp, string][] = [[/iPhone|iPad/, 'iOS'], [/Android/, 'Android'], [/Windows/, 'Windows'], [/Mac OS/, 'macOS'], [/Linux/, 'Linux']]

/** Names the browser of a User-Agent, roughly. */
function browserOf(agent: string): string {
  const browser = browsers.find(([p]) => p.test(agent))?.[1], system = systems.find(([p]) => p.test(agent))?.[1]
  return browser ? browser + (system ? ' on ' + system : '') : agent.slice(0, 60) || 'Unknown app'
}

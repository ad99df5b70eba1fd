import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew } from '../../api/session'
import { Badge, Button, Card, Copyable, CopyButton, Dialog, Form, Notice, plural, Qr, TextField, told } from '../../ui'

interface Start { secret: string; uri: string }

/** Codes from an authenticator app, asked for after the password. */
export function SecondFactor() {
  const { user } = session.value!
  const [making, setMaking] = useState(false)
  const [codes, setCodes] = useState<string[]>()
  const [ending, setEnding] = useState(false)
  return (
    <Card title="Two-factor authentication" actions={user.totp_enabled ? <Badge tone="ok">On</Badge> : <Badge>Off</Badge>}>
      <div class="stack">
        <p class="muted">{user.totp_enabled
          ? `Signing in needs your password and a code from your authenticator app. ${plural(user.recovery_codes_left, 'recovery code')} left.`
          : 'Require a code from an authenticator app at sign-in, so that a stolen password is not enough.'}</p>
        <div class="form-actions">
          {user.totp_enabled
            ? <Button look="danger" onClick={() => setEnding(true)}>Turn off</Button>
            : <Button look="primary" icon="shield" onClick={() => setMaking(true)}>Set up</Button>}
        </div>
      </div>
      {making && <SetUp onClose={() => setMaking(false)} onDone={(codes) => { setMaking(false); setCodes(codes) }} />}
      {codes && <Codes codes={codes} onClose={() => setCodes(undefined)} />}
      {ending && <End onClose={() => setEnding(false)} />}
    </Card>
  )
}

function SetUp({ onClose, onDone }: { onClose: () => void; onDone: (codes: string[]) => void }) {
  const [start, setStart] = useState<Start>()
  return (
    <Dialog title="Set up two-factor authentication" onClose={onClose}>
      {start ? <Scan start={start} onDone={onDone} /> : <Prove submit="Continue" onProved={async (password) => setStart((await request('POST', '/session/totp', { password })) as Start)} />}
    </Dialog>
  )
}

/** Asks for the password once more, in case somebody found the browser open. */
function Prove({ submit, danger, onProved }: { submit: string; danger?: boolean; onProved: (password: string) => Promise<void> }) {
  const [password, setPassword] = useState('')
  return (
    <Form submit={submit} danger={danger} onSubmit={() => onProved(password)}>
      <TextField label="Current password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" autoFocus />
    </Form>
  )
}

function Scan({ start, onDone }: { start: Start; onDone: (codes: string[]) => void }) {
  const [code, setCode] = useState('')
  const submit = async () => {
    const { recovery_codes } = (await request('POST', '/session/totp/confirm', { code })) as { recovery_codes: string[] }
    await renew()
    onDone(recovery_codes)
  }
  return (
    <div class="people-factor">
      <Qr text={start.uri} label="QR code for the authenticator app" />
      <div class="stack">
        <p>Scan this with your authenticator app, or enter the key manually:</p>
        <Copyable text={start.secret} />
        <Form submit="Turn on" onSubmit={submit}>
          <TextField label="6-digit code" name="code" value={code} onInput={setCode} inputMode="numeric" autoComplete="one-time-code" autoFocus mono />
        </Form>
      </div>
    </div>
  )
}

function Codes({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  return (
    <Dialog title="Recovery codes" onClose={onClose}>
      <div class="stack">
        <Notice tone="warn">Store these somewhere other than your phone. Each one works once instead of a 6-digit code. They are not shown again.</Notice>
        <ul class="people-codes">{codes.map((c) => <li key={c}><code>{c}</code></li>)}</ul>
        <div class="row-between">
          <span class="row"><CopyButton text={codes.join('\n')} label="Copy all" /> Copy all</span>
          <Button look="primary" onClick={onClose}>I saved them</Button>
        </div>
      </div>
    </Dialog>
  )
}

function End({ onClose }: { onClose: () => void }) {
  const end = async (password: string) => {
    await request('DELETE', '/session/totp', { password })
    await renew()
    told('Two-factor authentication is off.')
    onClose()
  }
  return (
    <Dialog title="Turn off two-factor authentication?" onClose={onClose}>
      <Prove submit="Turn off" danger onProved={end} />
    </Dialog>
  )
}

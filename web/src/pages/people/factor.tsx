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
    <Card title="Second factor" actions={user.totp_enabled ? <Badge tone="ok">on</Badge> : <Badge>off</Badge>}>
      <div class="stack">
        <p class="muted">{user.totp_enabled
          ? `A code of your authenticator app is asked for after the password. ${plural(user.recovery_codes_left, 'recovery code')} left.`
          : 'A code of an authenticator app, asked for after the password, keeps out whoever has stolen it.'}</p>
        <div class="form-actions">
          {user.totp_enabled
            ? <Button look="danger" onClick={() => setEnding(true)}>Switch it off</Button>
            : <Button look="primary" icon="shield" onClick={() => setMaking(true)}>Set it up</Button>}
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
    <Dialog title="Set up the second factor" onClose={onClose}>
      {start ? <Scan start={start} onDone={onDone} /> : <Prove submit="Go on" onProved={async (password) => setStart((await request('POST', '/session/totp', { password })) as Start)} />}
    </Dialog>
  )
}

/** Asks for the password once more, in case somebody found the browser open. */
function Prove({ submit, danger, onProved }: { submit: string; danger?: boolean; onProved: (password: string) => Promise<void> }) {
  const [password, setPassword] = useState('')
  return (
    <Form submit={submit} danger={danger} onSubmit={() => onProved(password)}>
      <TextField label="Your password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" autoFocus />
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
      <Qr text={start.uri} label="Code for the authenticator app" />
      <div class="stack">
        <p>Scan this with your authenticator app, or enter the key by hand:</p>
        <Copyable text={start.secret} />
        <Form submit="Switch it on" onSubmit={submit}>
          <TextField label="The code that it shows" name="code" value={code} onInput={setCode} inputMode="numeric" autoComplete="one-time-code" autoFocus mono />
        </Form>
      </div>
    </div>
  )
}

function Codes({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  return (
    <Dialog title="Your recovery codes" onClose={onClose}>
      <div class="stack">
        <Notice tone="warn">Keep these where you would still have them without your phone. Each works once in place of a code. They are not shown again.</Notice>
        <ul class="people-codes">{codes.map((c) => <li key={c}><code>{c}</code></li>)}</ul>
        <div class="row-between">
          <span class="row"><CopyButton text={codes.join('\n')} label="Copy all" /> Copy all</span>
          <Button look="primary" onClick={onClose}>I have kept them</Button>
        </div>
      </div>
    </Dialog>
  )
}

function End({ onClose }: { onClose: () => void }) {
  const end = async (password: string) => {
    await request('DELETE', '/session/totp', { password })
    await renew()
    told('The second factor is off.')
    onClose()
  }
  return (
    <Dialog title="Switch the second factor off?" onClose={onClose}>
      <Prove submit="Switch it off" danger onProved={end} />
    </Dialog>
  )
}

import { useState } from 'preact/hooks'
import { request, session } from '../../api/client'
import { renew } from '../../api/session'
import { Badge, Button, Card, Copyable, CopyButton, Dialog, Form, narrow, Notice, Qr, TextField, told } from '../../ui'
import { t, tn } from '../../words'

interface Start { secret: string; uri: string }

/** Codes from an authenticator app, asked for after the password. */
export function SecondFactor() {
  const { user } = session.value!
  const [making, setMaking] = useState(false)
  const [codes, setCodes] = useState<string[]>()
  const [ending, setEnding] = useState(false)
  return (
    <Card title={t('factor.title')} actions={user.totp_enabled ? <Badge tone="ok">{t('factor.on')}</Badge> : <Badge>{t('factor.off')}</Badge>}>
      <div class="stack">
        <p class="muted">{user.totp_enabled
          ? `${t('factor.about.on')} ${tn('factor.left', user.recovery_codes_left)}`
          : t('factor.about.off')}</p>
        <div class="form-actions">
          {user.totp_enabled
            ? <Button look="danger" onClick={() => setEnding(true)}>{t('factor.turn_off')}</Button>
            : <Button look="primary" icon="shield" onClick={() => setMaking(true)}>{t('factor.set_up')}</Button>}
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
    <Dialog title={t('factor.set_up.title')} onClose={onClose}>
      {start ? <Scan start={start} onDone={onDone} /> : <Prove submit={t('factor.continue')} onProved={async (password) => setStart((await request('POST', '/session/totp', { password })) as Start)} />}
    </Dialog>
  )
}

/** Asks for the password once more, in case somebody found the browser open. */
function Prove({ submit, danger, onProved }: { submit: string; danger?: boolean; onProved: (password: string) => Promise<void> }) {
  const [password, setPassword] = useState('')
  return (
    <Form submit={submit} danger={danger} onSubmit={() => onProved(password)} of={password}>
      <TextField label={t('me.password.now')} name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" autoFocus />
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
      <Qr text={start.uri} label={t('factor.qr')} />
      <div class="stack">
        {narrow.value && <div><a class="button" href={start.uri}>{t('factor.app')}</a></div>}
        <p>{t('factor.scan')}</p>
        <Copyable text={start.secret} />
        <Form submit={t('factor.turn_on')} onSubmit={submit} of={code}>
          <TextField label={t('factor.code')} name="code" value={code} onInput={setCode} inputMode="numeric" autoComplete="one-time-code" autoFocus mono />
        </Form>
      </div>
    </div>
  )
}

function Codes({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  return (
    <Dialog title={t('factor.codes')} onClose={onClose}>
      <div class="stack">
        <Notice tone="warn">{t('factor.codes.text')}</Notice>
        <ul class="people-codes">{codes.map((c) => <li key={c}><code>{c}</code></li>)}</ul>
        <div class="row-between">
          <span class="row"><CopyButton text={codes.join('\n')} label={t('factor.codes.copy')} /> {t('factor.codes.copy')}</span>
          <Button look="primary" onClick={onClose}>{t('factor.codes.saved')}</Button>
        </div>
      </div>
    </Dialog>
  )
}

function End({ onClose }: { onClose: () => void }) {
  const end = async (password: string) => {
    await request('DELETE', '/session/totp', { password })
    await renew()
    told(t('factor.is_off'))
    onClose()
  }
  return (
    <Dialog title={t('factor.turn_off.title')} onClose={onClose}>
      <Prove submit={t('factor.turn_off')} danger onProved={end} />
    </Dialog>
  )
}

// Making one mailbox, here or of another host.
import { useState } from 'preact/hooks'
import { call, type Input, type Output } from '../../api/client'
import { go } from '../../router'
import { Button, Dialog, Form, Secret, Select, TextField } from '../../ui'
import { DomainChoice } from './domains'
import { fromMiB, passwordAgain } from './words'

type Made = Output<'create_email_user'> & { user_id: string; email: string; password?: string }

interface Server { host: string; port: string; security: 'tls' | 'starttls' | 'none'; username: string; password: string }

export function Create({ domain, username = '', external = false, stay, onClose }: { domain: string; username?: string; external?: boolean; stay?: boolean; onClose: () => void }) {
  const [made, setMade] = useState<Made>()
  if (made) {
    const close = () => {
      onClose()
      if (!stay) go(`/mailboxes/${made.user_id}`)
    }
    return (
      <Dialog title={made.email} onClose={close}>
        <div class="stack">
          {made.password_generated ? <Secret name="password" text={made.password} again={passwordAgain()} /> : <p>{made.type === 'external' ? 'Mailbox created. Its mail is being fetched. Any errors appear on the mailbox’s page.' : 'Mailbox created with your password.'}</p>}
          <div class="form-actions"><Button look="primary" onClick={close}>{stay ? 'Done' : 'Open mailbox'}</Button></div>
        </div>
      </Dialog>
    )
  }
  return <Dialog title="Create mailbox" onClose={onClose}><CreateForm domain={domain} username={username} external={external} onDone={setMade} /></Dialog>
}

function CreateForm({ domain: first, username: proposed, external: elsewhere, onDone }: { domain: string; username: string; external: boolean; onDone: (made: Made) => void }) {
  const [external, setExternal] = useState(elsewhere)
  const [domain, setDomain] = useState(first), [username, setUsername] = useState(proposed), [name, setName] = useState(''), [password, setPassword] = useState('')
  const [quota, setQuota] = useState(''), [daily, setDaily] = useState(''), [forward, setForward] = useState(''), [footer, setFooter] = useState('')
  const [imap, setImap] = useState<Server>({ host: '', port: '993', security: 'tls', username: '', password: '' })
  const [smtp, setSmtp] = useState<Server>({ host: '', port: '465', security: 'tls', username: '', password: '' })
  const submit = async () => {
    const limits = { daily_send_limit: daily ? Number(daily) : undefined, footer: footer || undefined }
    const body: Input<'create_email_user'> = external
      ? { username, domain, name: name || undefined, type: 'external', imap: login(imap), smtp: smtp.host ? login(smtp, imap) : undefined, ...limits }
      : { username, domain, name: name || undefined, password: password || undefined, quota_bytes: fromMiB(quota), forward_to: forward || undefined, ...limits }
    const made = (await call('create_email_user', body)) as Made
    if (external) call('refresh_email_user_inbox', { user_id: made.user_id }).catch(() => { /* its page says what is wrong */ })
    onDone(made)
  }
  return (
    <Form submit="Create" onSubmit={submit} of={[username, name, password, quota, daily, forward, footer, imap, smtp]} optional={proposed !== ''} disabled={!domain || !username}>
      <Select label="Hosting" name="type" value={external ? 'external' : 'hosted'} onChange={(v) => setExternal(v === 'external')} options={[['hosted', 'This server'], ['external', 'External (fetched over IMAP)']]} />
      <DomainChoice value={domain} onChange={setDomain} external={external} />
      <TextField label="Username" name="username" value={username} onInput={setUsername} after={'@' + (domain || '…')} autoFocus />
      <TextField label="Display name" name="name" value={name} onInput={setName} hint="Shown in the From field of sent messages." />
      {external ? <><Login title="IMAP" prefix="imap" of={imap} onChange={setImap} /><Login title="SMTP (sending)" prefix="smtp" of={smtp} onChange={setSmtp} optional /></>
        : <TextField label="Password" name="password" type="password" value={password} onInput={setPassword} autoComplete="new-password" hint="Leave empty to generate one." />}
      <details>
        <summary>More settings</summary>
        <div class="form">
          <div class="grid-2">
            {!external && <TextField label="Quota" name="quota_bytes" type="number" min={1} value={quota} onInput={setQuota} after="MiB" />}
            <TextField label="Daily send limit" name="daily_send_limit" type="number" min={0} value={daily} onInput={setDaily} hint="Recipients per day: a message to three people counts as three." />
          </div>
          {!external && <TextField label="Forward to" name="forward_to" type="email" value={forward} onInput={setForward} hint="Incoming mail is also sent here." />}
          <TextField label="Footer" name="footer" value={footer} onInput={setFooter} hint="Added to every message sent from this mailbox." />
        </div>
      </details>
    </Form>
  )
}

/** A log-in as the API takes it; what is left empty is that of the other one. */
function login(s: Server, other?: Server) {
  return { host: s.host, port: Number(s.port), security: s.security, username: s.username || other?.username || '', password: s.password || other?.password || '' }
}

function Login({ title, prefix, of: s, onChange, optional }: { title: string; prefix: 'imap' | 'smtp'; of: Server; onChange: (s: Server) => void; optional?: boolean }) {
  const set = (change: Partial<Server>) => onChange({ ...s, ...change })
  return (
    <fieldset class="mailboxes-part">
      <legend>{title}</legend>
      <div class="mailboxes-server">
        <TextField label="Host" name={prefix + '.host'} value={s.host} onInput={(host) => set({ host })} placeholder={`${prefix}.example.com`} hint={optional ? 'Leave empty to receive only.' : undefined} />
        <TextField label="Port" name={prefix + '.port'} type="number" min={1} max={65535} value={s.port} onInput={(port) => set({ port })} />
        <Select label="Security" name={prefix + '.security'} value={s.security} onChange={(security) => set({ security })} options={[['tls', 'TLS'], ['starttls', 'STARTTLS'], ['none', 'None']]} />
      </div>
      <div class="grid-2">
        <TextField label="Username" name={prefix + '.username'} value={s.username} onInput={(username) => set({ username })} autoComplete="off" hint={optional ? 'Leave empty to use the IMAP login.' : undefined} />
        <TextField label="Password" name={prefix + '.password'} type="password" value={s.password} onInput={(password) => set({ password })} autoComplete="off" />
      </div>
    </fieldset>
  )
}

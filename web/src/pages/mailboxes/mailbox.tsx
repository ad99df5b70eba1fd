// One mailbox: how to connect to it, its limits, and what can be done with it.
import { useRef, useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { ask, Badge, Bar, Button, bytes, Card, Check, Copyable, count, Dialog, Facts, failed, Form, LinkButton, Menu, Notice, Page, Secret, Show, TextArea, TextField, Time, told, Wrong } from '../../ui'
import { UniversalNotice } from '../inbox/head'
import { saidSend } from '../policies/policy'
import { Connection, security } from './connection'
import { AppPasswords } from './credentials'
import { Expires, Expiry } from './expiry'
import { Aliases, PasswordLink, Recovery } from './own'
import { Held, Paused } from './paused'
import { Rules, Vacation } from './rules'
import { Sending } from './sending'
import { fromMiB, passwordAgain, StatusBadge, toMiB, type MailboxOut } from './words'

export function Mailbox({ id }: { id: string }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { only: (c) => c.id === id })
  const [password, setPassword] = useState(false), [link, setLink] = useState(false), [suspending, setSuspending] = useState(false), [expiring, setExpiring] = useState(false)
  const u = mailbox.data
  const held = useQuery('list_messages', { limit: 100, status: 'held', mailbox: u?.email }, { when: u !== undefined })
  return (
    <Page title={u?.email ?? 'Mailbox'} heading={u && <span class="row">{u.email} <StatusBadge status={u.status} />{u.type === 'external' && <Badge plain tone="info">external</Badge>}</span>}
      intro={u?.name} back={{ href: '/mailboxes', label: 'Mailboxes' }} actions={u && <Actions of={u} onPassword={() => setPassword(true)} onLink={() => setLink(true)} onSuspend={() => setSuspending(true)} onExpiry={() => setExpiring(true)} />}>
      <Show of={mailbox}>
        {(u) => (
          <>
            <Expires of={u} />
            <Paused of={u.sending_paused} name={u.email} mailbox={u.id} />
            {held.data?.data.some((m) => m.approval_id === null) && <Held id={u.id} email={u.email} />}
            {u.error && <Notice tone="bad" title={u.type === 'external' ? 'Can’t fetch mail.' : 'Mailbox error.'}><Wrong of={u.error} /></Notice>}
            {u.type === 'external' && <UniversalNotice />}
            {u.status === 'pending' && u.type === 'external' && <Notice>Mail has not been fetched yet.</Notice>}
            {u.status === 'pending' && u.type === 'hosted' && <Notice>The mailbox’s domain is not ready yet. <a href={`/domains/${u.domain_id}`}>See what {u.domain} needs</a>.</Notice>}
            {u.status === 'suspended' && <Notice tone="warn">Suspended: mail clients can’t log in, nothing can be sent, and incoming mail is refused.</Notice>}
            <div class="grid-2">
              {u.type === 'hosted' && <Connection of={u} />}
              <About of={u} />
              {can('update_email_user') && <Settings key={u.id} of={u} />}
              {can('update_email_user') && <Sending key={'s' + JSON.stringify(u.send_policy)} of={u} />}
              {u.type === 'hosted' && can('update_email_user') && <Aliases key={'a' + u.aliases.join()} of={u} />}
              {u.type === 'hosted' && can('list_credentials') && <AppPasswords userID={u.id} />}
              {u.type === 'hosted' && can('list_rules') && <Rules userID={u.id} />}
              {u.type === 'hosted' && can('get_vacation') && <Vacation userID={u.id} />}
              {u.type === 'hosted' && can('update_email_user') && <Recovery key={'r' + u.recovery_email} of={u} />}
            </div>
            {password && <Password of={u} onClose={() => setPassword(false)} />}
            {link && <PasswordLink of={u} onClose={() => setLink(false)} />}
            {expiring && <Expiry of={u} onClose={() => setExpiring(false)} />}
            {suspending && <Suspend of={u} onClose={() => setSuspending(false)} />}
          </>
        )}
      </Show>
    </Page>
  )
}

function Actions({ of: u, onPassword, onLink, onSuspend, onExpiry }: { of: MailboxOut; onPassword: () => void; onLink: () => void; onSuspend: () => void; onExpiry: () => void }) {
  const suspended = u.status === 'suspended'
  const activate = async () => {
    await call('update_email_user', { user_id: u.id, status: 'active' })
    told(`${u.email} is active again.`)
  }
  const remove = () => ask({
    title: `Delete ${u.email}?`, action: 'Delete', typed: u.email, text: 'All of its mail is deleted too. This can’t be undone.',
    run: async () => {
      await call('delete_email_user', { user_id: u.id })
      go('/mailboxes')
      told(`${u.email} is being deleted.`)
    },
  })
  return (
    <>
      <LinkButton icon="inbox" href={`/inbox?mailbox=${encodeURIComponent(u.email)}`}>Inbox</LinkButton>
      {can('send_email') && <LinkButton icon="pencil" href={`/compose?from=${u.id}`}>Compose</LinkButton>}
      {can('update_email_user') && (
        <Menu label="More actions">
          <Button look="ghost" small icon="key" onClick={onPassword}>Set password</Button>
          {u.type === 'hosted' && can('create_recovery_link') && <Button look="ghost" small icon="external" onClick={onLink}>Get a password link</Button>}
          <Button look="ghost" small icon={suspended ? 'play' : 'pause'} onClick={suspended ? activate : onSuspend}>{suspended ? 'Activate' : 'Suspend'}</Button>
          <Button look="ghost" small icon="clock" onClick={onExpiry}>Set expiry</Button>
          <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
        </Menu>
      )}
    </>
  )
}

function About({ of: u }: { of: MailboxOut }) {
  return (
    <Card title="Details">
      <div class="stack">
        <Facts of={[
          ['Domain', <a href={`/domains/${u.domain_id}`}>{u.domain}</a>],
          ['Unread', count(u.unread_count)],
          ['Sent today', `${count(u.sent_today)}${u.daily_send_limit !== null ? ` of ${count(u.daily_send_limit)}` : ''}`],
          ['Storage', `${bytes(u.used_bytes)}${u.quota_bytes !== null ? ` of ${bytes(u.quota_bytes)}` : ''}`],
          ['Last login', u.type === 'hosted' && <Time of={u.last_login_at} />],
          ['Last fetched', u.type === 'external' && <Time of={u.last_sync_at} />],
          ['IMAP', u.type === 'external' && `${u.imap_host}:${u.imap_port}, ${security[u.imap_security]}`],
          ['SMTP', u.type === 'external' && u.smtp_host && `${u.smtp_host}:${u.smtp_port}, ${security[u.smtp_security]}`],
          ['May send', u.send_policy.send !== 'allow' && saidSend(u.send_policy)],
          ['Forwards to', u.forward_to],
          ['Relay', u.relay],
          ['Created', <Time of={u.created_at} form="date" />],
          ['ID', <Copyable text={u.id} />],
        ]} />
        {u.quota_bytes !== null && <Bar limit value={u.used_bytes} of={u.quota_bytes} label="Storage used" />}
        {u.type === 'external' && can('refresh_email_user_inbox') && <div class="form-actions"><Button icon="refresh" onClick={async () => { await call('refresh_email_user_inbox', { user_id: u.id }); told('Fetching mail.') }}>Fetch now</Button></div>}
      </div>
    </Card>
  )
}

function Settings({ of: u }: { of: MailboxOut }) {
  const before = useRef(u)
  const [name, setName] = useState(u.name), [footer, setFooter] = useState(u.footer ?? ''), [forward, setForward] = useState(u.forward_to ?? '')
  const [quota, setQuota] = useState(toMiB(u.quota_bytes)), [daily, setDaily] = useState(u.daily_send_limit?.toString() ?? ''), [relay, setRelay] = useState(u.relay ?? '')
  const submit = async () => {
    const body: Record<string, unknown> = { name, footer: footer || null, daily_send_limit: daily === '' ? null : Number(daily), relay: relay || null }
    if (u.type === 'hosted') Object.assign(body, { forward_to: forward || null, quota_bytes: fromMiB(quota) ?? null })
    // Only what was changed here: somebody else may have changed the rest meanwhile.
    const changed = Object.entries(body).filter(([field, value]) => value !== (before.current as Record<string, unknown>)[field])
    if (changed.length > 0) await call('update_email_user', { user_id: u.id, ...Object.fromEntries(changed) })
    before.current = { ...before.current, ...Object.fromEntries(changed) }
    told(changed.length > 0 ? 'Saved.' : 'Nothing has changed.')
  }
  return (
    <Card title="Settings">
      <Form submit="Save" onSubmit={submit}>
        <TextField label="Display name" name="name" value={name} onInput={setName} />
        <div class="grid-2">
          {u.type === 'hosted' && <TextField label="Quota" name="quota_bytes" type="number" min={1} value={quota} onInput={setQuota} after="MiB" hint="Leave empty for no limit." />}
          <TextField label="Daily send limit" name="daily_send_limit" type="number" min={0} value={daily} onInput={setDaily} hint="Recipients per day: a message to three people counts as three. Leave empty for no limit." />
        </div>
        {u.type === 'hosted' && <TextField label="Forward to" name="forward_to" type="email" value={forward} onInput={setForward} hint="Incoming mail is also sent here." />}
        <TextField label="Relay" name="relay" value={relay} onInput={setRelay} hint="Name of the relay that sends this mailbox’s mail. Leave empty to use the domain’s route." />
        <TextArea label="Footer" name="footer" value={footer} onInput={setFooter} rows={3} hint="Added to every message sent from this mailbox." />
      </Form>
    </Card>
  )
}

function Suspend({ of: u, onClose }: { of: MailboxOut; onClose: () => void }) {
  const [hold, setHold] = useState(false)
  const submit = async () => {
    await call('update_email_user', { user_id: u.id, status: 'suspended', hold })
    told(`${u.email} is suspended.`)
    onClose()
  }
  return (
    <Dialog title={`Suspend ${u.email}?`} onClose={onClose}>
      <Form submit="Suspend" danger onSubmit={submit}>
        <p>Mail clients can’t log in, nothing can be sent, and incoming mail is refused, until you activate it again.</p>
        <HoldCheck checked={hold} onChange={setHold} />
      </Form>
    </Dialog>
  )
}

function HoldCheck({ checked, onChange }: { checked: boolean; onChange: (on: boolean) => void }) {
  return <Check label="Hold waiting messages" hint="Messages that are queued or scheduled stay on hold until you send or discard them. Otherwise they are still sent." checked={checked} onChange={onChange} />
}

function Password({ of: u, onClose }: { of: MailboxOut; onClose: () => void }) {
  const [text, setText] = useState(''), [made, setMade] = useState<string>(), [hold, setHold] = useState(false)
  const external = u.type === 'external'
  const submit = async () => {
    const password = text || generated()
    await call('update_email_user', { user_id: u.id, password, ...(hold && { hold }) })
    if (external) call('refresh_email_user_inbox', { user_id: u.id }).catch(failed)
    if (text) {
      told(external ? 'Password changed. Fetching mail.' : 'Password changed.')
      onClose()
    } else setMade(password)
  }
  return (
    <Dialog title={`Set password for ${u.email}`} onClose={onClose}>
      {made ? <Secret name="password" text={made} again={passwordAgain()} /> : (
        <Form submit="Set password" onSubmit={submit} disabled={external && !text}>
          <TextField label="Password" name="password" type="password" value={text} onInput={setText} autoComplete={external ? 'off' : 'new-password'} autoFocus
            hint={external ? `The password for ${u.imap_host}. Mail is fetched with it at once.` : 'Leave empty to generate one. Mail clients that use the old password stop working.'} />
          <HoldCheck checked={hold} onChange={setHold} />
        </Form>
      )}
    </Dialog>
  )
}

const letters = 'ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789'

/** A password of 20 characters that are easy to tell apart. */
function generated(): string {
  let text = ''
  while (text.length < 20) {
    const [n] = crypto.getRandomValues(new Uint8Array(1))
    if (n! < letters.length * Math.floor(256 / letters.length)) text += letters[n! % letters.length]
  }
  return text
}

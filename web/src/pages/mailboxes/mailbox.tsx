// One mailbox, in tabs: its settings, its addresses, how to get into it, and what it does with mail
// by itself. One bar saves what is changed in any of them.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { ask, Badge, Bar, Button, bytes, Card, Check, Copyable, count, Dialog, Done, Empty, Facts, failed, Form, LinkButton, Menu, Notice, Page, PageTabs, SaveArea, savedBy, Secret, Show, TabPanel, TextField, theirList, Time, told, useDraft, Wrong } from '../../ui'
import { t } from '../../words'
import { UniversalNotice } from '../inbox/head'
import { saidSend } from '../policies/policy'
import { Connection, security } from './connection'
import { AppPasswords } from './credentials'
import { Expires, Expiry } from './expiry'
import { PasswordLink } from './password-link'
import { Held, Paused } from './paused'
import { ReplyFields, replyOf, Rules, saveReply } from './rules'
import { TeamMembers } from './people'
import { Aliases, changeOf, formOf, RecoveryAddress, SendingPolicy, Settings } from './settings'
import { passwordAgain, StatusBadge, type MailboxOut } from './words'

const hosted = (u: MailboxOut) => u.type === 'hosted'

const tabs: { id: string; name: string; has: (u: MailboxOut) => boolean }[] = [
  { id: '', name: 'Settings', has: () => true },
  { id: 'addresses', name: 'Addresses', has: hosted },
  { id: 'access', name: 'Access', has: hosted },
  { id: 'rules', name: 'Rules', has: (u) => hosted(u) && can('list_rules') },
  { id: 'reply', name: 'Automatic reply', has: (u) => hosted(u) && can('get_vacation') },
]

/** The tabs of fields that are not in the first one. */
const places: Record<string, string> = { aliases: 'addresses', recovery_email: 'access', subject: 'reply', text: 'reply', from: 'reply', starts_at: 'reply', ends_at: 'reply' }

const hrefOf = (id: string, tab: string) => `/mailboxes/${id}` + (tab && '/' + tab)

type Opened = 'password' | 'link' | 'suspend' | 'expiry'

export function Mailbox({ id, tab = '' }: { id: string; tab?: string }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { only: (c) => c.id === id })
  const [open, setOpen] = useState<Opened>()
  const close = () => setOpen(undefined)
  const u = mailbox.data
  const shown = u ? tabs.filter((t) => t.has(u)) : [], at = tabs.find((t) => t.id === tab)
  return (
    <Page title={(u?.email ?? 'Mailbox') + (tab && at ? ' · ' + at.name : '')} heading={u && <span class="row">{u.email} <StatusBadge status={u.status} />{u.type === 'external' && <Badge plain tone="info">external</Badge>}</span>}
      intro={u?.name} back={{ href: '/mailboxes', label: 'Mailboxes' }} actions={u && <Actions of={u} onOpen={setOpen} />}
      tabs={shown.length > 1 && <PageTabs label="Mailbox" current={tab} tabs={shown.map((t) => ({ id: t.id, name: t.name, href: hrefOf(id, t.id) }))} />}>
      <Show of={mailbox}>
        {(u) => shown.some((t) => t.id === tab) ? <Parts of={u} tab={tab} reload={mailbox.reload} /> : <Empty icon="search" title="Page not found" action={<LinkButton href={hrefOf(id, '')}>Back to mailbox</LinkButton>} />}
      </Show>
      {u && open === 'password' && <Password of={u} onClose={close} />}
      {u && open === 'link' && <PasswordLink of={u} onClose={close} />}
      {u && open === 'expiry' && <Expiry of={u} onClose={close} />}
      {u && open === 'suspend' && <Suspend of={u} onClose={close} />}
    </Page>
  )
}

/**
 * What is in the tabs. It stays as the viewer goes from one to the other, with what was changed in
 * each.
 */
function Parts({ of: u, tab, reload }: { of: MailboxOut; tab: string; reload: () => Promise<void> }) {
  const vacation = useQuery('get_vacation', { user_id: u.id }, { when: hosted(u) && can('get_vacation') })
  const account = useQuery('get_account', {}, { when: u.type === 'external' }).data
  const held = useQuery('list_messages', { limit: 100, status: 'held', mailbox: u.email })
  const settings = useDraft(formOf(u)), reply = useDraft(replyOf(vacation.data))
  const parts = [
    savedBy(settings, async (changes, values) => {
      const change = changeOf(changes, values)
      await call('update_email_user', { user_id: u.id, ...change })
      await reload()
      return change.recovery_email ? 'Saved. Open the link in the mail that is on its way to confirm the recovery address.' : undefined
    }),
    savedBy(reply, async (_, values) => {
      const text = await saveReply(u.id, vacation.data!, values)
      await vacation.reload()
      return text
    }),
  ]
  const fields = { of: u, draft: settings }
  const content = (
    <>
      <Expires of={u} />
      <Paused of={u.sending_paused} name={u.email} mailbox={u.id} />
      {held.data?.data.some((m) => m.approval_id === null) && <Held id={u.id} email={u.email} />}
      {u.error && <Notice tone="bad" title={u.type === 'external' ? 'Can’t fetch mail.' : 'Mailbox error.'}><Wrong of={u.error} /></Notice>}
      {u.type === 'external' && <UniversalNotice account={account} />}
      {u.status === 'pending' && u.type === 'external' && <Notice>Mail has not been fetched yet.</Notice>}
      {u.status === 'pending' && u.type === 'hosted' && <Notice>The mailbox’s domain is not ready yet. <a href={`/domains/${u.domain_id}`}>See what {u.domain} needs</a>.</Notice>}
      {u.status === 'suspended' && <Notice tone="warn">Suspended: mail clients can’t log in, nothing new can be sent, and incoming mail is refused.</Notice>}
      {tab === '' && (
        <div class="grid-2">
          {can('update_email_user') && <Settings {...fields} />}
          <div class="stack">
            {can('update_email_user') && <SendingPolicy {...fields} />}
            {!hosted(u) && <TeamMembers of={u} />}
            <About of={u} />
          </div>
        </div>
      )}
      {tab === 'addresses' && (
        <div class="grid-2">
          {can('update_email_user') ? <Aliases {...fields} /> : <Card title="Aliases"><p>{u.aliases.join(', ') || 'None'}</p></Card>}
          <Card title="Sender addresses"><Facts of={[['Address', <Copyable text={u.email} label="Copy address" />], ['Can send as', theirList(u.send_as)]]} /></Card>
        </div>
      )}
      {tab === 'access' && (
        <div class="grid-2">
          <div class="stack">
            <TeamMembers of={u} />
            <Connection of={u} />
          </div>
          <div class="stack">
            {can('list_credentials') && <AppPasswords userID={u.id} />}
            {can('update_email_user') && <RecoveryAddress {...fields} />}
          </div>
        </div>
      )}
      {tab === 'rules' && <Rules userID={u.id} />}
      {tab === 'reply' && (
        <Card title={t('away.title')} note={t('away.note')}>
          <Show of={vacation} lines={4}>
            {(v) => can('set_vacation') ? <div class="form"><ReplyFields of={reply.values} set={reply.set} /></div> : <p class="muted">{v.enabled ? v.text : 'Off.'}</p>}
          </Show>
        </Card>
      )}
    </>
  )
  return (
    <SaveArea parts={parts} at={hrefOf(u.id, '')} reveal={(field) => go(hrefOf(u.id, places[field.split('.')[0]!] ?? ''))}>
      {hosted(u) ? <TabPanel current={tab}>{content}</TabPanel> : <div class="stack">{content}</div>}
    </SaveArea>
  )
}

function Actions({ of: u, onOpen }: { of: MailboxOut; onOpen: (dialog: Opened) => void }) {
  const suspended = u.status === 'suspended'
  const activate = async () => {
    await call('update_email_user', { user_id: u.id, status: 'active' })
    told(`${u.email} is active again.`)
  }
  const remove = () => ask({
    title: `Delete ${u.email}?`, action: 'Delete', typed: u.email, text: 'All of its mail is deleted too. This can’t be undone.',
    run: async () => {
      await call('delete_email_user', { user_id: u.id })
      go('/mailboxes', { unasked: true })
      told(`${u.email} is being deleted.`)
    },
  })
  return (
    <>
      <LinkButton icon="inbox" href={`/inbox?mailbox=${encodeURIComponent(u.email)}`}>Inbox</LinkButton>
      {can('send_email') && <LinkButton icon="pencil" href={`/compose?from=${u.id}`}>Compose</LinkButton>}
      {can('update_email_user') && (
        <Menu label="More actions">
          <Button look="ghost" small icon="key" onClick={() => onOpen('password')}>Set password</Button>
          {u.type === 'hosted' && can('create_recovery_link') && <Button look="ghost" small icon="external" onClick={() => onOpen('link')}>Get a password link</Button>}
          <Button look="ghost" small icon={suspended ? 'play' : 'pause'} onClick={suspended ? activate : () => onOpen('suspend')}>{suspended ? 'Activate' : 'Suspend'}</Button>
          <Button look="ghost" small icon="clock" onClick={() => onOpen('expiry')}>Set expiry</Button>
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
          ['Recipients today', `${count(u.sent_today)}${u.daily_send_limit !== null ? ` of ${count(u.daily_send_limit)}` : ''}`],
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
        <p>Mail clients can’t log in, nothing new can be sent, and incoming mail is refused, until you activate it again.</p>
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
      {made ? <div class="stack"><Secret name="password" text={made} again={passwordAgain()} /><Done /></div> : (
        <Form submit="Set password" onSubmit={submit} of={text} optional={!external}>
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

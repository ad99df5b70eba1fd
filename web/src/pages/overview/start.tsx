// The short path from nothing to the first message.
import { useEffect, useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Card, Code, Copyable, Form, Icon, LinkButton, Secret, TextField, theirs, Time, Wrong } from '../../ui'
import { isInUse, isUnread, useScan } from '../domains/scan'
import { passwordAgain } from '../mailboxes/words'
import { useDomains, type Domain } from './read'

type Mailbox = Schemas['EmailUser']

/** Shows what is next until the first message has arrived. */
export function Start() {
  const domains = useDomains()
  const mailboxes = useQuery('list_email_users', { limit: 1 })
  const inbox = useQuery('list_inbox', { limit: 1 })
  const [open, setOpen] = useState(false)
  const known = domains.data && mailboxes.data && inbox.data
  const arrived = inbox.data?.data[0]
  useEffect(() => {
    if (known && !arrived) setOpen(true)
  }, [!!known])
  if (!known || !open) return null
  const domain = domains.data![0]
  const ready = domains.data!.find((d) => d.status === 'complete')
  const mailbox = mailboxes.data!.data[0]
  const at = arrived ? 4 : mailbox ? 3 : ready ? 2 : domain ? 1 : 0
  return (
    <Card title="Get your first message" actions={arrived && <LinkButton small href="/inbox">Open inbox</LinkButton>}>
      <ol class="steps">
        <Step n={0} at={at} title="Add a domain">
          {can('connect_domains') ? <LinkButton look="primary" icon="plus" href="/domains/add">Add domain</LinkButton> : 'Ask the account’s owner or an admin to add one.'}
        </Step>
        <Step n={1} at={at} title="Point DNS at Mailstead">{domain && <NextOfDomain domain={domain} />}</Step>
        <Step n={2} at={at} title="Create a mailbox">{ready && <FirstMailbox domain={ready} />}</Step>
        <Step n={3} at={at} title="Receive a message">{mailbox && <FirstMessage mailbox={mailbox} />}</Step>
      </ol>
      {arrived && <Arrived message={arrived} />}
    </Card>
  )
}

function Step({ n, at, title, children }: { n: number; at: number; title: string; children: preact.ComponentChildren }) {
  const state = n < at ? 'done' : n === at ? 'now' : ''
  return (
    <li class={state} aria-current={n === at ? 'step' : undefined}>
      <span class="mark" aria-hidden="true">{n < at ? <Icon name="check" /> : n + 1}</span>
      <div class="stack-tight grow"><h3>{title}{n < at && <span class="visually-hidden"> (done)</span>}</h3>{n === at && <div>{children}</div>}</div>
    </li>
  )
}

function NextOfDomain({ domain: d }: { domain: Domain }) {
  const scan = useScan(d)
  const inUse = isInUse(d) || !scan.known || scan.running || isUnread(scan) || d.nameservers.length === 0
  const what = d.status === 'pending_ns' && inUse ? <>Mailstead looks at the present records of <strong>{d.domain_unicode}</strong> first. Its page shows what to do.</>
    : d.status === 'pending_ns' ? <>At your registrar, set the nameservers of <strong>{d.domain_unicode}</strong> to {d.nameservers.map((ns) => <Copyable key={ns} text={ns} />)}</>
    : d.status === 'pending_dns_records' ? <>Add the DNS records of <strong>{d.domain_unicode}</strong> at your DNS provider.</>
      : d.status === 'error' ? d.error ? <Wrong of={d.error} /> : 'Setup failed.'
        : <>Mailstead is setting up <strong>{d.domain_unicode}</strong>. No action needed.</>
  return <div class="stack-tight"><p>{what}</p><div><LinkButton href={`/domains/${d.id}`}>Open {d.domain_unicode}</LinkButton></div></div>
}

function FirstMailbox({ domain }: { domain: Domain }) {
  const [username, setUsername] = useState('')
  const [made, setMade] = useState<{ email: string; password?: string }>()
  if (made?.password) return <Secret name={`password for ${made.email}`} text={made.password} again={passwordAgain()} />
  if (!can('create_email_user')) return <p>Ask the account’s owner or an admin to create one.</p>
  return (
    <Form submit="Create mailbox" onSubmit={async () => setMade(await call('create_email_user', { username, domain: domain.domain }) as { email: string; password?: string })}>
      <TextField label="Username" name="username" value={username} onInput={setUsername} after={'@' + domain.domain_unicode} placeholder="hello" />
    </Form>
  )
}

function FirstMessage({ mailbox }: { mailbox: Mailbox }) {
  const { sandbox, smtp_port: port } = session.value!
  const host = location.hostname === 'localhost' ? '127.0.0.1' : location.hostname
  return (
    <div class="stack-tight">
      <p>Send a message to <Copyable text={mailbox.email} /> from any mail account. It appears here as soon as it arrives.</p>
      {sandbox && port > 0 && (
        <>
          <p class="muted small">This sandbox can be reached only from this machine. Send a message from a terminal:</p>
          <Code label="Command" text={`swaks --server ${host}:${port} --from me@example.com --to ${mailbox.email} --header 'Subject: Hello'`} />
        </>
      )}
      <p class="row muted"><span class="spinner" /> Waiting for mail</p>
    </div>
  )
}

function Arrived({ message: m }: { message: Schemas['InboxMessage'] }) {
  return (
    <a class="line overview-arrived" href={`/inbox/${m.user_id}/${m.uid}`}>
      <Badge tone="ok">Arrived</Badge>
      <span class="grow truncate"><strong>{theirs(m.from_name ?? m.from_email)}</strong> {theirs(m.subject)}</span>
      <Time of={m.received_at} />
    </a>
  )
}

// The short path from nothing to the first message: four steps, until it has arrived or the viewer
// has had enough of them.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Button, Card, Code, Copyable, Form, Icon, LinkButton, Secret, TextField, theirs, Time, Wrong } from '../../ui'
import { isInUse, isUnread, useScan } from '../domains/scan'
import { passwordAgain } from '../mailboxes/words'
import { useDomains, type Domain } from './read'

type Mailbox = Schemas['EmailUser']
type Message = Schemas['InboxMessage']

/** What there is already, and whether the steps are shown. */
export interface Begun { shown: boolean; dismiss: () => void; domain?: Domain; ready?: Domain; mailbox?: Mailbox; arrived?: Message }

const place = () => `start dismissed ${session.value!.account.id}`

function wasDismissed(): boolean {
  try {
    return localStorage.getItem(place()) !== null
  } catch {
    return false // storage may be forbidden
  }
}

/** Follows an account that has no message yet to its first one. */
export function useStart(): Begun {
  const domains = useDomains()
  const mailboxes = useQuery('list_email_users', { limit: 1 })
  const inbox = useQuery('list_inbox', { limit: 1 })
  const [open, setOpen] = useState(false)
  const known = domains.data && mailboxes.data && inbox.data
  const arrived = inbox.data?.data[0]
  useEffect(() => {
    if (known && !arrived && !wasDismissed()) setOpen(true)
  }, [!!known])
  const dismiss = () => {
    try {
      localStorage.setItem(place(), '1')
    } catch {
      // then it holds for this page alone
    }
    setOpen(false)
  }
  const ready = domains.data?.find((d) => d.status === 'complete')
  return { shown: open && !!known, dismiss, domain: ready ?? domains.data?.[0], ready, mailbox: mailboxes.data?.data[0], arrived }
}

export function Start({ of: { shown, dismiss, domain, ready, mailbox, arrived } }: { of: Begun }) {
  const [made, setMade] = useState<{ email: string; password?: string }>()
  if (!shown) return null
  const steps: { title: string; done?: ComponentChildren; now: ComponentChildren }[] = [
    {
      title: 'Add a domain', done: domain && <a href={`/domains/${domain.id}`}>{domain.domain_unicode}</a>,
      now: can('connect_domains') ? <LinkButton look="primary" icon="plus" href="/domains/add">Add domain</LinkButton> : 'Ask the account’s owner or an admin to add one.',
    },
    { title: 'Point DNS at Mailstead', done: ready && <a href={`/domains/${ready.id}/dns`}>DNS records of {ready.domain_unicode}</a>, now: domain && <NextOfDomain domain={domain} /> },
    {
      title: 'Create a mailbox', now: ready && <FirstMailbox domain={ready} onMade={setMade} />,
      done: mailbox && <><a href={`/mailboxes/${mailbox.user_id}`}>{mailbox.email}</a>{made?.password && <Secret name={`password for ${made.email}`} text={made.password} again={passwordAgain()} />}</>,
    },
    { title: 'Receive a message', done: arrived && <Arrived message={arrived} />, now: mailbox && <FirstMessage mailbox={mailbox} /> },
  ]
  const at = steps.findIndex((s) => !s.done)
  return (
    <Card title="Get your first message" actions={arrived ? <LinkButton small href="/inbox">Open inbox</LinkButton> : <Button small look="ghost" onClick={dismiss}>Dismiss</Button>}>
      <ol class="steps">
        {steps.map(({ title, done, now }, i) => (
          <li key={title} class={done ? 'done' : i === at ? 'now' : ''} aria-current={i === at ? 'step' : undefined}>
            <span class="mark" aria-hidden="true">{done ? <Icon name="check" /> : i + 1}</span>
            <div class="stack-tight grow">
              <div class="overview-start"><h3>{title}</h3><Badge tone={done ? 'ok' : i === at ? 'info' : 'none'}>{done ? 'done' : i === at ? 'next' : 'later'}</Badge></div>
              {done ? <div class="stack-tight">{done}</div> : i === at && <div>{now}</div>}
            </div>
          </li>
        ))}
      </ol>
    </Card>
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

function FirstMailbox({ domain, onMade }: { domain: Domain; onMade: (made: { email: string; password?: string }) => void }) {
  const [username, setUsername] = useState('')
  if (!can('create_email_user')) return <p>Ask the account’s owner or an admin to create one.</p>
  return (
    <Form submit="Create mailbox" onSubmit={async () => onMade(await call('create_email_user', { username, domain: domain.domain }) as { email: string; password?: string })}>
      <TextField label="Username" name="username" value={username} onInput={setUsername} after={'@' + domain.domain_unicode} placeholder="hello" />
    </Form>
  )
}

function FirstMessage({ mailbox }: { mailbox: Mailbox }) {
  const { sandbox, smtp_port: port, hostname } = session.value!
  const host = location.hostname === 'localhost' ? '127.0.0.1' : location.hostname
  const test = () => call('send_email', {
    user_id: mailbox.user_id, to: [mailbox.email], subject: 'Test message',
    text: `It works: this message was sent from ${mailbox.email} and delivered to the same mailbox on ${hostname}.\n`,
  })
  return (
    <div class="stack-tight">
      {sandbox ? (
        <>
          <p>The sandbox can be reached only from this machine, so let it write to itself. The message appears here as soon as it arrives.</p>
          {can('send_email') && <div><Button look="primary" icon="send" onClick={test}>Send myself a test message</Button></div>}
          {port > 0 && (
            <details>
              <summary class="muted small">Or send one from a terminal</summary>
              <Code label="Command" text={`swaks --server ${host}:${port} --from me@example.com --to ${mailbox.email} --header 'Subject: Hello'`} />
            </details>
          )}
        </>
      ) : <p>Send a message to <Copyable text={mailbox.email} /> from any mail account. It appears here as soon as it arrives.</p>}
      <p class="row muted"><span class="spinner" /> Waiting for mail</p>
    </div>
  )
}

function Arrived({ message: m }: { message: Message }) {
  return (
    <a class="line overview-arrived" href={`/inbox/${m.user_id}/${m.uid}`}>
      <Badge tone="ok">Arrived</Badge>
      <span class="grow truncate"><strong>{theirs(m.subject)}</strong> <span class="muted">{theirs(m.from_name ?? m.from_email)}</span></span>
      <Time of={m.received_at} />
    </a>
  )
}

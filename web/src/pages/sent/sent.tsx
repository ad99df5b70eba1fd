import { can, type Input } from '../../api/client'
import { usePages } from '../../api/query'
import { params, setParams, useTyped } from '../../router'
import { Button, Card, Empty, LinkButton, LongList, Page, Select, TextField, theirs, Time, words } from '../../ui'
import { StatusBadge, statuses, type Row, type Status } from './words'
import { SentTabs } from './tabs'

const texts = ['mailbox', 'domain', 'recipient'] as const
type Text = (typeof texts)[number]

export function Sent() {
  const filter = filterOf(params.value)
  const pages = usePages('list_messages', { limit: 50, ...filter }, (m) => m.id)
  const filtered = Object.values(filter).some(Boolean)
  return (
    <Page title="Sent" intro="Delivery status of every message, by recipient, newest first." tabs={<SentTabs current="log" />}
      actions={can('send_email') && <LinkButton look="primary" icon="pencil" href="/compose">Compose</LinkButton>}>
      <Filters filtered={filtered} />
      <Card flush>
        <LongList pages={pages} idOf={(m) => m.id} height={52} narrowHeight={68} label="Sent messages" row={(m) => <Line row={m} />}
          empty={filtered
            ? <Empty icon="search" title="No messages match" action={<Button onClick={clear}>Clear filters</Button>} />
            : <Empty icon="send" title="No sent messages yet">Messages sent from the API, mail clients and the dashboard appear here, with every delivery attempt.</Empty>} />
      </Card>
    </Page>
  )
}

function filterOf(p: URLSearchParams): Input<'list_messages'> {
  const day = (name: string, end = false) => {
    const text = p.get(name)
    const at = text ? new Date(text + (end ? 'T23:59:59.999' : 'T00:00:00')) : undefined // in the viewer's zone
    return at && !isNaN(at.getTime()) ? at.toISOString() : undefined
  }
  const status = p.get('status')
  return {
    status: status && status in statuses ? (status as Status) : undefined,
    mailbox: p.get('mailbox') || undefined, domain: p.get('domain') || undefined, recipient: p.get('recipient') || undefined,
    date_from: day('from'), date_to: day('to', true),
  }
}

function clear() {
  setParams({ status: '', mailbox: '', domain: '', recipient: '', from: '', to: '' })
}

const labels: Record<Text, [label: string, example: string]> = {
  recipient: ['Recipient', 'name@example.com'], mailbox: ['Sender', 'name@example.com'], domain: ['Domain', 'example.com'],
}

function Filters({ filtered }: { filtered: boolean }) {
  const p = params.value
  return (
    <div class="sent-filters">
      <Select label="Status" value={(p.get('status') ?? '') as Status | ''} onChange={(status) => setParams({ status })}
        options={[['', 'Any status'], ...Object.keys(statuses).map((s) => [s as Status, words(s)] as const)]} />
      {texts.map((name) => <Typed key={name} name={name} />)}
      <TextField label="Since" type="date" value={p.get('from') ?? ''} onInput={(from) => setParams({ from })} />
      <TextField label="Until" type="date" value={p.get('to') ?? ''} onInput={(to) => setParams({ to })} />
      {filtered && <Button look="ghost" icon="x" onClick={clear}>Clear</Button>}
    </div>
  )
}

function Typed({ name }: { name: Text }) {
  const [text, setText] = useTyped(name)
  const [label, example] = labels[name]
  return <TextField label={label} type="search" value={text} onInput={setText} placeholder={example} />
}

function Line({ row: m }: { row: Row }) {
  return (
    <a class="line sent-row" href={`/sent/${m.id}`}>
      <span class="sent-state"><StatusBadge status={m.status} /></span>
      <span class="sent-what">
        <span class="sent-to truncate"><strong>{theirs(m.recipient)}</strong></span>
        <span class="grow truncate sent-subject">{theirs(m.subject) || <i>(no subject)</i>} <span class="muted">from {m.sender}</span></span>
      </span>
      <span class="sent-when muted small"><Time of={m.queued_at} form="short" /></span>
    </a>
  )
}

import { can, session, type Input } from '../../api/client'
import { readAhead, usePages, useQuery } from '../../api/query'
import { param, params, setParams } from '../../router'
import { Button, Card, count, Empty, LinkButton, ListBar, LongList, narrow, Page, Select, TextField, theirs, Time, totalOf, TypedField, useDrawn, words, type Column } from '../../ui'
import { StatusBadge, statuses, type Row, type Status } from './words'
import { SentTabs } from './tabs'

type Sort = '-queued_at' | 'queued_at'

const orders: [Sort, string][] = [['-queued_at', 'Newest first'], ['queued_at', 'Oldest first']]

const columns: Column[] = [{ name: 'Status' }, { name: 'To' }, { name: 'From' }, { name: 'Subject' }, { name: 'Time', sorts: ['-queued_at', 'queued_at'] }]

/** What the list reads, by the parameters of the address. */
function listOf(p: URLSearchParams) {
  const sort: Sort = p.get('sort') === 'queued_at' ? 'queued_at' : '-queued_at'
  return { limit: 50, ...filterOf(p), sort }
}

/** Reads what the list begins with, before it is opened. */
export const readSentAhead = () => readAhead('list_messages', listOf(new URLSearchParams()))

export function Sent() {
  const filter = filterOf(params.value), list = listOf(params.value), { sort } = list
  const pages = usePages('list_messages', list, (m) => m.id)
  const read = useDrawn(pages)
  const filtered = Object.values(filter).some(Boolean)
  const table = { columns, class: 'sent-line', sort, onSort: (sort: string) => setParams({ sort }) }
  return (
    <Page title="Sent" intro={<LastDays read={read} />} tabs={<SentTabs current="log" />}
      actions={can('send_email') && <LinkButton look="primary" icon="pencil" href="/compose">Compose</LinkButton>}>
      <Filters filtered={filtered} />
      <ListBar total={totalOf(pages, 'message')} table={table} orders={orders}><StatusFilter /></ListBar>
      <Card flush>
        <LongList pages={pages} idOf={(m) => m.id} height={44} compactHeight={30} narrowHeight={66} narrowCompactHeight={54} label="Sent messages" table={table} row={(m) => <Line row={m} />}
          empty={filtered
            ? <Empty icon="search" title="No messages match" action={<Button onClick={clear}>Clear filters</Button>} />
            : <Empty icon="send" title="No sent messages yet">Messages sent from the API, mail clients and the dashboard appear here, with every delivery attempt.</Empty>} />
      </Card>
    </Page>
  )
}

/** What became of the mail of the last days. It is read once the list is there. */
function LastDays({ read }: { read: boolean }) {
  const usage = useQuery('get_usage', {}, { when: read && can('get_usage') && !session.value!.limited })
  const m = usage.data?.messages
  if (!m) return <>Every message by recipient, with its delivery status.</>
  return <>Last 30 days: {count(m.sent_30d)} sent or scheduled, {count(m.bounced_30d)} bounced, {count(m.complained_30d)} reported as spam. Waiting now: {count(m.queued)}.</>
}

function filterOf(p: URLSearchParams): Input<'list_messages'> {
  const day = (name: string) => {
    const text = p.get(name)
    return text && /^\d{4}-\d\d-\d\d$/.test(text) ? text : undefined
  }
  const status = p.get('status')
  return {
    status: status && status in statuses ? (status as Status) : undefined,
    mailbox: param(p, 'mailbox'), domain: param(p, 'domain'), recipient: param(p, 'recipient'),
    date_from: day('from'), date_to: day('to'),
  }
}

function clear() {
  setParams({ status: '', mailbox: '', domain: '', recipient: '', from: '', to: '' })
}

function Filters({ filtered }: { filtered: boolean }) {
  const p = params.value
  return (
    <div class="sent-filters">
      <TypedField name="recipient" label="Recipient" hideLabel placeholder="To address" />
      <TypedField name="mailbox" label="Sender" hideLabel placeholder="From address" />
      <TypedField name="domain" label="Domain" hideLabel placeholder="From domain" />
      <TextField label="Since (UTC)" type="date" value={p.get('from') ?? ''} onInput={(from) => setParams({ from })} />
      <TextField label="Until (UTC)" type="date" value={p.get('to') ?? ''} onInput={(to) => setParams({ to })} />
      {filtered && <Button look="ghost" icon="x" onClick={clear}>Clear</Button>}
    </div>
  )
}

/** Chips, or a choice on a phone, which has no room for so many. */
function StatusFilter() {
  const status = (params.value.get('status') ?? '') as Status | ''
  const all = (Object.keys(statuses) as Status[]).filter((s) => s !== 'captured' || s === status || session.value!.outbound === 'capture')
  const options: [Status | '', string][] = [['', narrow.value ? 'Any status' : 'All'], ...all.map((s): [Status, string] => [s, words(s)])]
  const choose = (status: string) => setParams({ status })
  if (narrow.value) return <Select label="Status" hideLabel value={status} onChange={choose} options={options} />
  return (
    <div class="chips" role="group" aria-label="Status">
      {options.map(([s, name]) => <button key={s} type="button" class="chip" aria-pressed={s === status} onClick={() => choose(s)}>{name}</button>)}
    </div>
  )
}

function Line({ row: m }: { row: Row }) {
  return (
    <>
      <span role="cell" class="sent-line-state"><StatusBadge status={m.status} /></span>
      <span role="cell" class="sent-line-to"><a class="row-link truncate" href={`/sent/${m.id}`}>{theirs(m.recipient)}</a></span>
      <span role="cell" class="sent-line-from truncate muted">{m.sender}</span>
      <span role="cell" class="sent-line-subject truncate">{theirs(m.subject) || <i>(no subject)</i>}</span>
      <span role="cell" class="sent-line-time muted small nowrap"><Time of={m.queued_at} form="short" /></span>
    </>
  )
}

// The requests to the API, newest first.
import { type Input, type Schemas } from '../../api/client'
import { operations } from '../../api/generated/operations'
import { usePages, useQuery } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, Button, Card, count, Empty, ListBar, LongList, Page, Select, theirs, Time, totalOf, TypedField, type Column, type Tone } from '../../ui'

type Request = Schemas['RequestRow']
type Filter = Input<'list_requests'>

const classes = [['', 'Any status'], ['2', '2xx: successful'], ['4', '4xx: refused'], ['5', '5xx: server errors']] as const
const methods = ['', 'GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
const names = Object.keys(operations)

const filters = ['class', 'method', 'operation', 'path', 'by', 'id'] as const
type Name = (typeof filters)[number]

/** By whom: apps with any token by default, since the dashboard asks for something all the time. */
const makers: [string, string][] = [['', 'Apps'], ['dashboard', 'Dashboard'], ['all', 'Anyone']]

function filterOf(p: URLSearchParams): Filter {
  const of = (name: Name) => p.get(name) || undefined
  const by = of('by')
  return {
    status_class: Number(classes.find(([id]) => id === of('class'))?.[0]) || undefined, method: methods.find((m) => m === of('method')) || undefined, operation: of('operation'), path: of('path'),
    request_id: of('id'), via: by === 'dashboard' ? by : by || of('id') ? undefined : 'token', token_id: by?.startsWith('tok_') ? by : undefined,
  }
}

export function StatusCode({ of: { status } }: { of: Pick<Request, 'status'> }) {
  const tone: Tone = status < 400 ? 'ok' : status < 500 ? 'warn' : 'bad'
  return <Badge tone={tone} plain>{status}</Badge>
}

function clear(by = '') {
  setParams({ ...Object.fromEntries(filters.map((name) => [name, ''])), by })
}

const columns: Column[] = [{ name: 'Status' }, { name: 'Operation' }, { name: 'Path' }, { name: 'Made by' }, { name: 'Duration', number: true }, { name: 'Time', number: true }]

export function Requests() {
  const pages = usePages('list_requests', { limit: 50, ...filterOf(params.value) }, (r) => r.request_id)
  const filtered = filters.some((name) => name !== 'by' && params.value.get(name)), by = params.value.get('by')
  return (
    <Page title="Requests" intro="What apps asked of the API in the last 7 days, newest first." actions={<Button icon="refresh" onClick={pages.reload}>Refresh</Button>}>
      <Filters filtered={filtered || Boolean(by)} />
      <ListBar total={totalOf(pages, 'request')} />
      <Card flush>
        <LongList pages={pages} idOf={(r) => r.request_id} height={44} compactHeight={30} narrowHeight={88} label="Requests" table={{ columns, class: 'requests-line' }} row={(r) => <Line of={r} />}
          empty={filtered || by
            ? <Empty icon="search" title="No requests match" action={<Button onClick={() => clear()}>Clear filters</Button>} />
            : <Empty icon="list" title="No requests by apps" action={<Button onClick={() => clear('all')}>Show the dashboard’s requests</Button>}>Each call of the API with a token appears here within seconds, with what was asked and answered.</Empty>} />
      </Card>
    </Page>
  )
}

function Filters({ filtered }: { filtered: boolean }) {
  const p = params.value
  const tokens = useQuery('list_tokens', {})
  const by = p.get('by') ?? ''
  const known = (tokens.data?.data ?? []).map((t): [string, string] => [t.id, t.name || t.token_prefix + '…'])
  if (by.startsWith('tok_') && tokens.data && !known.some(([id]) => id === by)) known.push([by, 'Deleted token'])
  return (
    <div class="log-filters">
      <Select label="Status" value={classes.find(([id]) => id === p.get('class'))?.[0] ?? ''} onChange={(id) => setParams({ class: id })} options={classes} />
      <Select label="Method" value={methods.find((m) => m === p.get('method')) ?? ''} onChange={(method) => setParams({ method })} options={methods.map((m) => [m, m || 'Any method'] as const)} />
      <TypedField name="operation" label="Operation" placeholder="send_email" list={names} />
      <TypedField name="path" label="Path contains" placeholder="/v1/domains" />
      <Select label="Made by" value={by} onChange={(by) => setParams({ by })} options={[...makers, ...known]} />
      <TypedField name="id" label="Request ID" placeholder="req_…" />
      {filtered && <Button look="ghost" icon="x" onClick={() => clear()}>Clear</Button>}
    </div>
  )
}

function Line({ of: r }: { of: Request }) {
  return (
    <>
      <span role="cell"><StatusCode of={r} /></span>
      <span role="cell" class="truncate"><a class="row-link requests-link" href={`/requests/${r.request_id}`}><code>{r.operation}</code></a>{r.error_code && <span class="muted small"> {r.error_code}</span>}</span>
      <span role="cell" class="requests-path truncate muted"><code>{r.method} {r.path}</code></span>
      <span role="cell" class="requests-by truncate">{r.token ? theirs(r.token.name) || 'Unnamed token' : 'Dashboard'}</span>
      <span role="cell" class="requests-took muted small number">{count(r.duration_ms)} ms</span>
      <span role="cell" class="requests-when muted small number nowrap"><Time of={r.at} form="at" /></span>
    </>
  )
}

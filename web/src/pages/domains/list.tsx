// All domains, with what is wrong with each.
import { can } from '../../api/client'
import { readAhead, usePages, useQuery } from '../../api/query'
import { param, params, setParams } from '../../router'
import { Badge, Button, Card, count, Empty, Icon, LinkButton, ListBar, LongList, Page, Select, Time, totalOf, TypedField, useDrawn, type Column } from '../../ui'
import { useSandboxActivation } from './activate'
import { providerNames, StateBadge, stateOf, type Domain, type Provider } from './words'

type Status = Domain['status']
type Sort = '-problems' | 'domain' | '-domain' | '-created_at' | 'created_at'

const orders: [Sort, string][] = [['-problems', 'Problems first'], ['domain', 'Name, A to Z'], ['-domain', 'Name, Z to A'], ['-created_at', 'Newest first'], ['created_at', 'Oldest first']]

const columns: Column[] = [
  { name: 'Domain', sorts: ['domain', '-domain'] }, { name: 'Status', sorts: ['-problems', '-problems'] }, { name: 'Details' }, { name: 'DNS provider' }, { name: 'Mailboxes', number: true },
  { name: 'Added', sorts: ['-created_at', 'created_at'] },
]

const states: [Status | '', string][] = [
  ['', 'Any status'], ['complete', 'Ready'], ['pending_ns', 'Nameservers not set'], ['pending_dns_records', 'DNS records missing'],
  ['in_progress', 'Setting up'], ['pending', 'Queued'], ['error', 'Failed'], ['deleting', 'Deleting'],
]
const pause = 10_000 // ms between two counts: many domains that are set up at once change many times a second

const providers: [Provider | '', string][] = [['', 'Any DNS provider'], ...(Object.entries(providerNames) as [Provider, string][])]

function filterOf(p: URLSearchParams) {
  return { q: param(p, 'q'), status: param(p, 'status') as Status | undefined, dns_provider: param(p, 'dns_provider') as Provider | undefined, tag: param(p, 'tag') }
}

/** What the list reads, by the parameters of the address. */
function listOf(p: URLSearchParams) {
  const sort: Sort = orders.find(([order]) => order === p.get('sort'))?.[0] ?? '-problems'
  return { limit: 50, ...filterOf(p), problems: p.get('needs') === 'you' || undefined, sort }
}

/** Reads what the list begins with, before it is opened. */
export const readDomainsAhead = () => readAhead('list_domains', listOf(new URLSearchParams()))

const mostCounted = 100 // of the domains that need attention

export function Domains() {
  const filter = filterOf(params.value), attention = params.value.get('needs') === 'you'
  const list = listOf(params.value), { sort } = list
  const pages = usePages('list_domains', list, (d) => d.id)
  useSandboxActivation(pages.items)
  const narrowed = Object.values(filter).some(Boolean), filtered = attention || narrowed
  const read = useDrawn(pages)
  const account = useQuery('get_account', {}, { pause, when: read })
  const bare = !filtered && !pages.loading && !pages.error && pages.items.length === 0
  const table = { columns, class: 'domains-line', sort, onSort: (sort: string) => setParams({ sort }) }
  return (
    <Page title="Domains" actions={!bare && <LinkButton look="primary" icon="plus" href="/domains/add">Add domain</LinkButton>}>
      {!bare && <Filters filter={filter} seen={pages.items.flatMap((d) => d.tags)} />}
      {!bare && <ListBar total={totalOf(pages, 'domain', 'domains', filtered ? undefined : account.data?.domains_used)} table={table} orders={orders}>{read && <Attention all={account.data?.domains_used} on={attention} />}</ListBar>}
      <Card flush>
        <LongList pages={pages} idOf={(d) => d.id} height={50} compactHeight={30} narrowHeight={96} narrowCompactHeight={58} label="Domains" table={bare ? undefined : table} row={(d) => <Row domain={d} />}
          empty={<None filtered={filtered} attention={attention && !narrowed} />} />
      </Card>
    </Page>
  )
}

function None({ filtered, attention }: { filtered: boolean; attention: boolean }) {
  if (attention) return <Empty icon="check" title="No domains need attention" action={<Button onClick={() => setParams({ needs: undefined })}>Show all domains</Button>}>All domains are healthy or being set up.</Empty>
  if (filtered) return <Empty icon="search" title="No domains match" action={<Button onClick={() => setParams({ q: '', status: '', tag: '', dns_provider: '' })}>Show all domains</Button>}>Try other filters.</Empty>
  return (
    <Empty icon="globe" title="Add your first domain" action={<LinkButton look="primary" icon="plus" href="/domains/add">Add domain</LinkButton>}>
      A domain is the part of an email address after the @. Use one you own, or buy a new one.
      {!can('connect_domains') && ' Ask the account’s owner or an admin to add it.'}
    </Empty>
  )
}

/** Chooses between all domains and those that need attention. */
function Attention({ all, on }: { all?: number; on: boolean }) {
  const { data } = useQuery('list_domains', { problems: true, limit: mostCounted }, { pause })
  if (!data || all === undefined) return null
  const n = data.data.length, some = n === 0 ? 'None need attention' : `${n}${data.pagination.has_more ? '+' : ''} need${n === 1 ? 's' : ''} attention`
  return (
    <div class="chips" role="group" aria-label="Show">
      <button type="button" class="chip" aria-pressed={!on} onClick={() => setParams({ needs: undefined })}>All {count(all)}</button>
      <button type="button" class="chip" aria-pressed={on} onClick={() => setParams({ needs: 'you', q: '', status: '', tag: '', dns_provider: '' })}>{some}</button>
    </div>
  )
}

/** seen: the tags of the domains that were read. */
function Filters({ filter, seen }: { filter: ReturnType<typeof filterOf>; seen: string[] }) {
  const tags = [...new Set(seen)].sort((a, b) => a.localeCompare(b))
  return (
    <div class="filters" role="search">
      <div class="search grow"><Icon name="search" /><TypedField name="q" label="Name" hideLabel placeholder="Search domains" eager /></div>
      <Select label="Status" hideLabel value={filter.status ?? ''} onChange={(status) => setParams({ status })} options={states} />
      <Select label="DNS provider" hideLabel value={filter.dns_provider ?? ''} onChange={(dns_provider) => setParams({ dns_provider })} options={providers} />
      {(tags.length > 0 || filter.tag) && <TypedField name="tag" label="Tag" hideLabel placeholder="Tag" list={tags} maxLength={50} />}
    </div>
  )
}

function Row({ domain: d }: { domain: Domain }) {
  const { text } = stateOf(d)
  return (
    <>
      <span role="cell" class="domains-line-name">
        <a class="row-link truncate" href={`/domains/${d.id}`}>{d.domain_unicode}</a>
      </span>
      <span role="cell" class="domains-line-state"><StateBadge domain={d} /></span>
      <span role="cell" class="small muted domains-line-cell">
        {text && <span class="domains-line-text" title={text}>{text}</span>}
        {d.tags.length > 0 && (
          <span class="domains-line-tags">
            {d.tags.slice(0, 2).map((t) => <Badge key={t} plain>{t}</Badge>)}
            {d.tags.length > 2 && <span class="muted small">+{d.tags.length - 2}</span>}
          </span>
        )}
      </span>
      <span role="cell" class="small muted truncate">{providerNames[d.dns_provider]}</span>
      <span role="cell" class="domains-line-mailboxes muted number">{count(d.email_users_count)}<span class="domains-line-word">{d.email_users_count === 1 ? ' mailbox' : ' mailboxes'}</span></span>
      <span role="cell" class="muted small nowrap"><Time of={d.created_at} form="date" /></span>
    </>
  )
}

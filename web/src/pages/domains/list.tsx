// All domains, with what is wrong with each.
import { can } from '../../api/client'
import { usePages, type Pages } from '../../api/query'
import { params, setParams, useTyped } from '../../router'
import { Badge, Button, Card, Empty, Icon, LinkButton, LongList, Page, plural, Select, TextField } from '../../ui'
import { useFleet, type Fleet } from './fleet'
import { needsYou, providerNames, StateBadge, stateOf, type Domain, type Provider } from './words'

type Status = Domain['status'] | ''

const states: [Status, string][] = [
  ['', 'Any status'], ['complete', 'Ready'], ['pending_ns', 'Nameservers not set'], ['pending_dns_records', 'DNS records missing'],
  ['in_progress', 'Setting up'], ['pending', 'Queued'], ['error', 'Failed'], ['deleting', 'Deleting'],
]
const providers: [Provider | '', string][] = [['', 'Any DNS provider'], ...(Object.entries(providerNames) as [Provider, string][])]

function useFilter() {
  const of = (name: string) => params.value.get(name) ?? ''
  return { q: of('q'), status: of('status') as Status, dns_provider: of('dns_provider') as Provider | '', tag: of('tag'), attention: of('needs') === 'you' }
}

/** The domains of a whole fleet that need somebody, as a list. */
function attentionOf(fleet: Fleet): Pages<Domain> {
  return {
    items: (fleet.data ?? []).filter(needsYou), error: fleet.error, loading: fleet.loading, more: false,
    loadMore: () => {}, reload: fleet.reload, drop: () => {}, patch: () => {},
  }
}

export function Domains() {
  const { attention, ...filter } = useFilter()
  const fleet = useFleet()
  const asked = usePages('list_domains', {
    limit: 50, q: filter.q || undefined, status: filter.status || undefined, tag: filter.tag || undefined, dns_provider: filter.dns_provider || undefined,
  }, (d) => d.id, { when: !attention })
  const pages = attention ? attentionOf(fleet) : asked
  const filtered = attention || Object.values(filter).some(Boolean)
  const bare = !filtered && !pages.loading && !pages.error && pages.items.length === 0
  return (
    <Page title="Domains" intro="Domains that send and receive mail." actions={!bare && <LinkButton look="primary" icon="plus" href="/domains/add">Add domain</LinkButton>}>
      {!bare && <Summary fleet={fleet} attention={attention} />}
      {!bare && !attention && <Filters filter={filter} tags={fleet.tags} />}
      <Card flush>
        <LongList pages={pages} idOf={(d) => d.id} height={68} narrowHeight={96} label="Domains" row={(d) => <Row domain={d} />} empty={<None filtered={filtered} attention={attention} />} />
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

/** The whole fleet in one line. */
function Summary({ fleet, attention }: { fleet: Fleet; attention: boolean }) {
  if (!fleet.data || fleet.data.length === 0) return null
  const need = fleet.data.filter(needsYou).length
  const busy = fleet.data.filter((d) => stateOf(d).tone === 'info').length
  const more = fleet.whole ? '' : '+'
  const chip = (name: string, pressed: boolean, change: Record<string, string | undefined>) => (
    <button type="button" class="domains-chip" aria-pressed={pressed} onClick={() => setParams(change)}>{name}</button>
  )
  return (
    <div class="row" role="group" aria-label="Show">
      {chip(`All ${fleet.data.length}${more}`, !attention, { needs: undefined })}
      {chip(need === 0 ? 'None need attention' : `${need}${more} need${need === 1 ? 's' : ''} attention`, attention, { needs: 'you', q: '', status: '', tag: '', dns_provider: '' })}
      {busy > 0 && <span class="muted small">{busy} setting up</span>}
    </div>
  )
}

function Filters({ filter, tags }: { filter: Omit<ReturnType<typeof useFilter>, 'attention'>; tags: string[] }) {
  const [name, setName] = useTyped('q')
  return (
    <div class="domains-filters" role="search">
      <div class="grow"><TextField label="Name" type="search" value={name} onInput={setName} placeholder="Search domains" /></div>
      <Select label="Status" value={filter.status} onChange={(status) => setParams({ status })} options={states} />
      <Select label="DNS provider" value={filter.dns_provider} onChange={(dns_provider) => setParams({ dns_provider })} options={providers} />
      {(tags.length > 0 || filter.tag) && (
        <Select label="Tag" value={filter.tag} onChange={(tag) => setParams({ tag })} options={[['', 'Any tag'], ...[...new Set([...tags, filter.tag].filter(Boolean))].map((t) => [t, t] as const)]} />
      )}
    </div>
  )
}

function Row({ domain: d }: { domain: Domain }) {
  const { text } = stateOf(d)
  return (
    <a class="line domains-row" href={`/domains/${d.id}`}>
      <span class="domains-row-name">
        <strong class="truncate">{d.domain_unicode}</strong>
        <span class="domains-row-tags">
          {d.tags.slice(0, 3).map((t) => <Badge key={t} plain>{t}</Badge>)}
          {d.tags.length > 3 && <span class="muted small">+{d.tags.length - 3}</span>}
        </span>
      </span>
      <span class="domains-row-state"><StateBadge domain={d} /></span>
      <span class="domains-row-text small muted">{text}</span>
      <span class="domains-row-about small muted">
        <span>{d.dns_provider === 'builtin' ? '' : providerNames[d.dns_provider]}</span>
        <span class="nowrap">{d.email_users_count === 0 ? 'No mailboxes' : plural(d.email_users_count, 'mailbox', 'mailboxes')}</span>
      </span>
      <Icon name="next" />
    </a>
  )
}

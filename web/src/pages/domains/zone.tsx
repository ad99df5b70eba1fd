// The zone of a domain: all record sets, those of Mailstead and the owner's own.
import { useMemo, useState } from 'preact/hooks'
import { call, can, fetched, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, Button, Card, Check, count, Dialog, Empty, failed, IconButton, LinkButton, LongList, Menu, Notice, plural, SearchField, Select, Show, type Tone } from '../../ui'
import { CopyFields } from './parts'
import type { TabProps } from './types'
import type { Domain } from './words'
import { SetDialog } from './zone-edit'
import { History, undoable } from './zone-history'
import { ImportDialog } from './zone-import'
import { SPFDialog } from './zone-spf'
import { fqdn, keyOf, seconds, shown, whole, type RecordSet } from './zone-values'

const sources: { [S in RecordSet['source']]: [Tone, string] } = { managed: ['none', 'Managed'], custom: ['info', 'Custom'], foreign: ['none', 'At provider'] }
const filters = [['', 'All records'], ['custom', 'Custom'], ['managed', 'Managed by Mailstead'], ['foreign', 'Others at the provider']] as const

type Open = 'add' | 'import' | 'history' | 'spf' | { view: RecordSet } | { edit: RecordSet }

export function Zone(props: TabProps) {
  const { domain: d } = props
  if (d.status === 'deleting') return <Notice>This domain is being deleted.</Notice>
  if (d.dns_provider === 'manual') {
    return (
      <Card>
        <Empty icon="globe" title="Managed at your DNS provider" action={<LinkButton href={`/domains/${d.id}/dns`}>See required records</LinkButton>}>
          You manage the DNS of {d.domain_unicode}. Add custom records at your DNS provider.
        </Empty>
      </Card>
    )
  }
  return <Records {...props} />
}

function Records({ domain: d, reload: reloadDomain }: TabProps) {
  const atEdge = d.dns_provider !== 'builtin'
  const [live, setLive] = useState(false)
  const mine = { kinds: ['record', 'domain'] as const, only: (c: { kind: string; id: string }) => c.kind === 'record' || c.id === d.id }
  const zone = useQuery('get_zone', { domain_id: d.id, live: live || undefined }, { ...mine, kinds: [...mine.kinds] })
  const states = useEdgeStates(d, atEdge)
  const [open, setOpen] = useState<Open>()
  const close = () => setOpen(undefined)
  const reload = async () => { await zone.reload() }
  const done = async () => {
    close()
    await Promise.all([zone.reload(), reloadDomain()])
  }
  const own = zone.data?.records.filter((r) => r.source === 'custom') ?? []
  return (
    <>
      <Card flush title="DNS zone" note="Every DNS record of this domain. Mailstead manages the records for mail; you can add your own."
        actions={
          <>
            {can('set_zone_records') && <Button look="primary" small icon="plus" onClick={() => setOpen('add')}>Add record</Button>}
            {can('import_zone') && <Button small icon="upload" onClick={() => setOpen('import')}>Import</Button>}
            <Menu small label="More actions">
              <Button look="ghost" small icon="download" onClick={() => download(d)}>Export zone file</Button>
              <Button look="ghost" small icon="clock" onClick={() => setOpen('history')}>History</Button>
              {can('set_spf') && <Button look="ghost" small icon="shield" onClick={() => setOpen('spf')}>SPF record</Button>}
            </Menu>
          </>
        }>
        <Show of={zone} lines={8}>{(z) => <List zone={z} domain={d} states={states} onOpen={setOpen} reload={reload} live={live} onLive={atEdge ? setLive : undefined} />}</Show>
      </Card>
      {open === 'add' && <SetDialog domain={d} others={own} onClose={close} onDone={done} />}
      {open === 'import' && <ImportDialog domain={d} onClose={close} onDone={done} />}
      {open === 'history' && <History domain={d} onClose={close} reload={done} />}
      {open === 'spf' && <SPFDialog domain={d} record={zone.data?.records.find(isSPF)} onClose={close} onDone={done} />}
      {typeof open === 'object' && 'edit' in open && <SetDialog domain={d} set={open.edit} fault={states.get(keyOf(open.edit))?.error} others={own} onClose={close} onDone={done} />}
      {typeof open === 'object' && 'view' in open && <View set={open.view} domain={d} onSPF={() => setOpen('spf')} onClose={close} />}
    </>
  )
}

function isSPF(r: RecordSet): boolean {
  return r.source === 'managed' && r.name === '@' && r.type === 'TXT' && r.values.some((v) => v.startsWith('"v=spf1'))
}

type EdgeState = Pick<Schemas['CustomDNSRecord'], 'status' | 'error'>

/** Which custom record sets are not at the DNS provider yet, and why. */
function useEdgeStates(d: Domain, atEdge: boolean): Map<string, EdgeState> {
  const list = useQuery('list_custom_dns_records', { domain_id: d.id }, { kinds: ['record', 'domain'], when: atEdge })
  return useMemo(() => {
    const out = new Map<string, EdgeState>()
    for (const r of list.data?.records ?? []) if (r.status !== 'active' && out.get(keyOf(r))?.status !== 'error') out.set(keyOf(r), r)
    return out
  }, [list.data])
}

/** Saves the zone as a file. */
async function download(d: Domain) {
  const response = await fetched(`/v1/domains/${d.id}/zone`, { headers: { Accept: 'text/dns' } })
  const url = URL.createObjectURL(await response.blob())
  Object.assign(document.createElement('a'), { href: url, download: d.domain + '.zone' }).click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}

const byName = new Intl.Collator(undefined, { numeric: true })

/** The domain itself first, then by name and type. */
function order(a: RecordSet, b: RecordSet): number {
  return Number(b.name === '@') - Number(a.name === '@') || byName.compare(a.name, b.name) || byName.compare(a.type, b.type)
}

interface ListProps { zone: Schemas['Zone']; domain: Domain; states: Map<string, EdgeState>; onOpen: (open: Open) => void; reload: () => Promise<void>; live: boolean; onLive?: (live: boolean) => void }

function List({ zone, domain: d, states, onOpen, reload, live, onLive }: ListProps) {
  const q = (params.value.get('q') ?? '').toLowerCase(), type = params.value.get('type') ?? '', source = params.value.get('source') ?? ''
  const sorted = useMemo(() => [...zone.records].sort(order), [zone])
  const found = useMemo(() => sorted.filter((r) => (!type || r.type === type) && (!source || r.source === source)
    && (!q || fqdn(r.name, d.domain).includes(q) || r.name.includes(q) || r.values.some((v) => shown(r.type, v).toLowerCase().includes(q)))), [sorted, q, type, source])
  const present = useMemo(() => [...new Set([...type ? [type] : [], ...zone.records.map((r) => r.type)])].sort(), [zone, type])
  const clear = () => setParams({ q: '', type: '', source: '' })
  return (
    <>
      <div class="zone-filters">
        <SearchField label="Search by name or value" />
        <Select label="Type" hideLabel value={type} onChange={(type) => setParams({ type })} options={[['', 'All types'], ...present.map((t) => [t, t] as const)]} />
        <Select label="Source" hideLabel value={source} onChange={(source) => setParams({ source })} options={filters.filter(([id]) => id !== 'foreign' || live)} />
        <span class="muted small" role="status">{found.length < sorted.length ? `${count(found.length)} of ${count(sorted.length)} record sets` : plural(sorted.length, 'record set')}</span>
        {onLive && <Check checked={live} onChange={onLive} label="Also show other records at the DNS provider" />}
      </div>
      <div class="zone-head" aria-hidden="true"><span>Name</span><span>Type</span><span>Value</span><span>TTL</span><span>Source</span></div>
      <LongList pages={whole(found, reload)} idOf={(r) => r.source + ' ' + keyOf(r)} height={50} narrowHeight={74} label="Record sets"
        row={(r) => <Row set={r} domain={d} state={r.source === 'custom' ? states.get(keyOf(r)) : undefined} onOpen={onOpen} reload={reload} />}
        empty={sorted.length === 0 ? <Empty icon="globe" title="No records yet">The records are being prepared. They appear here in a moment.</Empty>
          : <Empty icon="search" title={source === 'custom' && !q && !type ? 'No custom records yet' : 'No records match'} action={<Button onClick={clear}>Show all records</Button>}>
            {source === 'custom' && !q && !type && 'Mail works without them. Add a record when another service asks for one, such as a TXT record for verification.'}
          </Empty>} />
    </>
  )
}

function Row({ set: r, domain: d, state, onOpen, reload }: { set: RecordSet; domain: Domain; state?: EdgeState; onOpen: (open: Open) => void; reload: () => Promise<void> }) {
  const own = r.source === 'custom' && can('set_zone_records')
  const [tone, label] = state ? state.status === 'error' ? ['bad', 'Failed'] as const : ['info', 'Pending'] as const : sources[r.source]
  const values = r.values.map((v) => shown(r.type, v))
  return (
    <div class="line zone-row">
      <code class="zone-name truncate" title={fqdn(r.name, d.domain)}>{r.name}</code>
      <span class="zone-type mono">{r.type}</span>
      <span class="zone-value"><code class="truncate" title={values.join('\n')}>{values[0]}</code>{values.length > 1 && <span class="muted small nowrap">+{values.length - 1}</span>}</span>
      <span class="zone-ttl muted small nowrap">{seconds(r.ttl)}</span>
      <span class="zone-source"><Badge tone={tone} plain={!state}>{label}</Badge></span>
      <span class="domains-actions">
        {own ? <IconButton look="ghost" small icon="pencil" label={`Edit ${r.type} ${r.name}`} onClick={() => onOpen({ edit: r })} />
          : <IconButton look="ghost" small icon="eye" label={`View ${r.type} ${r.name}`} onClick={() => onOpen({ view: r })} />}
        {own && can('delete_zone_records') && <IconButton look="ghost" small icon="trash" label={`Delete ${r.type} ${r.name}`} onClick={() => remove(r, d, reload)} />}
      </span>
    </div>
  )
}

async function remove(r: RecordSet, d: Domain, reload: () => Promise<void>) {
  await call('delete_zone_records', { domain_id: d.id, name: r.name, type: r.type })
  undoable(d, `${plural(r.values.length, `${r.type} record`)} of ${fqdn(r.name, d.domain)} deleted.`, (c) => c.kind === 'delete' && c.name === r.name && c.type === r.type, reload)
  await reload().catch(failed)
}

/** A record set that cannot be edited here. */
function View({ set: r, domain: d, onSPF, onClose }: { set: RecordSet; domain: Domain; onSPF: () => void; onClose: () => void }) {
  const dmarc = r.name === '_dmarc' && r.type === 'TXT'
  return (
    <Dialog title={`${r.type} ${r.name}`} onClose={onClose}>
      <div class="stack">
        <p class="muted">{r.source === 'managed' ? 'Mailstead manages these records.' : r.source === 'foreign' ? 'Edit these records at the DNS provider.' : 'The account’s owner or an admin can edit these.'}</p>
        <CopyFields of={[['Name', fqdn(r.name, d.domain)], ['Type', r.type], ...r.values.map((v, i): [string, string] => [r.values.length > 1 ? `Value ${i + 1}` : 'Value', shown(r.type, v)]), ['TTL', String(r.ttl), seconds(r.ttl)]]} />
        {r.source === 'managed' && (isSPF(r) && can('set_spf') || dmarc && can('set_dmarc')) && (
          <div class="form-actions">{dmarc ? <LinkButton icon="pencil" href={`/domains/${d.id}/dmarc`}>Edit DMARC policy</LinkButton> : <Button icon="pencil" onClick={onSPF}>Edit SPF record</Button>}</div>
        )}
      </div>
    </Dialog>
  )
}

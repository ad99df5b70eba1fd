// The records that a domain needs, what is seen of them from outside, and what to do about those that are wrong.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Button, Card, Code, Copyable, Facts, Icon, Notice, Show, Time, told } from '../../ui'
import type { TabProps } from './types'
import { isInTheWay, ProviderPlan } from './conflict'
import { Found } from './next'
import { CopyFields, RecordFields } from './parts'
import { isInUse } from './scan'
import { useDnsStatus } from './status'
import { adviceOf, byApi, byNeed, faultOf, providerNames, purposeOf, type DnsRecord, type DnsStatus, type Domain } from './words'

export function Dns({ domain: d, reload }: TabProps) {
  const status = useDnsStatus(d)
  const look = async () => {
    if (d.dns_provider === 'manual' && can('verify_dns') && d.status === 'pending_dns_records') await call('verify_dns', { domain_id: d.id })
    await status.look()
    await reload()
    told('DNS records checked.')
  }
  if (d.status === 'deleting') return <Notice>This domain is being deleted.</Notice>
  return (
    <>
      {d.dns_provider === 'builtin' && <Nameservers domain={d} status={status.data} reload={reload} />}
      <Card flush title="DNS records" actions={<Button small icon="refresh" onClick={look}>Check now</Button>}
        note={<>{introOf(d)} {status.data?.checked_at && <>Last checked <Time of={status.data.checked_at} />{status.data.next_check_at && <>, next check <Time of={status.data.next_check_at} /></>}</>}</>}>
        <Show of={status} lines={6}>{(s) => <Records status={s} domain={d} />}</Show>
      </Card>
      {byApi(d.dns_provider) && !isInTheWay(d) && <ProviderPlan domain={d} />}
      {d.dns_provider === 'manual' && <ByHand domain={d} status={status} />}
      {d.dnssec && <Dnssec domain={d} of={d.dnssec} />}
      <Dkim domain={d} status={status.data} />
    </>
  )
}

function introOf(d: Domain): string {
  if (d.dns_provider === 'builtin') return 'Mailstead’s nameservers publish these records. No action needed.'
  if (byApi(d.dns_provider)) return `Mailstead publishes these records at your DNS provider (${providerNames[d.dns_provider]}). The status is what DNS resolvers see.`
  return 'Add these records at your DNS provider.'
}

function Nameservers({ domain: d, status, reload }: { domain: Domain; status?: DnsStatus; reload: () => unknown }) {
  const [check, setCheck] = useState<Schemas['NameserverCheck']>()
  const look = async () => {
    const { domains } = await call('check_nameservers', { domains: [d.domain] })
    setCheck(domains[0])
    await reload()
  }
  const expected = status?.nameservers.expected ?? d.nameservers
  const actual = check?.current_ns.length ? check.current_ns : status?.nameservers.actual ?? []
  const ok = d.ns_status === 'verified'
  return (
    <Card title={<span class="row">Nameservers <Badge tone={ok ? 'ok' : d.ns_status === 'lost' ? 'bad' : 'warn'}>{ok ? 'Verified' : d.ns_status === 'lost' ? 'Changed' : 'Not set'}</Badge></span>}
      note={!ok && isInUse(d) ? <>Set these at your registrar once <a href={`/domains/${d.id}`}>Overview</a> says so, since the domain is in use.</> : 'Set these at your registrar, so that Mailstead answers DNS queries for the domain.'}
      actions={can('check_nameservers') && <Button small icon="refresh" onClick={look}>Check now</Button>}>
      <div class="stack">
        <CopyFields of={expected.map((ns, i) => [`Nameserver ${i + 1}`, ns])} />
        {(check || !ok) && <Found expected={expected} actual={actual} message={check?.message} />}
      </div>
    </Card>
  )
}

function Records({ status: s, domain: d }: { status: DnsStatus; domain: Domain }) {
  if (s.records.length === 0) return <p class="line muted">The records are being prepared. They appear here in a moment.</p>
  return (
    <div>
      <div class="domains-records-head" aria-hidden="true"><span>Record</span><span>Type</span><span>Name</span><span>Expected value</span><span>Status</span></div>
      {byNeed(s.records).map((r, i) => <RecordLine key={r.purpose + r.type + r.host + r.expected} record={r} domain={d} open={i === 0 && !r.verified} />)}
    </div>
  )
}

function RecordLine({ record: r, domain: d, open }: { record: DnsRecord; domain: Domain; open: boolean }) {
  const p = purposeOf(r.purpose, d)
  const tone = r.verified ? 'ok' : r.error === 'lookup_failed' ? 'none' : r.critical ? 'bad' : 'warn'
  return (
    <details class="domains-record" open={open}>
      <summary>
        <span class="domains-record-name"><Icon name="next" /> <strong>{p.name}</strong></span>
        <span class="mono">{r.type}</span>
        <span class="mono truncate">{r.host}</span>
        <span class="mono truncate muted">{r.expected}</span>
        <Badge tone={tone}>{r.verified ? 'Verified' : faultOf(r)}</Badge>
      </summary>
      <div class="stack">
        <p class="muted">{p.about}{!r.critical && ' Optional, but recommended.'}</p>
        {!r.verified && <p><strong>{adviceOf(r, d)}</strong></p>}
        <RecordFields record={r} domain={d} found={!r.verified} />
        {r.verified && r.actual !== null && r.actual !== r.expected && <p class="small"><span class="muted">Found:</span> <code>{r.actual}</code></p>}
      </div>
    </details>
  )
}

/** The records of a domain whose DNS is elsewhere, as a list and as a file that many providers take. */
function ByHand({ domain: d, status }: { domain: Domain; status: ReturnType<typeof useDnsStatus> }) {
  const records = useQuery('get_dns_records', { domain_id: d.id }, { only: (c) => c.id === d.id })
  const missing = (r: Schemas['ManualRecord'], all: DnsRecord[]) => !all.some((s) => s.verified && s.type === r.type && s.host === r.host && s.purpose === r.purpose)
  const file = (wanted: Schemas['ManualRecord'][]) => wanted.length === 0 ? <p class="muted">All records are there.</p> : <Code label="Zone file" text={zoneFile(wanted, d.domain)} />
  return (
    <Card title="Zone file" note="The records that are not there yet. Many DNS providers can import them at once from a zone file. Remove old records that they replace.">
      <Show of={status} lines={4}>
        {(s) => <Show of={records} lines={4}>
          {(r) => r.records === null ? <p class="muted">The records are being prepared. This takes a few seconds.</p> : file(r.records.filter((one) => missing(one, s.records)))}
        </Show>}
      </Show>
    </Card>
  )
}

function zoneFile(records: Schemas['ManualRecord'][], domain: string): string {
  const name = (host: string) => (host === '@' ? domain : `${host}.${domain}`) + '.'
  return records.map((r) => [name(r.host), r.ttl, 'IN', r.type, valueOf(r)].join(' ')).join('\n')
}

function valueOf(r: Schemas['ManualRecord']): string {
  const value = r.type === 'TXT' ? (r.value.match(/[^]{1,255}/g) ?? ['']).map((part) => JSON.stringify(part)).join(' ') : r.type === 'CNAME' || r.type === 'MX' || r.type === 'SRV' ? dotted(r.value) : r.value
  return r.priority === null ? value : `${r.priority} ${value}`
}

function dotted(name: string): string {
  return name.endsWith('.') ? name : name + '.'
}

const dnssecWords = {
  secure: ['ok', 'On', 'DNSSEC is active: resolvers can verify DNS answers for this domain.'],
  unpublished: ['none', 'Off', 'Optional. To turn DNSSEC on, add this DS record at your registrar, under “DNSSEC”. It protects DNS answers for this domain from forgery.'],
  bogus: ['bad', 'Wrong DS record', 'The DS record at your registrar does not match, so validating resolvers can’t resolve the domain. Replace it with this one, or delete it there.'],
  unknown: ['none', 'Not checked yet', 'Optional. To turn DNSSEC on, add this DS record at your registrar, under “DNSSEC”. It protects DNS answers for this domain from forgery.'],
} as const

/** The same until the domain's nameservers are Mailstead's: this DS record would break it at those of others. */
const laterDs = 'Optional. Add this DS record at your registrar only after the nameservers have changed: until then it would break the domain.'
const beforeSwitch = {
  secure: laterDs, unpublished: laterDs, unknown: laterDs,
  bogus: 'Your registrar has a DS record of the present nameservers. Delete it there before you change the nameservers, and wait as the overview says. Add this one after the change.',
} as const

function Dnssec({ domain: d, of: s }: { domain: Domain; of: NonNullable<Domain['dnssec']> }) {
  const [tone, label, text] = d.ns_status !== 'pending' ? dnssecWords[s.status] : ['none', 'Later', beforeSwitch[s.status]] as const
  return (
    <Card title={<span class="row">DNSSEC <Badge tone={tone}>{label}</Badge></span>} note={text}>
      <div class="stack">
        {s.ds.map((ds) => (
          <CopyFields key={ds.value} of={[
            ['DS record', ds.value], ['Key tag', String(ds.key_tag)], ['Algorithm', String(ds.algorithm), ds.algorithm === 13 && 'ECDSA P-256 with SHA-256'],
            ['Digest type', String(ds.digest_type), ds.digest_type === 2 && 'SHA-256'], ['Digest', ds.digest],
          ]} />
        ))}
        <details><summary>My registrar asks for the DNSKEY instead</summary><CopyFields of={[['DNSKEY', s.dnskey]]} /></details>
      </div>
    </Card>
  )
}

function Dkim({ domain: d, status }: { domain: Domain; status?: DnsStatus }) {
  const keys = status?.records.filter((r) => r.purpose === 'DKIM') ?? []
  if (!d.dkim_selector || keys.length === 0) return null
  return (
    <Card title="DKIM keys" note="All mail sent from this domain is signed with these keys. The private keys never leave this server.">
      <Facts of={keys.map((k) => [k.expected.includes('ed25519') ? 'Ed25519' : 'RSA', <Copyable text={`${k.host}.${d.domain}`} label="Copy name" />])} />
    </Card>
  )
}

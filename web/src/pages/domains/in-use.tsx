// A domain that is in use elsewhere: what it has now, what stays and what changes, and how to go back.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { go } from '../../router'
import { ask, Button, Card, Check, Dialog, Facts, Form, Notice, plural, TextArea, theirList, theirs, told, Wrong } from '../../ui'
import { CopyFields } from './parts'
import { ChangeTable, PlanPreview, usePlan, type Change } from './plan'
import { isHere, isUnread, lasting, obstacleOf, obstaclesOf, readAgain, useScan, type Scan } from './scan'
import { isSwitched, Switch } from './switch'
import type { TabProps } from './types'
import { byApi, providerNames, type Domain } from './words'
import { keyOf, kinds, shown } from './zone-values'

/** The ID of the place where present records are imported. */
export const importPlace = 'import'

export function InUse(props: TabProps) {
  const { domain: d } = props
  const scan = useScan(d)
  return (
    <>
      {isSwitched(d) && <Switch domain={d} />}
      <Current domain={d} scan={scan} />
      <Obstacles domain={d} scan={scan} />
      {scan.result && scan.result.method !== 'none' && <Changes of={scan.result} domain={d} />}
      {scan.id && scan.result && scan.result.method !== 'none' && can('import_zone') && <Import key={scan.id} {...props} id={scan.id} scan={scan.result} />}
      {d.previous_nameservers.length > 0 && <GoBack domain={d} />}
    </>
  )
}

const methods: Record<Scan['method'], string> = {
  axfr: 'Complete: the nameservers allowed a zone transfer', nsec: 'Complete: the signed zone was walked', questions: 'Usual names and types: some records can be missing', none: 'No nameserver answered',
}

function Current({ domain: d, scan }: { domain: Domain; scan: ReturnType<typeof useScan> }) {
  const r = scan.result, here = isHere(d)
  const site = r?.records.filter((s) => s.name === '@' && ['A', 'AAAA', 'CNAME', 'ALIAS'].includes(s.type)).flatMap((s) => s.values) ?? []
  return (
    <Card title="DNS elsewhere" note="What the domain has at its other nameservers." actions={can('scan_zone') && !isUnread(scan) && <Button small icon="refresh" busy={scan.running} onClick={() => readAgain(d, scan)}>Read again</Button>}>
      {scan.running ? <p class="muted" role="status">They are being read now.</p>
        : scan.failed ? <Notice tone="warn"><Wrong of={scan.failed} /></Notice>
        : !r ? <p class="muted">The records have not been read yet.</p>
        : isUnread(scan) ? <Notice tone="warn">None of these nameservers answered: {theirList(r.nameservers)}.</Notice>
        : <Facts of={[
          ['Nameservers', theirList(r.nameservers) || 'none'],
          ['Website', <>{site.length > 0 ? theirList(site) : 'none'} <span class="muted">{d.apex?.mode === 'elsewhere' ? '(stays)' : d.apex?.mode === 'undecided' ? '(not known yet)' : here ? '(visitors come to Mailstead now)' : '(visitors will come to Mailstead)'}</span></>],
          ['Mail', <>{theirList(r.mx.map((m) => m.host)) || 'none'} <span class="muted">{d.mx?.mode === 'elsewhere' ? '(stays for now)' : here ? '(mail comes to Mailstead now)' : '(mail will come to Mailstead)'}</span></>],
          ['Records', plural(r.records.reduce((n, s) => n + s.values.length, 0), 'value')],
          ['Result', methods[r.method]],
          ['Wait after the change', r.ttl.ns !== null && `Up to ${lasting(r.ttl.ns)}: until then, some resolvers still ask the old nameservers`],
          ['Changed records', r.ttl.longest_changed !== null && `Resolvers keep old values for up to ${lasting(r.ttl.longest_changed)}`],
          ['DS records', r.ttl.ds !== null && `Resolvers keep them for up to ${lasting(r.ttl.ds)}`],
        ]} />}
    </Card>
  )
}

/** What would break beside what the next step tells. */
export function Obstacles({ domain: d, scan }: { domain: Domain; scan?: ReturnType<typeof useScan> }) {
  const issue = d.dns_health.issues[0]
  const told = (d.status === 'complete' && issue !== undefined && obstacleOf(issue) !== undefined) || (d.status === 'pending_ns' && d.ns_status !== 'verified' && scan?.known && !scan.running && d.apex?.mode !== 'undecided')
  const all = obstaclesOf(d), first = told && (all.find((o) => !o.advice) ?? (d.status === 'complete' && all[0]))
  const found = all.filter((o) => o !== first)
  if (found.length === 0) return null
  return <Card title={first ? 'What else would break' : 'What would break'}><div class="stack-tight">{found.map((o) => <Notice key={o.title} tone={o.first ? 'bad' : 'warn'} title={o.title + '.'}>{theirs(o.text)}</Notice>)}</div></Card>
}

interface Row extends Change { now: string[]; after: string[] | string }

/** A row with the values as their owner enters them: texts without quotes. */
function plainly(r: Row): Row {
  const plain = (values: string[]) => values.map((value) => shown(r.type, value))
  return { ...r, now: plain(r.now), after: typeof r.after === 'string' ? r.after : plain(r.after) }
}

const results: Record<Scan['ours'][number]['action'], Row['result']> = { keep: ['none', 'Stays'], replace: ['warn', 'Changes'], merge: ['info', 'Combined'] }
const byImport: Row['result'] = ['none', 'By import']
const leftOut: Row['result'] = ['warn', 'Left out']
const managedLater = ['_mta-sts', 'mta-sts', '_smtp._tls'] // Mailstead has its own of these once mail comes here
const same = 'the same, if imported'
const mostRows = 100

/** Tells whether records of a type can be imported. */
function isKnown(type: string): boolean {
  return type in kinds || type === 'ALIAS' || type === 'ANAME'
}

function Changes({ of, domain: d }: { of: Scan; domain: Domain }) {
  const mailStays = d.mx?.mode === 'elsewhere'
  const told = new Set(of.ours.flatMap((o) => o.theirs.map((value) => `${o.name} ${o.type} ${value}`)))
  const rows: Row[] = [
    ...of.ours.map((o): Row => {
      const { name, type, theirs: now } = o
      if (mailStays && name === '@' && type === 'MX') return { name, type, now, after: now, result: ['none', 'Stays for now'] }
      if (now.length === 0) return { name, type, now, after: o.ours, result: ['ok', 'Added'] }
      if (o.action === 'merge') return { name, type, now, after: 'one record with yours and Mailstead’s, if imported', result: results.merge }
      if (o.action === 'keep' && now.join() !== o.ours.join()) return { name, type, now, after: same, result: byImport }
      return { name, type, now, after: o.ours, result: results[o.action] }
    }),
    ...of.records.map((s) => ({ ...s, values: s.values.filter((value) => !told.has(`${s.name} ${s.type} ${value}`)) })).filter((s) => s.values.length > 0).map((s): Row => {
      const { name, type, values: now } = s
      if (name === '@' && type === 'NS') return { name, type, now, after: d.nameservers, result: results.replace }
      if (!isKnown(type)) return { name, type, now, after: 'not supported', result: leftOut }
      if (managedLater.includes(name)) return { name, type, now, after: mailStays ? 'none until the mail comes here' : 'Mailstead’s own', result: leftOut }
      const proxied = of.proxied.filter((p) => p.name === name && p.type === type).map((p) => p.value)
      if (now.every((value) => proxied.includes(value))) return { name, type, now, after: 'none, unless imported with the addresses of the proxy', result: leftOut }
      return { name, type, now, after: same, result: byImport }
    }),
  ]
  const changed = rows.filter((r) => ['Added', 'Changes', 'Combined'].includes(r.result[1])).length, left = rows.filter((r) => r.result === leftOut).length
  return (
    <Card flush title="What stays and what changes" note={`${plural(changed, 'record')} ${changed === 1 ? 'is' : 'are'} added or changed${left > 0 ? `, ${left} left out` : ''}. All others are the same once they are imported.`}>
      <details>
        <summary class="domains-inuse-all">Show {plural(rows.length, 'record')}</summary>
        <ChangeTable label="What stays and what changes" of={rows.slice(0, mostRows).map(plainly)} />
        {rows.length > mostRows && <p class="line muted">And {rows.length - mostRows} more.</p>}
      </details>
    </Card>
  )
}

type Imported = Schemas['ZoneImported']

function Import({ domain: d, reload, id, scan }: TabProps & { id: string; scan: Scan }) {
  const [trial, setTrial] = useState<Imported>()
  const [anyway, setAnyway] = useState(false)
  const [left, setLeft] = useState<string[]>([])
  const importing = (more: object) => call('import_zone', { domain_id: d.id, scan: id, accept: anyway ? scan.proxied.map((p) => p.value) : undefined, ...more })
  const look = async () => {
    setLeft([])
    setTrial(await importing({ dry_run: true }))
  }
  const carryOut = async () => {
    const exclude = trial!.records.filter((r) => left.includes(keyOf(r))).map(({ name, type }) => ({ name, type }))
    const done = await importing({ exclude: exclude.length > 0 ? exclude : undefined })
    told(none ? 'Records left out.' : `${plural(done.imported, 'value')} imported.`)
    setTrial(undefined)
    await reload()
  }
  const waits = d.dns_health.issues.some((i) => obstacleOf(i)?.place === 'import')
  const none = trial && trial.merged.length === 0 && trial.records.length > 0 && trial.records.every((r) => left.includes(keyOf(r)))
  return (
    <div id={importPlace} tabIndex={-1}><Card title="Import the present records" note={waits ? 'Website, verification and other records are copied. Records that Mailstead manages are left out.' : 'All records that can be imported are here, or were left out.'}>
      <div class="stack">
        {scan.proxied.length > 0 && <Check label="Import addresses of the proxy too" checked={anyway} onChange={(on) => { setAnyway(on); setTrial(undefined) }} hint={<>{theirList(scan.proxied.slice(0, 5).map((p) => `${p.name}: ${p.value}`))}. They usually stop working once DNS is here.</>} />}
        {!trial ? <div class="row"><Button look={waits ? 'primary' : undefined} onClick={look}>Preview import</Button></div> : (
          <Form onSubmit={carryOut} submit={none ? 'Leave all out' : trial.imported > 0 || trial.merged.length > 0 ? 'Import' : 'Nothing to import'} disabled={trial.imported === 0 && trial.merged.length === 0} actions={<Button onClick={() => setTrial(undefined)}>Cancel</Button>}>
            <p role="status">{plural(trial.imported, 'value')} to import, {plural(trial.skipped.length, 'record')} left out.</p>
            {trial.records.length > 0 && (
              <fieldset class="domains-choice stack-tight">
                <legend>Records</legend>
                {trial.records.slice(0, mostRows).map((r) => {
                  const key = keyOf(r)
                  return <Check key={key} label={<><strong>{r.type}</strong> <code>{theirs(r.name)}</code></>} hint={theirList(r.values.map((value) => shown(r.type, value)))} checked={!left.includes(key)} onChange={(on) => setLeft(on ? left.filter((l) => l !== key) : [...left, key])} />
                })}
                {trial.records.length > mostRows && <p class="muted">And {trial.records.length - mostRows} more.</p>}
              </fieldset>
            )}
            {trial.merged.length > 0 && <div class="domains-inuse"><strong>Combined with Mailstead’s</strong>{trial.merged.map((m) => <p key={m.name + m.type + m.value}>{m.type} <code>{m.name}</code>: <code>{theirs(m.value)}</code></p>)}</div>}
            {trial.skipped.length > 0 && (
              <details>
                <summary>Show what is left out</summary>
                <ul class="domains-list domains-inuse">{trial.skipped.slice(0, mostRows).map((s) => <li key={s.name + s.type + s.value}>{s.type} <code>{theirs(s.name)}</code>: <code>{theirs(s.value)}</code> <span class="muted">{theirs(s.reason.replace(/^[a-z0-9_]+: /, ''))}</span></li>)}</ul>
              </details>
            )}
          </Form>
        )}
      </div>
    </Card></div>
  )
}

function GoBack({ domain: d }: { domain: Domain }) {
  return (
    <Card title="Go back" note="To undo the change, set the previous nameservers again at your registrar. Do not delete the zone there until everything works.">
      <CopyFields of={d.previous_nameservers.map((ns, i) => [`Nameserver ${i + 1}`, ns])} />
    </Card>
  )
}

/** Brings mail here that is still at other servers. */
export function BringMail({ domain: d, reload, onClose }: TabProps & { onClose: () => void }) {
  const [expected, setExpected] = useState('')
  const plan = usePlan(d.domain, d.dns_credential_id ?? '', true, byApi(d.dns_provider) && can('preview_dns_plan'), 'here')
  const bring = async () => {
    const addresses = expected.split(/[\s,;]+/).filter(Boolean)
    const done = await call('update_domain', { domain_id: d.id, mx: { mode: 'here', expected_addresses: addresses.length > 0 ? addresses : undefined }, replace: byApi(d.dns_provider) || undefined })
    onClose()
    told('New mail arrives here.')
    const { warnings = [] } = done
    if (warnings.length > 0) ask({ title: 'Check these next', action: 'Open mailboxes', stay: 'Later', danger: false, text: <div class="stack-tight">{warnings.map((w) => <Notice key={w.code + w.message} tone="warn">{w.message}</Notice>)}</div>, run: async () => go(`/domains/${d.id}/mailboxes`) })
    await reload()
  }
  return (
    <Dialog title={`Bring the mail of ${d.domain_unicode} here`} wide={byApi(d.dns_provider)} onClose={onClose}>
      <Form onSubmit={bring} submit="Bring mail here" of={expected} optional>
        <p>{byApi(d.dns_provider) ? `Mailstead replaces the MX records at ${providerNames[d.dns_provider]}. You can put them back later, in the settings of the domain.` : d.dns_provider === 'manual' ? 'Replace the MX records at your DNS provider after that.' : 'Mailstead replaces the MX records.'} Mail that is already at {theirList(d.mx?.hosts ?? []) || 'the other servers'} stays there.</p>
        {byApi(d.dns_provider) && d.dns_credential_id !== null && <PlanPreview of={plan} replace={false} />}
        <TextArea label="Addresses that receive mail now" name="mx.expected_addresses" value={expected} onInput={setExpected} rows={3} mono placeholder={`ann@${d.domain}`} hint="Optional. You are warned about those without a mailbox here." />
      </Form>
    </Dialog>
  )
}

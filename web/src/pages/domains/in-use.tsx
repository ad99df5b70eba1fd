// A domain that is in use elsewhere: what it has now, what stays and what changes, and how to go back.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { ask, Badge, Button, Card, Check, Dialog, Facts, Form, Notice, plural, TableWrap, TextArea, theirList, theirs, told, Wrong, type Tone } from '../../ui'
import { dnsProviders, providerOf } from '../account/dns-providers'
import { CopyFields } from './parts'
import { Values } from './plan'
import { lasting, obstacleOf, useScan, type Scan } from './scan'
import { isSwitched, Switch } from './switch'
import type { TabProps } from './types'
import type { Domain } from './words'

/** Whether the page of a domain shows what the domain has elsewhere. */
export function isInUse(d: Domain): boolean {
  return d.dns_provider === 'builtin' && d.status !== 'deleting' && (d.previous_nameservers.length > 0 || d.dns_health.issues.some((i) => obstacleOf(i)) || d.mx?.mode === 'elsewhere')
}

export function InUse(props: TabProps) {
  const { domain: d } = props
  const scan = useScan(d)
  return (
    <>
      {isSwitched(d) && <Switch domain={d} />}
      <Current domain={d} scan={scan} />
      <Obstacles domain={d} />
      {scan.result && scan.result.method !== 'none' && <Changes of={scan.result} />}
      {scan.id && scan.result && scan.result.method !== 'none' && can('import_zone') && <Import key={scan.id} {...props} id={scan.id} scan={scan.result} />}
      {d.previous_nameservers.length > 0 && <GoBack domain={d} />}
    </>
  )
}

const methods: Record<Scan['method'], string> = {
  axfr: 'Complete: the nameservers allowed a zone transfer', nsec: 'Complete: the signed zone was walked', questions: 'Usual names and types: some records can be missing', none: 'No nameserver answered',
}

function Current({ domain: d, scan }: { domain: Domain; scan: ReturnType<typeof useScan> }) {
  const again = async () => {
    await call('scan_zone', { domain_id: d.id })
    await scan.reload()
  }
  const r = scan.result
  const by = r && providerOf(r.nameservers)
  const site = r?.records.filter((s) => s.name === '@' && ['A', 'AAAA', 'CNAME', 'ALIAS'].includes(s.type)).flatMap((s) => s.values) ?? []
  return (
    <Card title="DNS elsewhere" note="What the domain has at its other nameservers." actions={can('scan_zone') && <Button small icon="refresh" busy={scan.running} onClick={again}>Read again</Button>}>
      {scan.running ? <p class="muted" role="status">Reading the present records. This can take a few minutes.</p>
        : scan.failed ? <Notice tone="warn"><Wrong of={scan.failed} /></Notice>
        : !r ? <p class="muted">The records have not been read yet.</p>
        : <Facts of={[
          ['Nameservers', <>{theirList(r.nameservers) || 'none'}{by && <span class="muted"> ({dnsProviders[by].name})</span>}</>],
          ['Website', <>{site.length > 0 ? theirList(site) : 'none'} <span class="muted">{d.apex?.mode === 'elsewhere' ? '(stays)' : d.apex?.mode === 'undecided' ? '(not known yet)' : '(comes to this server)'}</span></>],
          ['Mail', <>{theirList(r.mx.map((m) => m.host)) || 'none'} <span class="muted">{d.mx?.mode === 'elsewhere' ? '(stays for now)' : '(comes here)'}</span></>],
          ['Records', plural(r.records.reduce((n, s) => n + s.values.length, 0), 'value')],
          ['Read by', methods[r.method]],
          ['Wait after the switch', r.ttl.ns !== null && `Up to ${lasting(r.ttl.ns)}: so long resolvers can use the old nameservers`],
          ['Changed records', r.ttl.longest_changed !== null && `Resolvers keep the old ones up to ${lasting(r.ttl.longest_changed)}`],
          ['DS records', r.ttl.ds !== null && `Resolvers keep them up to ${lasting(r.ttl.ds)}`],
        ]} />}
    </Card>
  )
}

function Obstacles({ domain: d }: { domain: Domain }) {
  const found = d.dns_health.issues.map((i) => obstacleOf(i)).filter((o) => o !== undefined)
  if (found.length === 0) return null
  return <Card title="What would break"><div class="stack-tight">{found.map((o) => <Notice key={o.title} tone={o.first ? 'bad' : 'warn'} title={o.title + '.'}>{theirs(o.text)}</Notice>)}</div></Card>
}

interface Row { name: string; type: string; now: string[]; after: string[] | null; result: [Tone, string] }

const results: Record<Scan['ours'][number]['action'], Row['result']> = { keep: ['none', 'Stays'], replace: ['warn', 'Changes'], merge: ['info', 'Combined'] }
const mostRows = 100

function Changes({ of }: { of: Scan }) {
  const ours = new Set(of.ours.map((o) => o.name + ' ' + o.type))
  const rows: Row[] = [
    ...of.ours.map((o): Row => ({ name: o.name, type: o.type, now: o.theirs, after: o.action === 'keep' && o.theirs.length > 0 ? o.theirs : o.ours, result: o.theirs.length === 0 ? ['ok', 'Added'] : results[o.action] })),
    ...of.records.filter((s) => !ours.has(s.name + ' ' + s.type)).map((s): Row => ({ name: s.name, type: s.type, now: s.values, after: null, result: ['none', 'By import'] })),
  ]
  const changed = rows.filter((r) => r.result[1] !== 'Stays' && r.result[1] !== 'By import').length
  return (
    <Card flush title="What stays and what changes" note={`${plural(changed, 'record')} of mail change. All others are the same once they are imported.`}>
      <details>
        <summary class="domains-inuse-all">Show {plural(rows.length, 'record')}</summary>
        <TableWrap label="What stays and what changes">
          <table class="table folds">
            <thead><tr><th>Record</th><th>Now</th><th>After</th><th>Result</th></tr></thead>
            <tbody>
              {rows.slice(0, mostRows).map((r) => (
                <tr key={r.name + r.type}>
                  <td class="breaks"><strong>{r.type}</strong> <code>{theirs(r.name)}</code></td>
                  <td data-label="Now" class="breaks"><Values of={r.now} /></td>
                  <td data-label="After" class="breaks">{r.after ? <Values of={r.after} /> : <span class="muted">the same, if imported</span>}</td>
                  <td data-label="Result"><Badge tone={r.result[0]} plain>{r.result[1]}</Badge></td>
                </tr>
              ))}
            </tbody>
          </table>
        </TableWrap>
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
    const exclude = trial!.records.filter((r) => left.includes(r.name + ' ' + r.type)).map(({ name, type }) => ({ name, type }))
    const done = await importing({ exclude: exclude.length > 0 ? exclude : undefined })
    told(`${plural(done.imported, 'value')} imported.`)
    setTrial(undefined)
    await reload()
  }
  return (
    <Card title="Import the present records" note="Website, verification and other records are copied. Records that Mailstead manages are left out.">
      <div class="stack">
        {scan.proxied.length > 0 && <Check label="Import addresses of the proxy too" checked={anyway} onChange={(on) => { setAnyway(on); setTrial(undefined) }} hint={<>{theirList(scan.proxied.slice(0, 5).map((p) => `${p.name}: ${p.value}`))}. They usually stop working once DNS is here.</>} />}
        {!trial ? <div class="row"><Button look="primary" onClick={look}>Preview import</Button></div> : (
          <Form onSubmit={carryOut} submit={trial.imported > 0 || trial.merged.length > 0 ? 'Import' : 'Nothing to import'} disabled={trial.imported === 0 && trial.merged.length === 0} actions={<Button onClick={() => setTrial(undefined)}>Cancel</Button>}>
            <p role="status">{plural(trial.imported, 'value')} to import, {plural(trial.skipped.length, 'record')} left out.</p>
            {trial.records.length > 0 && (
              <fieldset class="domains-choice stack-tight">
                <legend>Records</legend>
                {trial.records.slice(0, mostRows).map((r) => {
                  const key = r.name + ' ' + r.type
                  return <Check key={key} label={<><strong>{r.type}</strong> <code>{theirs(r.name)}</code></>} hint={theirList(r.values)} checked={!left.includes(key)} onChange={(on) => setLeft(on ? left.filter((l) => l !== key) : [...left, key])} />
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
    </Card>
  )
}

function GoBack({ domain: d }: { domain: Domain }) {
  return (
    <Card title="Go back" note="To undo the switch, set the previous nameservers again at your registrar. Do not delete the zone there until everything works.">
      <CopyFields of={d.previous_nameservers.map((ns, i) => [`Previous nameserver ${i + 1}`, ns])} />
    </Card>
  )
}

/** Brings mail here that is still at other servers. */
export function BringMail({ domain: d, reload, onClose }: TabProps & { onClose: () => void }) {
  const [expected, setExpected] = useState('')
  const bring = async () => {
    const addresses = expected.split(/[\s,;]+/).filter(Boolean)
    const done = await call('update_domain', { domain_id: d.id, mx: { mode: 'here', expected_addresses: addresses.length > 0 ? addresses : undefined } })
    onClose()
    told('New mail arrives here.')
    const { warnings = [] } = done
    if (warnings.length > 0) ask({ title: 'Check these next', action: 'OK', danger: false, text: <div class="stack-tight">{warnings.map((w) => <Notice key={w.code + w.message} tone="warn">{w.message}</Notice>)}</div>, run: reload })
    await reload()
  }
  return (
    <Dialog title={`Bring the mail of ${d.domain_unicode} here`} onClose={onClose}>
      <Form onSubmit={bring} submit="Bring mail here">
        <p>Mailstead replaces the MX records. Mail that is already at {theirList(d.mx?.hosts ?? []) || 'the other servers'} stays there.</p>
        <TextArea label="Addresses that receive mail now" name="mx.expected_addresses" value={expected} onInput={setExpected} rows={3} mono placeholder={`ann@${d.domain}`} hint="Optional. You are warned about those without a mailbox here." />
      </Form>
    </Dialog>
  )
}

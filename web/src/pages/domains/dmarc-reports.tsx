// DMARC reports: who sent in the domain's name, and whether it passed.
import { useState } from 'preact/hooks'
import { call, type Schemas } from '../../api/client'
import { useRead } from '../../api/query'
import { Badge, Button, Card, Chart, count, Dialog, Empty, Facts, LinkButton, Notice, plural, Show, Stat, TableWrap, theirList, theirs, Time } from '../../ui'
import { ReportRow } from './report-row'
import { daysOf, type Range } from './range'
import type { Domain } from './words'

type Report = Schemas['DMARCReport']
type Row = Schemas['DMARCRecord']

const mostPages = 5 // of a hundred reports each
const listed = 10

interface Read { reports: Report[]; whole: boolean }

export function DmarcReports({ domain: d, range }: { domain: Domain; range: Range }) {
  const read = useRead<Read>(['dmarc reports', d.id, range.from, range.to, range.org].join(), async () => {
    const reports: Report[] = []
    let cursor: string | undefined
    for (let i = 0; i < mostPages; i++) {
      const page = await call('list_dmarc_reports', { domain_id: d.id, limit: 100, date_from: range.from, date_to: range.to, org: range.org || undefined, cursor })
      reports.push(...page.data)
      if (!page.pagination.cursor) return { reports, whole: true }
      cursor = page.pagination.cursor
    }
    return { reports, whole: false }
  }, { kinds: ['inbox'] })
  return (
    <Card title="DMARC results" note="What receiving servers report about mail that claims to be from this domain.">
      <Show of={read} lines={6}>{(r) => r.reports.length === 0 ? <NoReports domain={d} range={range} /> : <Figures read={r} range={range} />}</Show>
    </Card>
  )
}

function NoReports({ domain: d, range }: { domain: Domain; range: Range }) {
  if (range.org) return <Empty icon="search" title="No reports match">No reports from “{range.org}” in this period.</Empty>
  const asks = /rua=/.test(d.dmarc_override?.value ?? '')
  return (
    <Empty icon="shield" title="No reports yet" action={!asks && d.dns_provider !== 'external' && <LinkButton href={`/domains/${d.id}/dmarc`}>Request reports</LinkButton>}>
      {asks ? 'Large providers send one report per day once you send mail to their users.' : 'Receivers send reports only if the DMARC policy has a report address. Set “Send reports to” to a mailbox on this server to see charts here.'}
    </Empty>
  )
}

interface Day { passed: number; failed: number }

function byDay(reports: Report[], range: Range): Day[] {
  const days = new Map<string, Day>(daysOf(range).map((day) => [day, { passed: 0, failed: 0 }]))
  for (const r of reports) {
    const day = days.get((r.date_begin ?? r.received_at).slice(0, 10)) ?? days.get((r.date_end ?? '').slice(0, 10))
    if (!day) continue
    day.passed += r.totals.passed
    day.failed += r.totals.failed
  }
  return [...days.values()]
}

function Figures({ read: { reports, whole }, range }: { read: Read; range: Range }) {
  const sum = reports.reduce((s, r) => ({ messages: s.messages + r.totals.messages, passed: s.passed + r.totals.passed, failed: s.failed + r.totals.failed }), { messages: 0, passed: 0, failed: 0 })
  const days = byDay(reports, range)
  return (
    <div class="stack">
      {!whole && <Notice>Only the newest {count(reports.length)} reports are shown. Choose a shorter period to see all of them.</Notice>}
      <div class="stats">
        <Stat name="Messages" value={count(sum.messages)} />
        <Stat name="Passed" value={sum.messages ? `${Math.round((100 * sum.passed) / sum.messages)}%` : '–'} note={sum.messages > 0 && plural(sum.passed, 'message')} />
        <Stat name="Failed" value={count(sum.failed)} note={sum.failed > 0 ? 'spoofed, or sources not set up' : 'no action needed'} />
        <Stat name="Reports" value={count(reports.length)} note={plural(new Set(reports.map((r) => r.org_name)).size, 'reporter')} />
      </div>
      <Chart label="Messages by day" days={daysOf(range)} series={[{ name: 'Passed', values: days.map((d) => d.passed), color: '--ok', fill: true }, { name: 'Failed', values: days.map((d) => d.failed), color: '--bad' }]} />
      <Sources reports={reports} />
      <ReportList reports={reports} />
    </div>
  )
}

interface Source { ip: string; messages: number; passed: number; dkim: number; spf: number; dealt: Map<string, number>; from: Set<string> }

/** Who delivered, those whose mail failed first. */
function sourcesOf(reports: Report[]): Source[] {
  const all = new Map<string, Source>()
  for (const row of reports.flatMap((r) => r.records)) {
    let s = all.get(row.source_ip)
    if (!s) all.set(row.source_ip, s = { ip: row.source_ip, messages: 0, passed: 0, dkim: 0, spf: 0, dealt: new Map(), from: new Set() })
    s.messages += row.count
    if (row.dkim === 'pass') s.dkim += row.count
    if (row.spf === 'pass') s.spf += row.count
    if (row.dkim === 'pass' || row.spf === 'pass') s.passed += row.count
    s.dealt.set(row.disposition, (s.dealt.get(row.disposition) ?? 0) + row.count)
    for (const { domain, result } of [...row.dkim_results, ...row.spf_results]) if (result === 'pass') s.from.add(domain)
  }
  return [...all.values()].sort((a, b) => (b.messages - b.passed) - (a.messages - a.passed) || b.messages - a.messages)
}

function Sources({ reports }: { reports: Report[] }) {
  const [all, setAll] = useState(false)
  const sources = sourcesOf(reports)
  if (sources.length === 0) return null
  return (
    <section class="stack-tight">
      <h3>Sources</h3>
      <p class="muted small">If a failing source is yours, set up SPF or DKIM for it. If not, it is spoofing your domain. A message passes DMARC if either DKIM or SPF passes.</p>
      <TableWrap label="Sources">
        <table class="table folds domains-flat">
          <thead><tr><th>IP address</th><th class="number">Messages</th><th>DKIM</th><th>SPF</th><th>Action taken</th><th>Authenticated as</th></tr></thead>
          <tbody>
            {sources.slice(0, all ? undefined : listed).map((s) => (
              <tr key={s.ip}>
                <td data-label="IP address"><code>{s.ip}</code></td>
                <td data-label="Messages" class="number">{count(s.messages)}</td>
                <td data-label="DKIM"><Share part={s.dkim} of={s.messages} /></td>
                <td data-label="SPF"><Share part={s.spf} of={s.messages} /></td>
                <td data-label="Action taken">{[...s.dealt].map(([what, n]) => `${dealt[what] ?? what} ${count(n)}`).join(', ')}</td>
                <td data-label="Authenticated as" class="small">{[...s.from].slice(0, 4).join(', ') || <span class="muted">—</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableWrap>
      {!all && sources.length > listed && <div><Button small onClick={() => setAll(true)}>Show all {count(sources.length)}</Button></div>}
    </section>
  )
}

const dealt: Record<string, string> = { none: 'delivered', quarantine: 'quarantined', reject: 'rejected' }

function Share({ part, of }: { part: number; of: number }) {
  if (part === of) return <Badge tone="ok">Passed</Badge>
  if (part === 0) return <Badge tone="bad">Failed</Badge>
  return <Badge tone="warn">{Math.round((100 * part) / of)}% passed</Badge>
}

function newest(a: Report, b: Report): number {
  return (b.date_begin ?? b.received_at).localeCompare(a.date_begin ?? a.received_at)
}

function ReportList({ reports }: { reports: Report[] }) {
  const [open, setOpen] = useState<Report>()
  const [all, setAll] = useState(false)
  return (
    <section class="stack-tight">
      <h3>All reports</h3>
      <div class="rows domains-boxed">
        {[...reports].sort(newest).slice(0, all ? undefined : listed).map((r) => (
          <ReportRow key={r.id} org={r.org_name} begin={r.date_begin ?? r.received_at} trusted={r.authenticated} onOpen={() => setOpen(r)}
            text={plural(r.totals.messages, 'message')} bad={r.totals.failed > 0 ? `${count(r.totals.failed)} failed` : undefined} />
        ))}
      </div>
      {!all && reports.length > listed && <div><Button small onClick={() => setAll(true)}>Show all {count(reports.length)}</Button></div>}
      {open && <ReportDialog report={open} onClose={() => setOpen(undefined)} />}
    </section>
  )
}

function ReportDialog({ report: r, onClose }: { report: Report; onClose: () => void }) {
  return (
    <Dialog title={`DMARC report from ${r.org_name}`} onClose={onClose} wide>
      <div class="stack" tabIndex={0}>
        {!r.authenticated && <Notice tone="warn">Unverified: this report may not be from {r.org_name}. Anyone can send one.</Notice>}
        <Facts of={[
          ['Period', <><Time of={r.date_begin} form="at" /> to <Time of={r.date_end} form="at" /></>],
          ['Received', <><Time of={r.received_at} form="at" />{r.received_from && ` from ${r.received_from}`}</>],
          ['Contact', theirs(r.email)],
          ['Published policy', [r.policy.p, r.policy.testing && 'test mode', r.policy.pct < 100 && `${r.policy.pct}% of messages`, `subdomains: ${r.policy.sp}`].filter(Boolean).join(', ')],
          ['Report ID', <code>{r.report_id}</code>],
        ]} />
        <TableWrap label="Results">
          <table class="table folds domains-flat">
            <thead><tr><th>IP address</th><th class="number">Messages</th><th>From</th><th>DKIM</th><th>SPF</th><th>Action taken</th></tr></thead>
            <tbody>{r.records.map((row, i) => <RecordRow key={i} row={row} />)}</tbody>
          </table>
        </TableWrap>
        {r.records_omitted > 0 && <p class="muted small">{plural(r.records_omitted, 'more row')} counted only in the totals.</p>}
      </div>
    </Dialog>
  )
}

function RecordRow({ row }: { row: Row }) {
  const detail = (results: { domain: string; result: string }[]) => results.map((x) => `${x.domain}: ${x.result}`).join(', ')
  return (
    <tr>
      <td data-label="IP address"><code>{row.source_ip}</code></td>
      <td data-label="Messages" class="number">{count(row.count)}</td>
      <td data-label="From">{row.header_from}</td>
      <td data-label="DKIM"><Badge tone={row.dkim === 'pass' ? 'ok' : 'bad'}>{row.dkim}</Badge><div class="small muted">{detail(row.dkim_results)}</div></td>
      <td data-label="SPF"><Badge tone={row.spf === 'pass' ? 'ok' : 'bad'}>{row.spf}</Badge><div class="small muted">{detail(row.spf_results)}</div></td>
      <td data-label="Action taken">{dealt[row.disposition] ?? row.disposition}{row.reasons.length > 0 && <div class="small muted">{theirList(row.reasons.map((x) => x.comment ?? x.type))}</div>}</td>
    </tr>
  )
}

// TLS reports: whether other servers could deliver over encrypted connections.
import { useState } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { Badge, Button, Card, Chart, count, Dialog, Empty, Facts, Failure, Loading, Notice, plural, Stat, TableWrap, theirs, Time, words } from '../../ui'
import { ReportRow } from './report-row'
import { daysOf, type Range } from './range'
import type { Domain } from './words'

type Report = Schemas['TLSReport']

const listed = 10

export function TlsReports({ domain: d, range }: { domain: Domain; range: Range }) {
  const pages = usePages('list_tls_reports', { domain_id: d.id, limit: 100, date_from: range.from, date_to: range.to, org: range.org || undefined }, (r) => r.id, { kinds: ['inbox'] })
  return (
    <Card title="TLS reports" note="What sending servers report about encrypted connections when they deliver mail to you.">
      {pages.items.length > 0 ? <Figures reports={pages.items} range={range} more={pages.more} loadMore={pages.loadMore} />
        : pages.error ? <Failure error={pages.error} retry={pages.reload} />
          : pages.loading ? <Loading lines={3} />
            : <Empty icon="shield" title="No reports yet">Large providers send one report per day once they deliver mail to this domain.</Empty>}
    </Card>
  )
}

function Figures({ reports, range, more, loadMore }: { reports: Report[]; range: Range; more: boolean; loadMore: () => void }) {
  const [open, setOpen] = useState<Report>()
  const [all, setAll] = useState(false)
  const good = reports.reduce((n, r) => n + r.totals.successful, 0), bad = reports.reduce((n, r) => n + r.totals.failed, 0)
  const days = daysOf(range)
  const sorted = [...reports].sort((a, b) => (b.date_begin ?? b.received_at).localeCompare(a.date_begin ?? a.received_at))
  const of = (pick: (r: Report) => number) => days.map((day) => reports.filter((r) => (r.date_begin ?? r.received_at).slice(0, 10) === day).reduce((n, r) => n + pick(r), 0))
  return (
    <div class="stack">
      <div class="stats">
        <Stat name="Connections" value={count(good + bad)} />
        <Stat name="Encrypted" value={good + bad > 0 ? `${Math.floor((100 * good) / (good + bad))}%` : '–'} note={count(good)} />
        <Stat name="Failed" value={count(bad)} note={bad > 0 ? 'see the reports for details' : 'no action needed'} />
      </div>
      <Chart label="Connections by day" height={160} days={days} series={[{ name: 'Encrypted', values: of((r) => r.totals.successful), color: '--ok', fill: true }, { name: 'Failed', values: of((r) => r.totals.failed), color: '--bad' }]} />
      <div class="rows domains-boxed">
        {sorted.slice(0, all ? undefined : listed).map((r) => <ReportRow key={r.id} org={r.org_name} begin={r.date_begin ?? r.received_at} trusted={r.authenticated} onOpen={() => setOpen(r)} text={plural(r.totals.successful + r.totals.failed, 'connection')} bad={r.totals.failed > 0 ? `${count(r.totals.failed)} failed` : undefined} />)}
      </div>
      {(more || !all && sorted.length > listed) && <div><Button small onClick={all ? loadMore : () => setAll(true)}>Show more</Button></div>}
      {open && <ReportDialog report={open} onClose={() => setOpen(undefined)} />}
    </div>
  )
}

const kinds = { sts: 'MTA-STS', tlsa: 'DANE', 'no-policy-found': 'no MTA-STS or DANE policy' } as const

function ReportDialog({ report: r, onClose }: { report: Report; onClose: () => void }) {
  return (
    <Dialog title={`TLS report from ${r.org_name}`} onClose={onClose} wide>
      <div class="stack" tabIndex={0}>
        {!r.authenticated && <Notice tone="warn">Unverified: this report may not be from {r.org_name}. Anyone can send one.</Notice>}
        <Facts of={[
          ['Period', <><Time of={r.date_begin} form="at" /> to <Time of={r.date_end} form="at" /></>],
          ['Received', <><Time of={r.received_at} form="at" />{r.received_from && ` from ${r.received_from}`}</>],
          ['Contact', theirs(r.contact)],
          ['Report ID', <code>{r.report_id}</code>],
        ]} />
        {r.policies.map((p, i) => (
          <section key={i} class="stack-tight">
            <h3>{p.domain}: {kinds[p.type]}</h3>
            <p class="small"><Badge tone="ok">{count(p.successful)} encrypted</Badge> {p.failed > 0 && <Badge tone="bad">{count(p.failed)} failed</Badge>} {p.mx_hosts.length > 0 && <span class="muted">at {p.mx_hosts.join(', ')}</span>}</p>
            {p.failures.length > 0 && (
              <TableWrap label="Failures">
                <table class="table folds domains-flat">
                  <thead><tr><th>Failure</th><th class="number">Connections</th><th>Sending server</th><th>Receiving server</th><th>Details</th></tr></thead>
                  <tbody>
                    {p.failures.map((f, n) => (
                      <tr key={n}>
                        <td data-label="Failure">{words(f.result_type)}</td>
                        <td data-label="Connections" class="number">{count(f.sessions)}</td>
                        <td data-label="Sending server"><code>{f.sending_ip ?? '–'}</code></td>
                        <td data-label="Receiving server">{[f.mx_host, f.receiving_ip].filter(Boolean).join(', ') || '–'}</td>
                        <td data-label="Details">{theirs(f.reason) ?? '–'}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </TableWrap>
            )}
          </section>
        ))}
      </div>
    </Dialog>
  )
}

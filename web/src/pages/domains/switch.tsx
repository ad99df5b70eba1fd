// The change of a domain's nameservers: what the parent zone answers, and who asks the nameservers here.
import { useEffect, useState } from 'preact/hooks'
import { serverNow, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Card, Facts, plural, Show, theirs, Time, type Tone } from '../../ui'
import { locale } from '../../words'
import { lasting } from './scan'
import type { Domain } from './words'

type Questions = Schemas['ZoneQuestions']

const settledAfter = 14 * 86_400_000 // milliseconds from when the domain is ready until the card is folded
const askAgain = 15_000 // milliseconds between two reads of the counts

/** Whether a domain changes its nameservers, or has changed them, and the parent zone was asked. */
export function isSwitched(d: Domain): boolean {
  return d.delegation !== null && d.previous_nameservers.length > 0
}

function stateOf(d: Domain): [Tone, string] {
  const now = d.delegation!.nameservers, here = now.filter((ns) => d.nameservers.includes(ns)).length
  if (here === 0) return d.status === 'complete' ? ['bad', 'Not at Mailstead'] : ['none', 'Not switched yet']
  return here < now.length ? ['warn', 'Partly switched'] : ['ok', 'Switched']
}

export function Switch({ domain: d }: { domain: Domain }) {
  const settled = d.status === 'complete' && d.ns_status === 'verified' && d.completed_at !== null && serverNow() - Date.parse(d.completed_at) > settledAfter
  const [open, setOpen] = useState(!settled)
  const [tone, state] = stateOf(d)
  return (
    <Card title="Nameserver change" note={<>Last checked <Time of={d.delegation!.looked_at} /></>} actions={<Badge tone={tone}>{state}</Badge>}>
      {settled ? (
        <details open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
          <summary>Show nameservers and DNS queries</summary>
          {open && <div class="domains-switch-folded"><Details domain={d} /></div>}
        </details>
      ) : <Details domain={d} />}
    </Card>
  )
}

function Details({ domain: d }: { domain: Domain }) {
  const { nameservers, ds, ttl } = d.delegation!
  return (
    <div class="stack">
      <div class="domains-switch">
        <Servers title="At the registry now" of={nameservers} expected={d.nameservers} none="No nameservers" />
        <Servers title="Mailstead’s nameservers" of={d.nameservers} expected={d.nameservers} none="Not known yet" />
      </div>
      <Facts of={[
        ['TTL', ttl !== null ? `Resolvers keep the registry’s answer for up to ${lasting(ttl)}` : 'Not known: the registry’s servers did not answer, a resolver did'],
        ['DS records', ds.length > 0 && <div class="stack-tight breaks">{ds.map((r) => <code key={r}>{theirs(r)}</code>)}</div>],
      ]} />
      <Queries domain={d} />
    </div>
  )
}

function Servers({ title, of, expected, none }: { title: string; of: string[]; expected: string[]; none: string }) {
  return (
    <div class="domains-found">
      <strong>{title}</strong>
      <ul class="domains-servers">{of.length === 0 ? <li class="muted">{none}</li> : of.map((ns) => <li key={ns}><code class={expected.includes(ns) ? undefined : 'domains-wrong'}>{theirs(ns)}</code></li>)}</ul>
    </div>
  )
}

function Queries({ domain: d }: { domain: Domain }) {
  const questions = useQuery('get_zone_questions', { domain_id: d.id })
  useEffect(() => {
    const timer = setInterval(() => { if (document.visibilityState === 'visible') void questions.reload() }, askAgain)
    return () => clearInterval(timer)
  }, [d.id])
  return <Show of={questions} lines={2}>{(q) => <Counted of={q} />}</Show>
}

function Counted({ of: q }: { of: Questions }) {
  const counts = q.hours.map((h) => h.count), day = counts.reduce((sum, n) => sum + n, 0), most = Math.max(...counts)
  if (q.since === null) return <p class="muted">Mailstead does not answer DNS queries for this domain yet.</p>
  return (
    <div class="stack-tight">
      <p>
        {day > 0 ? <><strong>{plural(day, 'DNS query', 'DNS queries')}</strong> here in the last 24 hours, the last one <Time of={q.last_asked_at} />.</>
          : q.last_asked_at ? <>No DNS queries here in the last 24 hours, the last one <Time of={q.last_asked_at} />.</>
          : <>No DNS queries have arrived here yet. Resolvers come once the change has reached them.</>}
        {' '}<span class="muted">Counted since <Time of={q.since} form="at" />; Mailstead’s own checks do not count.</span>
      </p>
      {day > 0 && (
        <figure class="domains-hours" role="img" aria-label={`DNS queries by hour, most recent last: ${counts.join(', ')}`}>
          {q.hours.map((h) => <span key={h.hour} title={`${new Date(h.hour).toLocaleTimeString(locale.value, { hour: 'numeric', minute: '2-digit' })}: ${h.count}`} style={{ height: Math.max(h.count > 0 ? 6 : 1, (h.count / most) * 100) + '%' }} />)}
        </figure>
      )}
      {day > 0 && <p class="row-between muted small"><span>24 hours ago</span><span>at most {plural(most, 'query', 'queries')} an hour</span><span>now</span></p>}
    </div>
  )
}

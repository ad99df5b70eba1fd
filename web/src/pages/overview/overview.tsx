import type { Schemas } from '../../api/client'
import { can, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Bar, bytes, Card, Chart, count, Empty, Page, plural, Show, Stat, type Tone } from '../../ui'
import { locale } from '../../words'
import { deed } from '../jobs/words'
import { Attention, LimitedAttention } from './attention'
import { ServerHealth } from './health'
import { useDomains, useEndpoints, type Domain } from './read'
import { Start, useStart } from './start'

export function Overview() {
  return session.value!.limited ? <OfSome /> : <OfAll />
}

const mostMailboxes = 20

/** The overview of a member who sees some mailboxes: what is known of the whole account is not about these. */
function OfSome() {
  const mailboxes = useQuery('list_email_users', { limit: mostMailboxes, sort: 'email' })
  const { account, hostname } = session.value!
  return (
    <Page title="Overview" intro={account.name && !account.name.includes('@') ? `${account.name} on ${hostname}` : hostname}>
      <LimitedAttention />
      <Card title="Your mailboxes" flush actions={<a href="/mailboxes">All mailboxes</a>}>
        <Show of={mailboxes} lines={2}>
          {({ data }) => data.length === 0 ? <Empty icon="mail" title="No mailboxes yet">Ask the account’s owner or an admin for one.</Empty> : (
            <div class="rows">
              {data.map((u) => (
                <a key={u.id} class="line" href={`/inbox?mailbox=${encodeURIComponent(u.email)}`}>
                  <span class="grow truncate">{u.email}</span>
                  <span class="small muted nowrap">{u.unread_count > 0 ? `${count(u.unread_count)} unread` : 'Nothing unread'}</span>
                </a>
              ))}
            </div>
          )}
        </Show>
      </Card>
      <Jobs bare />
    </Page>
  )
}

function OfAll() {
  const usage = useQuery('get_usage', {})
  const start = useStart()
  const { account, hostname } = session.value!
  const quiet = usage.data && isQuiet(usage.data)
  const bare = start.shown && quiet !== false // what is empty says nothing on the first run
  return (
    <Page title="Overview" intro={account.name && !account.name.includes('@') ? `${account.name} on ${hostname}` : hostname}>
      <Start of={start} />
      <Attention usage={usage.data} />
      {!bare && <Show of={usage} lines={8}>{(u) => (quiet ? <Card title="Mail, last 30 days"><p class="muted">No mail yet</p></Card> : <Traffic usage={u} />)}</Show>}
      <div class="overview-columns">
        <div class="stack"><Jobs bare={bare} />{can('list_webhooks') && <Endpoints bare={bare} />}</div>
        <div class="stack"><ServerHealth /><DomainHealth bare={bare} />{usage.data && <Storage usage={usage.data} bare={bare} />}</div>
      </div>
    </Page>
  )
}

/** Whether there is nothing to draw: no mail came or went in the last 30 days, and none waits. */
function isQuiet({ messages, daily }: Schemas['Usage']): boolean {
  return messages.queued === 0 && daily.every((d) => d.received + d.sent + d.bounced + d.complained === 0)
}

interface Bare { bare: boolean }

function Traffic({ usage }: { usage: Schemas['Usage'] }) {
  const { messages: m, daily } = usage
  const sum = (what: 'received' | 'sent' | 'bounced' | 'complained') => daily.reduce((n, d) => n + d[what], 0)
  const series = (name: string, what: 'received' | 'sent' | 'bounced' | 'complained', color: string, fill = false) => ({ name, values: daily.map((d) => d[what]), color, fill })
  return (
    <Card title="Mail, last 30 days">
      <div class="stack">
        <div class="stats">
          <Stat name="Received" href="/inbox" value={count(sum('received'))} />
          <Stat name="Sent" href="/sent" value={count(sum('sent'))} note={`${count(m.sent_today)} today`} />
          <Stat name="Bounced" href="/sent?status=bounced" value={count(sum('bounced'))} note={share(sum('bounced'), sum('sent'))} />
          <Stat name="Complaints" href="/sent?status=complained" value={count(sum('complained'))} note={share(sum('complained'), sum('sent'))} />
          <Stat name="Queued" href="/sent?status=queued" value={count(m.queued)} />
        </div>
        <Chart days={daily.map((d) => d.date)} label="Messages, last 30 days"
          series={[series('Received', 'received', '--accent', true), series('Sent', 'sent', '--info'), series('Bounced', 'bounced', '--warn'), series('Complaints', 'complained', '--bad')]} />
      </div>
    </Card>
  )
}

function share(part: number, whole: number): string | undefined {
  if (whole === 0) return
  return (part / whole).toLocaleString(locale.value, { style: 'percent', maximumFractionDigits: 1 }) + ' of sent'
}

/** Where a domain stands, in one word. */
function standing(d: Domain): Tone {
  if (d.status === 'error' || (d.status === 'complete' && d.dns_health.status === 'failing')) return 'bad'
  if (d.status !== 'complete') return 'none'
  return d.dns_health.status === 'degraded' ? 'warn' : 'ok'
}

const standings: [Tone, string][] = [['bad', 'failing'], ['warn', 'degraded'], ['none', 'not ready'], ['ok', 'healthy']]

function DomainHealth({ bare }: Bare) {
  const domains = useDomains()
  if (bare && !domains.data?.length) return null
  return (
    <Card title="Domains" actions={<a href="/domains">All domains</a>}>
      <Show of={domains} lines={2}>
        {(all) => {
          if (all.length === 0) return <p class="muted">No domains yet</p>
          const counted = standings.map(([tone, name]) => ({ tone, name, n: all.filter((d) => standing(d) === tone).length })).filter((s) => s.n > 0)
          return (
            <div class="stack-tight">
              <div class="overview-health" aria-hidden="true">{counted.map((s) => <div key={s.tone} class={s.tone} style={{ flexGrow: s.n }} />)}</div>
              <div class="overview-legend">{counted.map((s) => <Badge key={s.tone} tone={s.tone}>{s.n} {s.name}</Badge>)}</div>
            </div>
          )
        }}
      </Show>
    </Card>
  )
}

function Storage({ usage: { storage: s }, bare }: Bare & { usage: Schemas['Usage'] }) {
  if (bare && s.messages === 0) return null
  return (
    <Card title="Storage">
      <div class="stack-tight">
        <Stat name={plural(s.messages, 'message')} value={bytes(s.used_bytes)} note={s.limit_bytes !== null && `of ${bytes(s.limit_bytes)}`} />
        {s.limit_bytes !== null && <Bar limit value={s.used_bytes} of={s.limit_bytes} label="Storage used" />}
      </div>
    </Card>
  )
}

function Jobs({ bare }: Bare) {
  const running = useQuery('list_jobs', { status: 'in_progress', limit: 6 })
  if (bare && !running.data?.data.length) return null
  return (
    <Card title="Running jobs" flush actions={<a href="/jobs">All jobs</a>}>
      <Show of={running} lines={2}>
        {({ data }) => data.length === 0 ? <Empty icon="check" title="No jobs running" /> : (
          <div class="rows">
            {data.map((j) => (
              <a key={j.id} class="line" href={`/jobs/${j.id}`}>
                <span class="grow truncate">{deed(j.type)} <span class="muted">{j.resource?.name}</span></span>
                {j.progress && <span class="overview-progress"><Bar value={j.progress.completed} of={j.progress.total} label={`Progress: ${deed(j.type)}`} /></span>}
              </a>
            ))}
          </div>
        )}
      </Show>
    </Card>
  )
}

function Endpoints({ bare }: Bare) {
  const endpoints = useEndpoints()
  if (bare && !endpoints.data?.length) return null
  return (
    <Card title="Webhooks" flush actions={<a href="/webhooks">All webhooks</a>}>
      <Show of={endpoints} lines={2}>
        {(all) => all.length === 0 ? <Empty icon="hook" title="No webhooks yet">Get an HTTP request for every event, such as a received message.</Empty> : (
          <div class="rows">
            {all.map(({ webhook: w, tried, succeeded }) => (
              <a key={w.id} class="line" href={`/webhooks/${w.id}`}>
                <span class="grow truncate mono">{w.url}</span>
                {w.status === 'disabled' ? <Badge tone="bad">disabled</Badge> : tried === 0 ? <Badge>no deliveries yet</Badge> : <Badge tone={succeeded === tried ? 'ok' : succeeded / tried > 0.9 ? 'warn' : 'bad'}>{succeeded} of {tried} delivered</Badge>}
              </a>
            ))}
          </div>
        )}
      </Show>
    </Card>
  )
}

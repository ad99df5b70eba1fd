// What became of the account's mail, and who cannot send because of it.
import { useState } from 'preact/hooks'
import { can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Card, count, Empty, Notice, Page, Select, Show, Time } from '../../ui'
import { SentTabs } from './tabs'

type Out = Schemas['Reputation']
type Windows = Out['account']['windows']
type Days = keyof Windows

const spans: [Days, string][] = [['1d', 'Last 24 hours'], ['7d', 'Last 7 days'], ['30d', 'Last 30 days']]

export function Reputation() {
  const reputation = useQuery('get_reputation', {}, { pause: 10_000 })
  const [days, setDays] = useState<Days>('7d')
  return (
    <Page title="Reputation" heading="Sent" tabs={<SentTabs current="reputation" />}
      intro="Receivers judge you by the mail they get. A mailbox or domain stops sending automatically if, within 24 hours, more than 10% of at least 50 recipients bounce, or more than 0.3% of at least 300 report spam.">
      <div class="sent-filters"><Select label="Period" value={days} onChange={setDays} options={spans} /></div>
      <Show of={reputation}>{(r) => <Report of={r} days={days} />}</Show>
    </Page>
  )
}

function Report({ of: r, days }: { of: Out; days: Days }) {
  const blocked = r.destinations.filter((d) => d.blocked)
  return (
    <>
      {blocked.map((d) => (
        <Notice key={d.operator} tone="bad" title={`${d.operator} blocks mail from this server.`}>
          {d.blocked!.advice} <span class="muted small">Seen <Time of={d.blocked!.at} />.</span>
          <code class="sent-reply">{d.blocked!.reply}</code>
        </Notice>
      ))}
      <Card title="Account"><div class="stack-tight"><Outcome of={r.account.windows[days]} /><Legend /></div></Card>
      <Card title="Mailboxes" flush>
        <Lines none="No mailbox has sent mail in the last 30 days." of={r.mailboxes.map((m) => ({ key: m.user_id, name: m.email, href: `/mailboxes/${m.user_id}`, paused: m.sending_paused, windows: m.windows }))} days={days} />
      </Card>
      <Card title="Domains" flush>
        <Lines none="No domain has sent mail in the last 30 days." of={r.domains.map((d) => ({ key: d.domain_id, name: d.domain, href: `/domains/${d.domain_id}`, paused: d.sending_paused, windows: d.windows }))} days={days} />
      </Card>
      <Card title="Receivers" note="By who runs their mail servers." flush>
        <Lines none="No mail has left in the last 30 days." of={r.destinations.map((d) => ({ key: d.operator, name: d.operator, about: d.domains.join(', '), blocked: d.blocked !== null, windows: d.windows }))} days={days} />
      </Card>
      {!can('update_email_user') && <p class="muted small">The account’s owner or an admin can resume sending.</p>}
    </>
  )
}

interface LineProps { key: string; name: string; href?: string; about?: string; paused?: Schemas['SendingPause'] | null; blocked?: boolean; windows: Windows }

function Lines({ of, days, none }: { of: LineProps[]; days: Days; none: string }) {
  if (of.length === 0) return <Empty icon="send" title={none} />
  return (
    <div class="rows">
      {of.map((l) => (
        <div key={l.key} class="line reputation-line">
          <span class="grow truncate">
            <strong>{l.href ? <a href={l.href}>{l.name}</a> : l.name}</strong>
            {l.paused && <> <Badge tone="bad">paused</Badge></>}
            {l.blocked && <> <Badge tone="bad">blocked</Badge></>}
            {l.about && <><br /><span class="muted small truncate">{l.about}</span></>}
          </span>
          <Outcome of={l.windows[days]} />
        </div>
      ))}
    </div>
  )
}

const percent = (rate: number) => `${(rate * 100).toFixed(rate > 0 && rate < 0.01 ? 2 : 1)}%`

/** What the colours of the bars stand for. */
function Legend() {
  return <p class="reputation-legend small muted" aria-hidden="true"><span><i class="reputation-key" /> Accepted</span><span><i class="reputation-key warn" /> Deferred</span><span><i class="reputation-key bad" /> Bounced or reported as spam</span></p>
}

/** A bar of what was sent, with the shares that wait for another attempt, that bounced and that were called spam. */
function Outcome({ of: w }: { of: Windows['1d'] }) {
  const words = `${count(w.sent)} recipients, ${percent(w.bounce_rate)} bounced, ${percent(w.complaint_rate)} reported as spam${w.deferred > 0 && w.sent > 0 ? `, ${percent(Math.min(1, w.deferred / w.sent))} deferred` : ''}`
  const share = (n: number) => `${w.sent ? Math.min(100, (n / w.sent) * 100) : 0}%`
  return (
    <span class="reputation-outcome">
      <span class="reputation-bar" role="img" aria-label={words}>
        <i class="warn" style={{ width: share(w.deferred) }} /><i class="bad" style={{ width: share(w.bounced + w.complained) }} />
      </span>
      <span class="small muted">{words}</span>
    </span>
  )
}

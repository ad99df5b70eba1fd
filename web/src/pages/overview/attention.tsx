// What needs the viewer, worst first, each with its one next step. For the operator, that is the
// server's health first.
import type { ComponentChildren } from 'preact'
import { can, session, type Output, type Schemas } from '../../api/client'
import { wordsOf } from '../../api/wording'
import { Card, count, Icon, plural } from '../../ui'
import { obstaclesOf } from '../domains/scan'
import { issueWords } from '../domains/words'
import { deed } from '../jobs/words'
import { nameOf, problemsOf, useHealth, withCode, type Check } from '../operator/checks'
import { disabledReasons } from '../webhooks/types'
import { useDomains, useEndpoints, useFailedJobs, type Domain, type Endpoint } from './read'

interface Item { key: string; weight: number; title: string; text: ComponentChildren; href: string; step: string; bad?: boolean }

const shown = 8
const shownOfHealth = 4

/** What is wrong with the server; the rest of a long list is one item. */
function ofHealth(checks: Check[]): Item[] {
  const problems = problemsOf(checks), rest = problems.length - shownOfHealth
  const items = problems.slice(0, rest === 1 ? undefined : shownOfHealth).map((c, i): Item => ({
    key: `health ${c.code} ${c.subject} ${i}`, weight: c.status === 'error' ? 200 : 190, title: `Server: ${nameOf(c)}`, text: withCode(c.message),
    href: c.code.startsWith('backup') ? '/backups' : '/host', step: 'See what to do', bad: c.status === 'error',
  }))
  if (rest > 1) items.push({ key: 'health', weight: 180, title: `Server: ${rest} more checks need attention`, text: [...new Set(problems.slice(shownOfHealth).map(nameOf))].join(', '), href: '/host', step: 'See all checks', bad: false })
  return items
}

/** The next step of a domain that mail does not flow through as it should; nothing if it does. */
function ofDomain(d: Domain): Item | undefined {
  const href = `/domains/${d.id}`
  const name = d.domain_unicode
  const issue = d.dns_health.issues[0]
  switch (d.status) {
    case 'error':
      return { key: d.id, weight: 90, title: `${name} setup failed`, text: d.error ? wordsOf(d.error) : 'Setup failed.', href, step: can('setup_domain') ? 'See why and set up again' : 'See why' }
    case 'pending_ns':
      return { key: d.id, weight: 60, title: `${name}: nameservers not set`, text: `${obstaclesOf(d)[0]?.title ?? 'Its page shows what to do'}. Setup continues automatically once they are set.`, href, step: 'See next step' }
    case 'pending_dns_records':
      if (d.mx?.mode === 'elsewhere') return { key: d.id, weight: 30, title: `${name}: mail is still elsewhere`, text: 'Create its mailboxes and import their mail, then bring the mail here.', href, step: 'Bring mail here' }
      return { key: d.id, weight: 60, title: `${name}: DNS records not added`, text: 'Add the records at your DNS provider. Setup then continues automatically.', href, step: 'See records' }
    case 'complete':
      if (issue && d.dns_health.status === 'failing') return { key: d.id, weight: 80, title: `${name}: DNS records are wrong`, text: issueWords(issue).text, href, step: can('setup_domain') ? 'Fix record' : 'See record' }
      if (issue && d.dns_health.status === 'degraded') return { key: d.id, weight: 50, title: `${name}: ${issueWords(issue).title}`, text: issueWords(issue).text, href, step: 'See why' }
  }
}

function ofEndpoint({ webhook: w, failing }: Endpoint): Item | undefined {
  const href = `/webhooks/${w.id}`
  if (w.status === 'disabled' && w.disabled_reason !== 'manual') {
    return { key: w.id, weight: 70, title: 'Webhook disabled', text: `${w.url}: ${disabledReasons[w.disabled_reason ?? 'consecutive_failures']}.`, href, step: can('update_webhook') ? 'Fix it and re-enable' : 'See why' }
  }
  if (w.status === 'enabled' && failing > 0) {
    return { key: w.id, weight: 40, title: 'Webhook failing', text: `${w.url}: ${failing === 1 ? 'the last delivery' : `the last ${plural(failing, 'delivery', 'deliveries')}`} failed.`, href, step: 'See deliveries' }
  }
}

function ofUsage(usage: Schemas['Usage']): Item[] {
  const items: Item[] = []
  const { sent_30d: sent, bounced_30d: bounced, complained_30d: complained } = usage.messages
  if (sent >= 100 && bounced / sent > 0.05) {
    items.push({ key: 'bounces', weight: 55, title: 'Bounce rate is high', text: `${count(bounced)} of ${plural(sent, 'message')} bounced in the last 30 days. Mail providers distrust senders above 5%.`, href: '/sent?status=bounced', step: 'See messages' })
  }
  if (sent >= 100 && complained / sent > 0.001) {
    items.push({ key: 'complaints', weight: 65, title: 'Spam complaints are high', text: `${plural(complained, 'complaint')} in the last 30 days. Above 0.1%, mail providers move your mail to spam.`, href: '/sent?status=complained', step: 'See messages' })
  }
  for (const [name, used] of Object.entries({ Domain: usage.domains, Mailbox: usage.email_users, 'Team member': usage.team_users, Webhook: usage.webhooks })) {
    if (used.limit !== null && used.limit > 0 && used.used / used.limit >= 0.9) {
      items.push({ key: 'limit ' + name, weight: 20, title: `${name} limit almost reached`, text: `${used.used} of ${used.limit} used.`, href: '/account', step: 'See limits' })
    }
  }
  return items
}

export function Attention({ usage }: { usage: Schemas['Usage'] | undefined }) {
  const domains = useDomains(), endpoints = useEndpoints(), jobs = useFailedJobs(), health = useHealth(session.value!.operator)
  const items = [...ofHealth(health.data?.checks ?? []), ...(domains.data ?? []).map(ofDomain), ...(endpoints.data ?? []).map(ofEndpoint), ...(jobs.data?.data ?? []).map(ofJob), ...(usage ? ofUsage(usage) : []), secondFactor()]
    .filter((item) => item !== undefined).sort((a, b) => b.weight - a.weight)
  return <Items of={items} />
}

/** What needs a member who sees some mailboxes: domains and the account are not theirs to mend. */
export function LimitedAttention() {
  const jobs = useFailedJobs()
  return <Items of={(jobs.data?.data ?? []).map(ofJob)} />
}

function ofJob(j: Output<'list_jobs'>['data'][number]): Item {
  return { key: j.id, weight: 45, title: `Job failed: ${deed(j.type)}`, text: j.error ? wordsOf(j.error) : '', href: `/jobs/${j.id}`, step: 'See details' }
}

function Items({ of: items }: { of: Item[] }) {
  if (items.length === 0) return null
  return (
    <Card title="Needs attention" flush>
      <div class="rows overview-attention">
        {items.slice(0, shown).map((item) => (
          <a key={item.key} class={'line' + (item.bad ?? item.weight >= 70 ? ' bad' : '')} href={item.href}>
            <Icon name="alert" />
            <span class="grow"><strong>{item.title}</strong><br /><span class="muted small">{item.text}</span></span>
            <span class="small nowrap overview-step">{item.step}</span>
            <Icon name="next" />
          </a>
        ))}
        {items.length > shown && <p class="line muted">and {items.length - shown} more</p>}
      </div>
    </Card>
  )
}

function secondFactor(): Item | undefined {
  const { user, sandbox } = session.value!
  if (sandbox || user.role === 'member' || user.totp_enabled || user.passkeys.length > 0) return
  return { key: 'totp', weight: 10, title: 'Two-factor authentication is off', text: 'A stolen password is enough to sign in to your account.', href: '/profile', step: 'Set up' }
}

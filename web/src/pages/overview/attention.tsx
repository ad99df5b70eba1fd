// What needs the viewer, worst first, each with its one next step.
import { can, session, type Schemas } from '../../api/client'
import { wordsOf } from '../../api/wording'
import { Card, Icon, plural, words } from '../../ui'
import { useDomains, useEndpoints, useFailedJobs, type Domain, type Endpoint } from './read'

interface Item { key: string; weight: number; title: string; text: string; href: string; step: string }

const shown = 8

/** The next step of a domain that mail does not flow through as it should; nothing if it does. */
function ofDomain(d: Domain): Item | undefined {
  const href = `/domains/${d.id}`
  const name = d.domain_unicode
  const issue = d.dns_health.issues[0]
  switch (d.status) {
    case 'error':
      return { key: d.id, weight: 90, title: `${name} setup failed`, text: d.error ? wordsOf(d.error) : 'The setup failed.', href, step: can('setup_domain') ? 'See why and set up again' : 'See why' }
    case 'pending_ns':
      return { key: d.id, weight: 60, title: `${name}: nameservers not set`, text: `Set ${d.nameservers.join(' and ')} where you registered it.`, href, step: 'See what to set' }
    case 'pending_dns_records':
      return { key: d.id, weight: 60, title: `${name}: DNS records not added`, text: 'Add the records at your DNS provider, then verify them.', href, step: 'See the records' }
    case 'complete':
      if (issue && d.dns_health.status === 'failing') return { key: d.id, weight: 80, title: `${name}: mail is at risk`, text: issue.message, href, step: 'Fix the record' }
      if (issue && d.dns_health.status === 'degraded') return { key: d.id, weight: 50, title: `${name}: a DNS record is wrong`, text: issue.message, href, step: 'See the record' }
  }
}

function ofEndpoint({ webhook: w, failing }: Endpoint): Item | undefined {
  const href = `/webhooks/${w.id}`
  if (w.status === 'disabled' && w.disabled_reason !== 'manual') {
    return { key: w.id, weight: 70, title: 'Webhook disabled', text: `${w.url}: ${words(w.disabled_reason ?? 'too many failures').toLowerCase()}.`, href, step: can('update_webhook') ? 'Fix it and re-enable' : 'See why' }
  }
  if (w.status === 'enabled' && failing > 0) {
    return { key: w.id, weight: 40, title: 'Webhook failing', text: `${w.url}: ${failing === 1 ? 'the last delivery' : `the last ${plural(failing, 'delivery', 'deliveries')}`} failed.`, href, step: 'See the deliveries' }
  }
}

function ofUsage(usage: Schemas['Usage']): Item[] {
  const items: Item[] = []
  const { sent_30d: sent, bounced_30d: bounced, complained_30d: complained } = usage.messages
  if (sent >= 100 && bounced / sent > 0.05) {
    items.push({ key: 'bounces', weight: 55, title: 'Many messages bounce', text: `${plural(bounced, 'message')} of ${sent} in 30 days came back. Providers distrust senders above 5 %.`, href: '/sent?status=bounced', step: 'See which' })
  }
  if (sent >= 100 && complained / sent > 0.001) {
    items.push({ key: 'complaints', weight: 65, title: 'Spam complaints are high', text: `${plural(complained, 'complaint')} in 30 days. Above 0.1 % providers send mail to spam.`, href: '/sent?status=complained', step: 'See which' })
  }
  for (const [name, used] of Object.entries({ domains: usage.domains, mailboxes: usage.email_users, 'team users': usage.team_users, webhooks: usage.webhooks })) {
    if (used.limit !== null && used.limit > 0 && used.used / used.limit >= 0.9) {
      items.push({ key: 'limit ' + name, weight: 20, title: `Nearly all ${name} are used`, text: `${used.used} of ${used.limit}.`, href: '/account', step: 'See the limits' })
    }
  }
  return items
}

export function Attention({ usage }: { usage: Schemas['Usage'] | undefined }) {
  const domains = useDomains(), endpoints = useEndpoints(), jobs = useFailedJobs()
  const failed = (jobs.data?.data ?? []).map((j): Item => ({
    key: j.id, weight: 45, title: `A job failed: ${words(j.type).toLowerCase()}`, text: j.error ? wordsOf(j.error) : '', href: `/jobs/${j.id}`, step: 'See what happened',
  }))
  const items = [...(domains.data ?? []).map(ofDomain), ...(endpoints.data ?? []).map(ofEndpoint), ...failed, ...(usage ? ofUsage(usage) : []), secondFactor()]
    .filter((item) => item !== undefined).sort((a, b) => b.weight - a.weight)
  if (items.length === 0) return null
  return (
    <Card title="Needs attention" flush>
      <div class="rows overview-attention">
        {items.slice(0, shown).map((item) => (
          <a key={item.key} class={'line' + (item.weight >= 70 ? ' bad' : '')} href={item.href}>
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
  return { key: 'totp', weight: 10, title: 'Your sign-in has one factor', text: 'A stolen password is enough to get in.', href: '/profile', step: 'Add a second factor' }
}

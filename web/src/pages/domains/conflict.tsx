// Records of others that are in the place of Mailstead's at a DNS provider, and what Mailstead would change there.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery, type Query } from '../../api/query'
import { Button, Card, LinkButton, told } from '../../ui'
import { Step } from './next'
import { PlanPreview, usePlan } from './plan'
import type { TabProps } from './types'
import { byApi, providerNames, type Domain } from './words'

type Plan = Schemas['DNSPlan']

/** Tells whether a domain lacks records because others are in their place. */
export function isInTheWay(d: Domain): boolean {
  return byApi(d.dns_provider) && (d.error?.code === 'zone_conflict' || Boolean(d.status_detail?.startsWith('zone_conflict:')))
}

/** The plan of a domain at a DNS provider. With replace it is the one with the mail records of others replaced. */
function usePlanOf(d: Domain, replace: boolean): Query<Plan> {
  const previews = d.dns_credential_id !== null && can('preview_dns_plan')
  const preview = usePlan(d.domain, d.dns_credential_id ?? '', replace, previews)
  const present = useQuery('get_dns_plan', { domain_id: d.id }, { kinds: ['domain'], only: (c) => c.id === d.id, when: !previews })
  if (previews || !replace || !present.data) return previews ? preview : present
  const stays = (c: Plan['foreign_conflicts'][number]) => c.name !== '@' || !(c.type === 'MX' || c.value.includes('v=spf1'))
  return { ...present, data: { ...present.data, foreign_conflicts: present.data.foreign_conflicts.filter(stays) } }
}

/** The next step of such a domain: replace the mail records of others, or set it up once they are gone. */
export function InTheWay({ domain: d, reload }: TabProps) {
  const [replace, setReplace] = useState(false)
  const plan = usePlanOf(d, replace)
  const clear = plan.data?.foreign_conflicts.length === 0
  const setUp = async () => {
    await call('setup_domain', { domain: d.domain, replace: replace || undefined })
    told('Setup started.')
    await Promise.all([reload(), plan.reload()])
  }
  return (
    <Step tone={d.status === 'complete' ? 'warn' : 'bad'} title={`Other records are in the way at ${providerNames[d.dns_provider]}`} actions={<>
      {can('setup_domain') && <Button look="primary" icon="refresh" disabled={!clear} onClick={setUp}>{replace ? 'Replace and set up' : 'Set up again'}</Button>}
      {d.job_id && <LinkButton href={'/jobs/' + d.job_id}>Open the job</LinkButton>}
    </>}>
      <p>Mailstead did not make these records, so it changes none of them. Replace the mail records here, or remove the others at {providerNames[d.dns_provider]}, then set the domain up again.</p>
      {!can('setup_domain') && <p class="muted">The account’s owner or an admin can do this.</p>}
      <PlanPreview of={plan} replace={replace} onReplace={can('setup_domain') ? setReplace : undefined} />
    </Step>
  )
}

/** What Mailstead would change now at the DNS provider of a domain. */
export function ProviderPlan({ domain: d }: { domain: Domain }) {
  const plan = useQuery('get_dns_plan', { domain_id: d.id }, { kinds: ['domain', 'record'], only: (c) => c.kind === 'record' || c.id === d.id, pause: 60_000 })
  return (
    <Card title={`What changes at ${providerNames[d.dns_provider]}`} note="What Mailstead would add, change or remove there now. All other records stay as they are.">
      <PlanPreview of={plan} replace={false} />
    </Card>
  )
}

// A domain at a glance.
import type { ComponentChildren } from 'preact'
import { can } from '../../api/client'
import { Badge, Card, Copyable, count, Facts, Icon, Show, Time } from '../../ui'
import { InUse, Obstacles } from './in-use'
import { isInUse } from './scan'
import type { TabProps } from './types'
import { useDnsStatus } from './status'
import { byNeed, faultOf, providerNames, purposeOf, redirectWords, type DnsStatus, type Domain } from './words'

export function Overview(props: TabProps) {
  const { domain: d } = props
  return (
    <>
      {isInUse(d) ? <InUse {...props} /> : d.status !== 'complete' && <Obstacles domain={d} />}
      <div class="domains-columns">
        {d.dns_provider === 'external' ? <Elsewhere /> : <Checks domain={d} />}
        <About domain={d} />
      </div>
    </>
  )
}

function Elsewhere() {
  return (
    <Card title="Hosted elsewhere">
      <p>Another provider hosts this domain’s DNS and mail. Mailstead logs in to its mailboxes there, so that you can read and send mail here.</p>
    </Card>
  )
}

function Checks({ domain: d }: { domain: Domain }) {
  const status = useDnsStatus(d)
  return (
    <Card title="DNS check" note={status.data?.checked_at && <>Last checked <Time of={status.data.checked_at} /></>} actions={<a href={`/domains/${d.id}/dns`}>All records</a>} flush>
      {d.status === 'deleting' ? <p class="line muted">This domain is being deleted.</p> : <Show of={status} lines={5}>{(s) => <CheckList status={s} domain={d} />}</Show>}
    </Card>
  )
}

function CheckList({ status: s, domain: d }: { status: DnsStatus; domain: Domain }) {
  const purposes = [...new Set(byNeed(s.records).map((r) => r.purpose))]
  return (
    <div class="rows">
      {s.nameservers.expected.length > 0 && (
        <Check ok={s.nameservers.verified} name="Nameservers" critical fault={s.nameservers.actual.length > 0 ? 'Wrong value' : 'Missing'}>
          {s.nameservers.verified ? 'Set to Mailstead’s nameservers.' : s.nameservers.actual.length > 0 ? `Set to ${s.nameservers.actual.join(', ')}.` : 'No nameservers set.'}
        </Check>
      )}
      {purposes.map((p) => {
        const records = s.records.filter((r) => r.purpose === p)
        const wrong = records.find((r) => !r.verified)
        return <Check key={p} ok={!wrong} critical={records.some((r) => r.critical && !r.verified)} fault={wrong && faultOf(wrong)} name={purposeOf(p).name}>{purposeOf(p, d).about}</Check>
      })}
      {d.dnssec && <DnssecCheck domain={d} of={d.dnssec} />}
    </div>
  )
}

function DnssecCheck({ domain: d, of }: { domain: Domain; of: NonNullable<Domain['dnssec']> }) {
  if (d.ns_status === 'pending') return <Check name="DNSSEC" ok={false} optional>Optional: add the DS record at your registrar after the nameservers have changed, not before.</Check>
  const text = {
    secure: 'DNSSEC is active: resolvers can verify DNS answers for the domain.', unpublished: 'Optional: add the DS record at your registrar to protect DNS answers from forgery.',
    bogus: 'The DS record at your registrar does not match: validating resolvers can’t resolve the domain.', unknown: 'Not checked yet.',
  }[of.status]
  return <Check name="DNSSEC" ok={of.status === 'secure'} critical={of.status === 'bogus'} optional>{text}</Check>
}

/** fault: what is wrong with it, in a few words. */
function Check({ ok, critical, fault = 'Wrong value', optional, name, children }: { ok: boolean; critical?: boolean; fault?: string; optional?: boolean; name: string; children: ComponentChildren }) {
  const [tone, label] = ok ? ['ok', 'Verified'] as const : critical ? ['bad', fault] as const : optional ? ['none', 'Off'] as const : ['warn', fault] as const
  return (
    <div class="line domains-check">
      <span class={'domains-mark ' + tone}><Icon name={ok ? 'check' : critical ? 'x' : 'info'} /></span>
      <span class="grow"><strong>{name}</strong><br /><span class="muted small">{children}</span></span>
      <Badge tone={tone} plain>{label}</Badge>
    </div>
  )
}

function About({ domain: d }: { domain: Domain }) {
  return (
    <div class="stack">
      <Card title="Details" actions={can('update_domain') && <a href={`/domains/${d.id}/settings`}>Edit</a>}>
        <Facts of={[
          ['DNS provider', providerNames[d.dns_provider]],
          ['Mailboxes', <a href={`/domains/${d.id}/mailboxes`}>{count(d.email_users_count)}</a>],
          ['ASCII form', d.domain_unicode !== d.domain && <Copyable text={d.domain} />],
          ['Registrar', d.registrar],
          ['Expires', d.expires_at && <><Time of={d.expires_at} form="date" />{d.auto_renew ? ', auto-renew on' : ', auto-renew off'}</>],
          ['Created', <Time of={d.created_at} form="date" />],
          ['Ready since', d.status === 'complete' && d.completed_at && <Time of={d.completed_at} form="date" />],
        ]} />
      </Card>
      {d.dns_provider !== 'external' && (
        <Card title="Mail and web" actions={can('update_domain') && <a href={`/domains/${d.id}/mail`}>Edit</a>}>
          <Facts of={[
            ['Outgoing mail', d.sending_mode === 'relay' ? `Through relay ${d.relay ?? '(default)'}` : 'Direct'],
            ['Catch-all', d.catch_all],
            ['Forwarding', d.forward_address],
            ['Web redirect', d.redirect && <>{d.redirect.url} <span class="muted">({redirectWords(d.redirect)})</span></>],
            ['DMARC policy', d.dmarc_override ? 'Custom' : 'Default'],
          ]} />
        </Card>
      )}
      {d.notes && <Card title="Notes"><p class="domains-notes">{d.notes}</p></Card>}
    </div>
  )
}

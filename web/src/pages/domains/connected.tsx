// What came of adding several domains, and what is next for each.
import type { Schemas } from '../../api/client'
import { call, can } from '../../api/client'
import { useQuery, useRead } from '../../api/query'
import { faultIn } from '../../api/wording'
import { Badge, Button, Card, Icon, LinkButton, Notice, plural, told, Wrong } from '../../ui'
import { useSandboxActivation } from './activate'
import { isInUse } from './scan'
import { CopyFields } from './parts'
import { StateBadge, stateOf, type Domain } from './words'

type Connection = Schemas['ConnectResult']

export function Connected({ of, onMore }: { of: Connection[]; onMore: () => void }) {
  const added = of.filter((c) => c.status === 'created'), there = of.filter((c) => c.status === 'already_exists'), bad = of.filter((c) => c.status === 'error')
  const good = [...added, ...there]
  const domains = useRead(['added', ...good.map((c) => c.domain_id)].join(), () => Promise.all(good.map((c) => call('get_domain', { domain_id: c.domain_id! }))), { kinds: ['domain'], when: good.length > 0 })
  useSandboxActivation(domains.data)
  const scans = useQuery('list_jobs', { type: 'zone_scan', limit: 100 })
  const unread = new Set(scans.data?.data.filter((j) => j.status !== 'completed').map((j) => j.resource?.id))
  const reading = new Set(scans.data?.data.filter((j) => j.status === 'queued' || j.status === 'in_progress').map((j) => j.resource?.id))
  const pending = (domains.data ?? []).filter((d) => d.status === 'pending_ns')
  const waiting = scans.data ? pending.filter((d) => !isInUse(d) && !unread.has(d.id)) : [] // the others' records come first
  const check = async () => {
    const { domains: found } = await call('check_nameservers', { domains: waiting.map((d) => d.domain) })
    told(`Nameservers verified for ${found.filter((f) => f.verified).length} of ${plural(found.length, 'domain')}.`)
    await domains.reload()
  }
  return (
    <>
      {bad.length > 0 && (
        <Notice tone="bad" alert title={`${plural(bad.length, 'domain')} could not be added.`}>
          <ul class="domains-list">{bad.map((c) => <li key={c.domain}><strong>{c.domain}</strong>: {c.error ? <Wrong of={faultIn(c.error)} /> : 'Could not be added.'}</li>)}</ul>
        </Notice>
      )}
      {pending.length > waiting.length && <Notice>{waiting.length > 0 ? 'Other domains' : 'The domains'} may be in use: their present records are read first. Open a domain to see what stays, what changes, and what to do.</Notice>}
      {waiting.length > 0 && (
        <Card title="Set these nameservers at your registrar" note={`For ${plural(waiting.length, 'domain')}. Replace all existing nameservers with these.`} actions={can('check_nameservers') && <Button look="primary" icon="refresh" onClick={check}>I’ve set them, check now</Button>}>
          <CopyFields of={waiting[0]!.nameservers.map((ns, i) => [`Nameserver ${i + 1}`, ns])} />
        </Card>
      )}
      <Card flush title={`${plural(added.length, 'domain')} added`} note={there.length > 0 ? `${there.length} already existed.` : undefined} actions={<><Button small onClick={onMore}>{good.length > 0 ? 'Add more' : 'Try again'}</Button><LinkButton small href="/domains">All domains</LinkButton></>}>
        {good.length > 0 && <div class="rows">{good.map((c) => <Line key={c.domain} of={c} domain={domains.data?.find((d) => d.id === c.domain_id)} reading={reading.has(c.domain_id!)} />)}</div>}
      </Card>
    </>
  )
}

function Line({ of: c, domain: d, reading }: { of: Connection; domain?: Domain; reading: boolean }) {
  return (
    <a class="line" href={'/domains/' + c.domain_id}>
      <span class="grow"><strong>{d?.domain_unicode ?? c.domain}</strong>{d && <><br /><span class="muted small">{stateOf(d, reading).text}</span></>}</span>
      {d ? <StateBadge domain={d} reading={reading} /> : <Badge>…</Badge>}
      <Icon name="next" />
    </a>
  )
}

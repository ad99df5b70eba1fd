// Whether the server is well, for its operator: what is wrong, and what to do about it.
import { session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Card, Icon, Show, theirs, Time, words, type Tone } from '../../ui'

type Check = Schemas['Check']

const standings: Record<Schemas['Health']['status'], [Tone, string]> = { ok: ['ok', 'Healthy'], warning: ['warn', 'Warning'], error: ['bad', 'Error'] }

const shown = 6

const names: Record<string, string> = { ptr: 'Reverse DNS (PTR)', domain_dns: 'DNS of domains', port25_out: 'Outgoing port 25', hostname_address: 'Hostname' }

export function ServerHealth() {
  const { operator } = session.value!
  const health = useQuery('get_health', {}, { when: operator, kinds: ['event'], pause: 60_000 })
  if (!operator) return null
  const status = health.data && standings[health.data.status]
  return (
    <Card title="Server health" note={health.data && <>Last checked <Time of={health.data.checked_at} /></>} actions={status && <Badge tone={status[0]}>{status[1]}</Badge>}>
      <Show of={health} lines={2}>
        {({ checks }) => {
          const problems = [...checks.filter((c) => c.status === 'error'), ...checks.filter((c) => c.status === 'warning')]
          if (problems.length === 0) return <p class="muted">No problems found.</p>
          return (
            <div class="stack-tight">
              <ul class="overview-problems">{problems.slice(0, shown).map((c) => <Problem key={c.code + c.subject} of={c} />)}</ul>
              {problems.length > shown && <p class="muted">and {problems.length - shown} more</p>}
            </div>
          )
        }}
      </Show>
    </Card>
  )
}

function Problem({ of: c }: { of: Check }) {
  return (
    <li class={c.status === 'error' ? 'bad' : undefined}>
      <Icon name="alert" />
      <div class="stack-tight">
        <p><strong>{names[c.code] ?? words(c.code)}<span class="visually-hidden"> ({c.status})</span></strong> <span class="muted small">{theirs(c.subject)}</span></p>
        <p class="small">{theirs(c.message)}</p>
        {c.mend && <p class="small muted">{theirs(c.mend)}</p>}
      </div>
    </li>
  )
}

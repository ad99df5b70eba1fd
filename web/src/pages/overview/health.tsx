// How the server is, for its operator. What is wrong is among what needs attention.
import { session } from '../../api/client'
import { Badge, bytes, Card, Facts, plural, Show, Time } from '../../ui'
import { outcomeOf, standings, useHealth } from '../operator/checks'

export function ServerHealth() {
  const { operator } = session.value!
  const health = useHealth(operator)
  if (!operator) return null
  const status = health.data && standings[health.data.status]
  return (
    <Card title="Server health" actions={<>{status && <Badge tone={status[0]}>{status[1]}</Badge>}<a href="/host">Host</a></>}>
      <Show of={health} lines={2}>
        {({ checks, checked_at, store, queue, backup }) => (
          <Facts of={[
            ['Checks', <>{outcomeOf(checks)}, <Time of={checked_at} /></>],
            ['Disk', `${bytes(store.free_bytes)} free`],
            ['Server’s queue', queue.depth === 0 ? 'empty' : plural(queue.depth, 'recipient')],
            ['Backup', <a href="/backups">{backup.target === null ? 'not configured' : <Time of={backup.last_success_at} none="none yet" />}</a>],
          ]} />
        )}
      </Show>
    </Card>
  )
}

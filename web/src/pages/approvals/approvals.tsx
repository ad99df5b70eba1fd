import { usePages } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, Button, Card, Empty, LongList, Page, Select, theirs, Time, words } from '../../ui'
import { recipientsOf, StatusBadge, statuses, type Approval, type Status } from './words'

const options: readonly (readonly [Status | 'all', string])[] = [...Object.keys(statuses).map((s) => [s as Status, words(s)] as const), ['all', 'All']]

export function Approvals() {
  const chosen = params.value.get('status') ?? 'pending'
  const status = chosen in statuses ? (chosen as Status) : undefined
  const pages = usePages('list_approvals', { limit: 50, status }, (a) => a.approval_id)
  return (
    <Page title="Approvals" intro="Messages that are held until an owner or admin approves them. After seven days they expire and are not sent.">
      <div class="sent-filters"><Select label="Status" value={status ?? 'all'} onChange={(status) => setParams({ status: status === 'pending' ? '' : status })} options={options} /></div>
      <Card flush>
        <LongList pages={pages} idOf={(a) => a.approval_id} height={52} narrowHeight={68} label="Approvals" row={(a) => <Line of={a} />}
          empty={status === 'pending'
            ? <Empty icon="check" title="Nothing to approve">Messages appear here when a sending policy requires approval.</Empty>
            : <Empty icon="search" title="No messages match" action={<Button onClick={() => setParams({ status: '' })}>Show pending</Button>} />} />
      </Card>
    </Page>
  )
}

function Line({ of: a }: { of: Approval }) {
  const [first, ...others] = recipientsOf(a)
  return (
    <a class="line approvals-row" href={`/approvals/${a.approval_id}`}>
      <span class="sent-state"><StatusBadge status={a.status} /></span>
      <span class="sent-what">
        <span class="sent-to truncate"><strong>{theirs(first)}</strong>{others.length > 0 && ` and ${others.length} more`}</span>
        <span class="grow truncate sent-subject">{theirs(a.subject) || <i>(no subject)</i>} <span class="muted">from {a.email}</span></span>
      </span>
      {a.reason === 'tainted' && <Badge tone="bad" plain>read external mail</Badge>}
      <span class="sent-when muted small"><Time of={a.created_at} form="short" /></span>
    </a>
  )
}

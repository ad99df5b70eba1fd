// What becomes of a message that was just sent, as the sending log tells.
import { useQuery } from '../../../api/query'
import { StatusBadge } from '../../sent/words'
import type { Sent } from './form'

/** The recipients of a message with the state of each, live. */
export function Fates({ sent }: { sent: Sent }) {
  const one = sent.recipients.length === 1 ? sent.recipients[0]!.email : undefined
  const log = useQuery('list_messages', { mailbox: sent.from, recipient: one, limit: 100 })
  const rows = (log.data?.data ?? []).filter((r) => r.message_id === sent.message_id)
  return (
    <ul class="compose-fates">
      {sent.recipients.map((r) => {
        const row = rows.find((x) => x.recipient.toLowerCase() === r.email.toLowerCase())
        const status = row?.status ?? r.status
        return (
          <li key={r.email}>
            {row ? <a class="truncate" href={'/sent/' + row.id}>{r.email}</a> : <span class="truncate">{r.email}</span>}
            <StatusBadge status={status} />
            {status === 'suppressed' && <span class="small muted">Not sent: this address is on the <a href="/sent/suppressions">suppression list</a>.</span>}
          </li>
        )
      })}
    </ul>
  )
}

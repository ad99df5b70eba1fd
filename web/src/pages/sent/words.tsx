// How the life of a sent message is spoken of.
import type { Schemas } from '../../api/client'
import { Badge, type Tone } from '../../ui'

export type Row = Schemas['SentMessage']
export type Status = Row['status']

export const statuses: Record<Status, { tone: Tone; means: string }> = {
  queued: { tone: 'none', means: 'Waiting to be sent.' },
  sent: { tone: 'ok', means: 'Accepted by the recipient’s mail server.' },
  delivered: { tone: 'ok', means: 'Delivered to a mailbox on this server.' },
  relayed: { tone: 'ok', means: 'Accepted by the relay for delivery.' },
  captured: { tone: 'info', means: 'Stored here and not sent: this server captures outgoing mail.' },
  deferred: { tone: 'warn', means: 'Delivery failed for now and is retried automatically.' },
  bounced: { tone: 'bad', means: 'Delivery failed permanently. The sender was notified.' },
  complained: { tone: 'bad', means: 'The recipient reported it as spam. No more mail is sent to them.' },
  suppressed: { tone: 'warn', means: 'Not sent: the address is on the suppression list.' },
  cancelled: { tone: 'none', means: 'Cancelled before it was sent.' },
}

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={statuses[status].tone}>{status}</Badge>
}

/** Whether it still waits to be sent, so that it can be tried at once or taken back. */
export function waits(row: Row): boolean {
  return row.status === 'queued' || row.status === 'deferred'
}

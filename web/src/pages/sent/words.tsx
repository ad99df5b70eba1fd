// How the life of a sent message is spoken of.
import type { Schemas } from '../../api/client'
import { Badge, type Tone } from '../../ui'
import { t } from '../../words'

export type Row = Schemas['SentMessage']
export type Status = Row['status']

export const statuses: Record<Status, { tone: Tone; means: string }> = {
  queued: { tone: 'none', means: 'Waiting to be sent.' },
  scheduled: { tone: 'info', means: 'Waiting for the time it is scheduled for.' },
  held: { tone: 'warn', means: 'On hold: it waits for approval, or was waiting when the mailbox was suspended, deleted or got a new password.' },
  sent: { tone: 'ok', means: 'Accepted by the recipient’s mail server.' },
  delivered: { tone: 'ok', means: 'Delivered to a mailbox on this server.' },
  relayed: { tone: 'ok', means: 'Accepted by the relay for delivery.' },
  captured: { tone: 'info', means: 'Stored here and not sent: this server captures outgoing mail.' },
  deferred: { tone: 'warn', means: 'Delivery failed for now and is retried automatically.' },
  bounced: { tone: 'bad', means: 'Delivery failed permanently. The sender was notified.' },
  complained: { tone: 'bad', means: 'The recipient reported it as spam. No more mail is sent to them.' },
  suppressed: { tone: 'warn', means: 'Not sent: the address is on the suppression list.' },
  cancelled: { tone: 'none', means: 'Cancelled before it was sent.' },
  rejected: { tone: 'bad', means: 'Not sent: it was not approved.' },
}

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={statuses[status].tone}>{t(`sent.status.${status}`)}</Badge>
}

/** Whether it still waits to be sent, so that it can be taken back. */
export function waits(row: Row): boolean {
  return mayRetry(row) || row.status === 'scheduled' || row.status === 'held'
}

/** Whether it can be tried at once. */
export function mayRetry(row: Row): boolean {
  return row.status === 'queued' || row.status === 'deferred'
}

/** A time as an input of the type datetime-local has it, in the viewer's zone. */
export function localTime(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

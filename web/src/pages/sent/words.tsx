// How the life of a sent message is spoken of.
import type { Schemas } from '../../api/client'
import { Badge, type Tone } from '../../ui'

export type Row = Schemas['SentMessage']
export type Status = Row['status']

export const statuses: Record<Status, { tone: Tone; means: string }> = {
  queued: { tone: 'none', means: 'It is about to be sent.' },
  sent: { tone: 'ok', means: 'The recipient’s host has taken it.' },
  delivered: { tone: 'ok', means: 'It lies in a mailbox here.' },
  relayed: { tone: 'ok', means: 'The relay has taken it and sends it on.' },
  captured: { tone: 'info', means: 'It was kept here and not sent: this server captures mail to others.' },
  deferred: { tone: 'warn', means: 'It could not be sent yet, and is tried again.' },
  bounced: { tone: 'bad', means: 'It could not be delivered. The sender was told.' },
  complained: { tone: 'bad', means: 'The recipient called it spam. Nothing more is sent to them.' },
  suppressed: { tone: 'warn', means: 'It was not sent, since the address is on the suppression list.' },
  cancelled: { tone: 'none', means: 'It was taken back before it was sent.' },
}

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={statuses[status].tone}>{status}</Badge>
}

/** Whether it still waits to be sent, so that it can be tried at once or taken back. */
export function waits(row: Row): boolean {
  return row.status === 'queued' || row.status === 'deferred'
}

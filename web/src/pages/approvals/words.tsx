// How messages that wait for approval are spoken of.
import type { Schemas } from '../../api/client'
import { Badge, type Tone } from '../../ui'

export type Approval = Schemas['Approval']
export type Status = Approval['status']

export const statuses: Record<Status, { tone: Tone; means: string }> = {
  pending: { tone: 'warn', means: 'It is sent only if an owner or admin approves it.' },
  approved: { tone: 'ok', means: 'It was sent, or is being sent.' },
  rejected: { tone: 'bad', means: 'It was not sent.' },
  expired: { tone: 'none', means: 'Nobody approved it in time. It was not sent.' },
}

export const reasons: Record<Approval['reason'], string> = {
  policy: 'The sending policy requires approval for these recipients.',
  tainted: 'The sender had read a message from outside your organization, which may have told it what to write. Check the recipients and the text with care.',
}

export const ways: Record<Approval['via'], string> = { api: 'API', mcp: 'MCP assistant', smtp: 'SMTP', rule: 'rule or automatic reply' }

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={statuses[status].tone}>{status}</Badge>
}

export function recipientsOf(a: Approval): string[] {
  return [...a.to, ...a.cc, ...a.bcc]
}

import { can, type Schemas } from '../../api/client'
import { Badge, Tabs, type Tone } from '../../ui'

export type MailboxOut = Schemas['EmailUser']
export type Status = MailboxOut['status']

const tones: Record<Status, Tone> = { active: 'ok', pending: 'none', suspended: 'warn', error: 'bad', deleting: 'none' }

export const statuses: [Status | '', string][] = [['', 'Any status'], ['active', 'Active'], ['pending', 'Pending'], ['suspended', 'Suspended'], ['error', 'Error'], ['deleting', 'Deleting']]

export function StatusBadge({ status }: { status: Status }) {
  return <Badge tone={tones[status]}>{status}</Badge>
}

const tabs = [{ id: 'list', href: '/mailboxes', name: 'Mailboxes' }, { id: 'groups', href: '/mailboxes/groups', name: 'Groups' }, { id: 'bulk', href: '/mailboxes/bulk', name: 'Bulk create' }, { id: 'templates', href: '/mailboxes/templates', name: 'Templates' }]

export function MailboxTabs({ current }: { current: 'list' | 'groups' | 'bulk' | 'templates' }) {
  return <Tabs label="Mailboxes" tabs={tabs} current={current} />
}

/** How a mailbox's password can be had after it was shown. */
export function passwordAgain(): string {
  return can('create_export') ? 'You can also export passwords later.' : 'The account’s owner or an admin can also export passwords later.'
}

/** Mebibytes of a form as bytes; nothing if the field is empty. */
export function fromMiB(text: string): number | undefined {
  return text.trim() === '' ? undefined : Math.round(Number(text) * 1024 * 1024)
}

export function toMiB(bytes: number | null): string {
  return bytes === null ? '' : String(Math.round(bytes / 1024 / 1024))
}

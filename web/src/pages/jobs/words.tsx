// How jobs are spoken of.
import type { Schemas } from '../../api/client'
import { Badge, words, type Tone } from '../../ui'

export type Job = Schemas['JobResponse']

const tones: Record<Job['status'], Tone> = { queued: 'none', in_progress: 'info', completed: 'ok', error: 'bad', cancelled: 'none' }
const names: Record<Job['status'], string> = { queued: 'waiting', in_progress: 'running', completed: 'done', error: 'failed', cancelled: 'cancelled' }

export function JobBadge({ status }: { status: Job['status'] }) {
  return <Badge tone={tones[status]}>{names[status]}</Badge>
}

const types: Record<string, string> = {
  domain_setup: 'Set up a domain', domain_provision: 'Provide a domain', domain_delete: 'Delete a domain',
  email_users_bulk_create: 'Make mailboxes', email_user_delete: 'Delete a mailbox', email_users_bulk_delete: 'Delete mailboxes',
  redirect_update: 'Change a redirect', forward_update: 'Change a forward', inbox_sync: 'Fetch a remote mailbox',
}

/** What a job does. */
export function deed(type: string): string {
  return types[type] ?? words(type)
}

export const jobTypes = Object.keys(types)

/** The place where the thing that a job is about is shown. */
export function placeOf(resource: Job['resource']): string | undefined {
  if (!resource) return
  if (resource.id.startsWith('dom_')) return `/domains/${resource.id}`
  if (resource.id.startsWith('eu_')) return `/mailboxes/${resource.id}`
}

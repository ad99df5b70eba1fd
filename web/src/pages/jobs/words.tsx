// How jobs are spoken of.
import { session, type Schemas } from '../../api/client'
import { Badge, words, type Tone } from '../../ui'

export type Job = Schemas['JobResponse']

const tones: Record<Job['status'], Tone> = { queued: 'none', in_progress: 'info', completed: 'ok', error: 'bad', cancelled: 'none' }
const names: Record<Job['status'], string> = { queued: 'queued', in_progress: 'running', completed: 'completed', error: 'failed', cancelled: 'cancelled' }

export function JobBadge({ status }: { status: Job['status'] }) {
  return <Badge tone={tones[status]}>{names[status]}</Badge>
}

const types: Record<string, string> = {
  domain_setup: 'Set up domain', domain_provision: 'Prepare domain', domain_delete: 'Delete domain',
  email_users_bulk_create: 'Create mailboxes', email_user_delete: 'Delete mailbox', email_users_bulk_delete: 'Delete mailboxes',
  zone_scan: 'Read DNS zone', redirect_update: 'Update redirect', forward_update: 'Update forwarding', inbox_sync: 'Sync external mailbox',
}

/** Those of the server itself, which its operator alone sees. */
const ofServer: Record<string, string> = { backup: 'Back up', backup_drill: 'Backup drill', account_delete: 'Delete account' }

/** What a job does. */
export function deed(type: string): string {
  return types[type] ?? ofServer[type] ?? words(type)
}

/** The types of jobs that the viewer may see. */
export function jobTypes(): string[] {
  return Object.keys(session.value!.operator ? { ...types, ...ofServer } : types)
}

/** The place where the thing that a job is about is shown. */
export function placeOf(resource: Job['resource']): string | undefined {
  if (!resource) return
  if (resource.id.startsWith('dom_')) return `/domains/${resource.id}`
  if (resource.id.startsWith('eu_')) return `/mailboxes/${resource.id}`
  if (resource.type === 'host') return '/backups'
}

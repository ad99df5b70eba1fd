// The steps of a job, as they go on.
import { Bar, Icon, Time, words } from '../../ui'
import { plain } from '../../api/wording'
import type { Job } from './words'

const names: Record<string, string> = {
  edge_token: 'Check the DNS credential', register: 'Register the domain', keys: 'Generate the DKIM and DNSSEC keys', zone: 'Publish the DNS zone',
  records: 'Prepare the DNS records', users: 'Create the mailboxes', redirect: 'Set up the redirect', forward: 'Set up forwarding',
  delegate: 'Wait for the nameservers', edge_records: 'Create the DNS records at the DNS provider', mail: 'Turn mail on', verify: 'Check the DNS records',
}

const deletion: Record<string, string> = { mailboxes: 'Delete the mailboxes', zone: 'Remove the DNS zone', custom_records: 'Delete the custom records', domain: 'Delete the domain' }

const statuses: Record<string, string> = { in_progress: 'running', error: 'failed', skipped: 'skipped' }

const marks = { queued: '', in_progress: 'now', completed: 'done', error: 'failed', skipped: '' } as const

export function Steps({ of: j }: { of: Job }) {
  return (
    <>
      {j.progress && j.status !== 'error' && <Bar value={j.progress.completed} of={j.progress.total} label={`${j.progress.completed} of ${j.progress.total} steps`} />}
      {j.steps.length > 0 && (
        <ol class="steps">
          {j.steps.map((s) => (
            <li key={s.name} class={marks[s.status]}>
              <span class="mark" aria-hidden="true">{s.status === 'completed' ? <Icon name="check" /> : s.status === 'error' ? <Icon name="x" /> : s.status === 'in_progress' ? <span class="spinner" /> : ''}</span>
              <div class="grow">
                {(j.type === 'domain_delete' ? deletion : names)[s.name] ?? words(s.name)} <span class="muted small">{s.status === 'completed' ? <Time of={s.at} /> : statuses[s.status]}</span>
                {s.error && plain(s.error) && <p class="small">{s.error}</p>}
              </div>
            </li>
          ))}
        </ol>
      )}
    </>
  )
}

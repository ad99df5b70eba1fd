// The steps of a job, as they go on.
import { Bar, Icon, Time, words } from '../../ui'
import { plain } from '../../api/wording'
import type { Job } from './words'

const names: Record<string, string> = {
  edge_token: 'Try the Cloudflare token', register: 'Buy the name', keys: 'Make its signing keys', zone: 'Publish its records',
  records: 'Work out its records', users: 'Make the mailboxes', redirect: 'Set the redirect', forward: 'Set the forward',
  delegate: 'Wait for the nameservers', edge_records: 'Make the records at Cloudflare', mail: 'Open it for mail', verify: 'Look at the records from outside',
}

const marks = { queued: '', in_progress: 'now', completed: 'done', error: 'failed', skipped: '' } as const

export function Steps({ of: j }: { of: Job }) {
  return (
    <>
      {j.progress && <Bar value={j.progress.completed} of={j.progress.total} label={`${j.progress.completed} of ${j.progress.total} steps`} />}
      {j.steps.length > 0 && (
        <ol class="steps">
          {j.steps.map((s) => (
            <li key={s.name} class={marks[s.status]}>
              <span class="mark" aria-hidden="true">{s.status === 'completed' ? <Icon name="check" /> : s.status === 'error' ? <Icon name="x" /> : s.status === 'in_progress' ? <span class="spinner" /> : ''}</span>
              <div class="grow">
                {names[s.name] ?? words(s.name)} <span class="muted small">{s.status === 'completed' ? <Time of={s.at} /> : s.status === 'queued' ? '' : words(s.status).toLowerCase()}</span>
                {s.error && plain(s.error) && <p class="small">{s.error}</p>}
              </div>
            </li>
          ))}
        </ol>
      )}
    </>
  )
}

// What Mailstead does and did for a domain, step by step.
import { useQuery, usePages } from '../../api/query'
import { wordsOf } from '../../api/wording'
import { Card, Empty, LongList, Show, Time, Wrong } from '../../ui'
import { Steps } from '../jobs/steps'
import { deed, JobBadge, type Job } from '../jobs/words'
import type { TabProps } from './types'

/** A job with its steps, as they go on. */
export function DomainJob({ id }: { id: string }) {
  const job = useQuery('get_job', { job_id: id }, { only: (c) => c.id === id })
  return <Show of={job} lines={3}>{(j) => <JobProgress job={j} />}</Show>
}

export function JobProgress({ job: j }: { job: Job }) {
  return (
    <div class="stack">
      <Steps of={j} />
      {j.status_detail && <p class="small muted">{j.status_detail}</p>}
      {j.next_attempt_at && <p class="small muted">Next attempt <Time of={j.next_attempt_at} />.</p>}
      {j.error && <p class="domains-wrong"><Wrong of={j.error} /></p>}
    </div>
  )
}

export function DomainJobs({ domain: d }: TabProps) {
  const pages = usePages('list_jobs', { limit: 50, domain: d.domain }, (j) => j.id)
  const running = pages.items.filter((j) => j.status === 'in_progress' || j.status === 'queued')
  return (
    <>
      {running.slice(0, 3).map((j) => <Card key={j.id} title={deed(j.type)} actions={<JobBadge status={j.status} />}><JobProgress job={j} /></Card>)}
      <Card flush title="Jobs" note="Jobs for this domain. They are kept for 30 days.">
        <LongList pages={pages} idOf={(j) => j.id} height={60} narrowHeight={76} label="Jobs of this domain" row={(j) => <Row job={j} />}
          empty={<Empty icon="bolt" title="No jobs yet">Longer tasks, such as setting up the domain or creating mailboxes in bulk, appear here.</Empty>} />
      </Card>
    </>
  )
}

function Row({ job: j }: { job: Job }) {
  const detail = j.error ? wordsOf(j.error) : j.status_detail
  return (
    <a class="line jobs-row" href={'/jobs/' + j.id}>
      <span class="grow truncate"><strong>{deed(j.type)}</strong>{detail && <><br /><span class="muted small">{detail}</span></>}</span>
      <span class="jobs-state"><JobBadge status={j.status} /></span>
      <span class="jobs-when muted small"><Time of={j.updated_at} /></span>
    </a>
  )
}

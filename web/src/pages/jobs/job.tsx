import { useQuery } from '../../api/query'
import { Card, Code, Copyable, Facts, Notice, Page, Show, Time, Wrong } from '../../ui'
import { Steps } from './steps'
import { deed, JobBadge, placeOf, type Job as JobOut } from './words'

export function Job({ id }: { id: string }) {
  const job = useQuery('get_job', { job_id: id }, { only: (c) => c.id === id })
  const title = job.data ? deed(job.data.type) : 'Job'
  return (
    <Page title={title} back={{ href: '/jobs', label: 'Jobs' }} heading={job.data ? <span class="row">{title} <JobBadge status={job.data.status} /></span> : title}>
      <Show of={job}>{(j) => <Details job={j} />}</Show>
    </Page>
  )
}

function Details({ job: j }: { job: JobOut }) {
  const place = placeOf(j.resource)
  return (
    <>
      {j.error && <Notice tone="bad"><strong><Wrong of={j.error} /></strong> {place && <a href={place}>Open {j.resource!.name}</a>}</Notice>}
      <div class="grid-2">
        <Card title="Steps"><div class="stack"><Steps of={j} />{j.steps.length === 0 && <p class="muted">This job has only one step.</p>}</div></Card>
        <Card title="Details">
          <Facts of={[
            ['Resource', place ? <a href={place}>{j.resource!.name}</a> : j.resource?.name],
            ['Status detail', j.status_detail],
            ['Created', <Time of={j.created_at} form="at" />],
            ['Started', j.started_at && <Time of={j.started_at} form="at" />],
            ['Finished', j.completed_at && <Time of={j.completed_at} form="at" />],
            ['Attempts', j.attempts],
            ['Next attempt', j.next_attempt_at && <Time of={j.next_attempt_at} />],
            ['ID', <Copyable text={j.id} />],
          ]} />
        </Card>
      </div>
      {j.result !== null && j.result !== undefined && <Card title="Result"><Code label="Result" text={JSON.stringify(j.result, null, 2)} /></Card>}
    </>
  )
}

import type { Input } from '../../api/client'
import { usePages } from '../../api/query'
import { wordsOf } from '../../api/wording'
import { params, setParams } from '../../router'
import { Bar, Card, Empty, LongList, Page, Select, Time, TypedField } from '../../ui'
import { deed, JobBadge, jobTypes, type Job } from './words'

type Status = Job['status'] | ''

const states: [Status, string][] = [['', 'Any status'], ['in_progress', 'Running'], ['queued', 'Queued'], ['completed', 'Completed'], ['error', 'Failed'], ['cancelled', 'Cancelled']]

export function Jobs() {
  const status = (params.value.get('status') ?? '') as Status, type = params.value.get('type') ?? '', domain = params.value.get('domain') ?? ''
  const filter: Input<'list_jobs'> = { limit: 50, status: status || undefined, type: type || undefined, domain: domain || undefined }
  const pages = usePages('list_jobs', filter, (j) => j.id)
  return (
    <Page title="Jobs" intro="Background work, such as setting up a domain. Jobs are kept for 30 days.">
      <div class="filters jobs-filters">
        <Select label="Status" value={status} onChange={(status) => setParams({ status })} options={states} />
        <Select label="Type" value={type} onChange={(type) => setParams({ type })} options={[['', 'Any type'], ...jobTypes().map((t) => [t, deed(t)] as const)]} />
        <TypedField name="domain" label="Domain" placeholder="example.com" />
      </div>
      <Card flush>
        <LongList pages={pages} idOf={(j) => j.id} height={60} narrowHeight={68} label="Jobs" row={(j) => <Row job={j} />}
          empty={<Empty icon="bolt" title={status || type || domain ? 'No jobs match' : 'No jobs yet'}>Longer tasks, such as setting up a domain or creating mailboxes in bulk, appear here with their steps.</Empty>} />
      </Card>
    </Page>
  )
}

function Row({ job: j }: { job: Job }) {
  const detail = j.error ? wordsOf(j.error) : j.status_detail
  return (
    <a class="line jobs-row" href={`/jobs/${j.id}`}>
      <span class="jobs-state"><JobBadge status={j.status} /></span>
      <span class="grow truncate">{deed(j.type)} <strong class="jobs-name">{j.resource?.name}</strong>
        {detail && <span class="jobs-detail"><br /><span class="muted small truncate">{detail}</span></span>}
      </span>
      {j.progress && j.status === 'in_progress' && <span class="jobs-progress"><Bar value={j.progress.completed} of={j.progress.total} label="Progress" /></span>}
      <span class="jobs-when muted small"><Time of={j.updated_at} /></span>
    </a>
  )
}

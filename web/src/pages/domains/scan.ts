// What Mailstead read of the zone that a domain has elsewhere.
import { useQuery } from '../../api/query'
import { wordsOf } from '../../api/wording'
import type { Domain } from './words'

interface Set { name: string; type: string; ttl: number; values: string[] }

/** The result of a zone_scan job. */
export interface Scan {
  nameservers: string[]
  method: 'axfr' | 'nsec' | 'questions' | 'none'
  complete: boolean
  records: Set[]
  ours: { name: string; type: string; theirs: string[]; ours: string[]; action: 'keep' | 'replace' | 'merge' }[]
  mx: { priority: number; host: string }[]
  ttl: { ns: number | null; ds: number | null; longest_changed: number | null }
  proxied: { name: string; type: string; value: string }[]
}

/** Reads the newest scan of a domain. */
export function useScan(d: Domain) {
  const jobs = useQuery('list_jobs', { domain: d.domain, type: 'zone_scan', limit: 1 }, { when: d.dns_provider === 'builtin' })
  const id = jobs.data?.data[0]?.job_id
  const job = useQuery('get_job', { job_id: id ?? '' }, { when: id !== undefined, only: (c) => c.id === id })
  const j = job.data
  return { id, running: j?.status === 'queued' || j?.status === 'in_progress', failed: j?.error ?? undefined, result: j?.status === 'completed' ? (j.result as unknown as Scan) : undefined, reload: jobs.reload }
}

/** A time in words, from seconds. */
export function lasting(seconds: number): string {
  const [n, unit] = seconds < 120 ? [seconds, 'second'] : seconds < 7200 ? [Math.ceil(seconds / 60), 'minute'] : seconds < 172_800 ? [Math.ceil(seconds / 3600), 'hour'] : [Math.ceil(seconds / 86_400), 'day']
  return `${n} ${unit}${n === 1 ? '' : 's'}`
}

interface Obstacle { title: string; text: string; /** The nameservers must not be changed before it is gone. */ first?: true }

const titles: Record<string, { title: string; text?: string; first?: true }> = {
  remove_ds_first: { title: 'Remove the DS records first', first: true },
  mta_sts_enforced: { title: 'Turn the MTA-STS policy off first', first: true },
  mx_changes: { title: 'Mail comes here with the switch' },
  senders_refused: { title: 'Mail of other senders would be refused' },
  proxied: { title: 'Some addresses belong to a proxy', text: 'They stop working once DNS is here. Add the addresses of the servers behind the proxy, or import these anyway.' },
  caa_excludes: { title: 'CAA records exclude the certificates of this server' },
  not_imported: { title: 'Some present records are not here yet', text: 'Import them, or leave them out, before you switch the nameservers.' },
}

/** What an issue of a domain that is in use means; nothing for other issues. */
export function obstacleOf(issue: Domain['dns_health']['issues'][number]): Obstacle | undefined {
  const known = titles[issue.code]
  return known && { text: wordsOf({ code: '', message: issue.message }), ...known }
}

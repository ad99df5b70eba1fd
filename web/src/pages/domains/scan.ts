// What Mailstead read of the zone that a domain has elsewhere.
import { call } from '../../api/client'
import { useQuery } from '../../api/query'
import { wordsOf } from '../../api/wording'
import { plural, told } from '../../ui'
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

/** Reads the newest scan of a domain. Until it is known whether there is one, and what of it the domain tells, known is false. */
export function useScan(d: Domain) {
  const jobs = useQuery('list_jobs', { domain: d.domain, type: 'zone_scan', limit: 1 }, { when: d.dns_provider === 'builtin' })
  const id = jobs.data?.data[0]?.job_id
  const job = useQuery('get_job', { job_id: id ?? '' }, { when: id !== undefined, only: (c) => c.id === id })
  const j = job.data
  const ahead = j?.status === 'completed' && j.result !== null && j.completed_at !== null && d.updated_at < j.completed_at // the end of a scan changes the domain too
  return {
    id, known: jobs.data !== undefined && (id === undefined || j !== undefined) && !ahead, running: j?.status === 'queued' || j?.status === 'in_progress',
    failed: j?.error ?? undefined, result: j?.status === 'completed' ? (j.result as unknown as Scan) : undefined, reload: jobs.reload,
  }
}

/** Reads the present records of a domain once more. */
export async function readAgain(d: Domain, scan?: ReturnType<typeof useScan>) {
  const { status } = await call('scan_zone', { domain_id: d.id })
  told(status === 'queued' || status === 'in_progress' ? 'The present records are being read. This takes about a minute.' : 'The records were read less than 10 minutes ago. Try again later.')
  await scan?.reload()
}

/** Whether the servers that answer for a domain now were asked, and told nothing. */
export function isUnread(scan: ReturnType<typeof useScan>): boolean {
  return scan.failed !== undefined || (scan.result?.method === 'none' && scan.result.nameservers.length > 0)
}

/** A time in words, from seconds. */
export function lasting(seconds: number): string {
  const [n, unit] = seconds < 120 ? [seconds, 'second'] as const : seconds < 7200 ? [Math.ceil(seconds / 60), 'minute'] as const : seconds < 172_800 ? [Math.ceil(seconds / 3600), 'hour'] as const : [Math.ceil(seconds / 86_400), 'day'] as const
  return plural(n, unit)
}

interface Obstacle {
  title: string
  text: string
  /** The nameservers must not be changed before it is gone. */
  first?: true
  /** It is no reason to wait with the nameservers. */
  advice?: true
  /** Where it is mended. */
  place?: 'import' | 'mail' | 'zone'
}

/** What may stand between a domain and the change of its nameservers, in the order in which it is done. */
const titles: Record<string, Omit<Obstacle, 'text'> & { text?: string }> = {
  remove_ds_first: { title: 'Remove the DS records first', first: true },
  mta_sts_enforced: { title: 'Turn the MTA-STS policy off first', first: true },
  not_imported: { title: 'Some records are not here yet', text: 'The domain has records at its other nameservers that are not here. Import them, or leave them out.', place: 'import' },
  mx_changes: { title: 'Mail comes here with the change', text: 'There is no mailbox for it here yet, so it would be refused. Create the mailboxes first, or keep the mail at its present servers for now.', place: 'mail' },
  proxied: { title: 'Some addresses belong to a proxy', text: 'They stop working once DNS is here. Add the addresses of the servers behind the proxy to the zone, or import these anyway.', place: 'zone' },
  caa_excludes: { title: 'CAA records exclude the certificates of this server', place: 'zone' },
  senders_refused: { title: 'Receivers may refuse mail of your other senders', text: 'Mailstead’s SPF record does not name all servers that send mail of the domain. Import the present SPF record and DMARC policy, or choose a milder DMARC policy.', advice: true },
}

/** What an issue of a domain that is in use means; nothing for other issues. */
export function obstacleOf(issue: Domain['dns_health']['issues'][number]): Obstacle | undefined {
  const known = titles[issue.code]
  return known && { text: wordsOf({ code: '', message: issue.message }), ...known }
}

/** What stands between a domain and the change of its nameservers, what has to be done first before the rest. */
export function obstaclesOf(d: Domain): Obstacle[] {
  const order = Object.keys(titles)
  return d.dns_health.issues.toSorted((a, b) => order.indexOf(a.code) - order.indexOf(b.code)).map((i) => {
    const o = obstacleOf(i)
    return o && i.code === 'remove_ds_first' && d.delegation?.ds.length === 0 ? { ...o, title: 'Wait until the old DS records are forgotten' } : o
  }).filter((o) => o !== undefined)
}

/** Whether the nameservers of a domain are Mailstead’s, and only these. now: those that it has. */
export function isHere(d: Domain, now = d.delegation?.nameservers ?? []): boolean {
  return d.ns_status === 'verified' || (now.length > 0 && now.every((ns) => d.nameservers.includes(ns)))
}

/** Whether the page of a domain shows what the domain has elsewhere. */
export function isInUse(d: Domain): boolean {
  return d.dns_provider === 'builtin' && d.status !== 'deleting' && (d.previous_nameservers.length > 0 || d.dns_health.issues.some((i) => obstacleOf(i)) || d.mx?.mode === 'elsewhere')
}

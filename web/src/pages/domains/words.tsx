// How domains and their records are spoken of.
import type { Schemas } from '../../api/client'
import { plain, wordsOf } from '../../api/wording'
import { Badge, type Tone } from '../../ui'
import { dnsProviders } from '../account/dns-providers'
import { obstacleOf, obstaclesOf } from './scan'

export type Domain = Schemas['Domain']
export type DnsStatus = Schemas['DNSStatus']
export type DnsRecord = Schemas['DNSRecord']
export type Provider = Domain['dns_provider']

/** How a redirect is done, in a few words. */
export function redirectWords(r: NonNullable<Domain['redirect']>): string {
  return (r.permanent ? 'permanent' : 'temporary') + (r.preserve_path ? ', keeps the path' : '')
}

/** How a domain does: its badge, and what is wrong or next in one sentence. */
export interface State { tone: Tone; label: string; text: string }

const health: Record<Domain['dns_health']['status'], [Tone, string]> = {
  healthy: ['ok', 'Healthy'], degraded: ['warn', 'Degraded'], failing: ['bad', 'Failing'], unknown: ['ok', 'Ready'],
}

export function stateOf(d: Domain, reading = false): State {
  switch (d.status) {
    case 'pending_ns':
      if (reading) return { tone: 'info', label: 'Reading records', text: 'Mailstead is reading the records that the domain has now.' }
      return { tone: 'warn', label: 'Action needed', text: obstaclesOf(d)[0]?.title ?? 'The nameservers are not set yet.' }
    case 'pending_dns_records':
      if (d.mx?.mode === 'elsewhere') return { tone: 'warn', label: 'Action needed', text: 'Its mail is still elsewhere. Bring it here when you are ready.' }
      return { tone: 'warn', label: 'Action needed', text: 'Add the DNS records at your DNS provider.' }
    case 'pending':
    case 'in_progress':
      return { tone: 'info', label: 'Setting up', text: detailOf(d) ?? 'Setup continues automatically.' }
    case 'error':
      return { tone: 'bad', label: 'Failed', text: d.error ? wordsOf(d.error) : 'Setup failed.' }
    case 'deleting':
      return { tone: 'none', label: 'Deleting', text: 'The domain and all its mail are being deleted.' }
  }
  if (d.dns_provider === 'external') return { tone: 'ok', label: 'Connected', text: 'Mail is hosted elsewhere.' }
  const [tone, label] = health[d.dns_health.status]
  return { tone, label, text: d.dns_health.issues[0] ? issueWords(d.dns_health.issues[0]).text : '' }
}

/** What the server says of a domain's state, in words that are not those of the API; nothing if there are none. */
export function detailOf(d: Domain): string | undefined {
  return d.status_detail === null ? undefined : plain(d.status_detail.replace(/^[a-z]+(_[a-z]+)+: /, ''))
}

/** What is wrong with a domain's DNS: its name, and what to do. */
export function issueWords(issue: Domain['dns_health']['issues'][number]): { title: string; text: string } {
  const obstacle = obstacleOf(issue)
  if (obstacle) return obstacle
  if (issue.code === 'credential_invalid') return { title: 'The DNS credential is refused', text: 'The DNS provider does not accept it any more, so its records are not kept up to date. Replace the key of the credential.' }
  return { title: `${purposeOf(issue.purpose).name} record is wrong`, text: plain(issue.message) ?? 'Check the record.' }
}

export function StateBadge({ domain, reading }: { domain: Domain; reading?: boolean }) {
  const { tone, label } = stateOf(domain, reading)
  return <Badge tone={tone}>{label}</Badge>
}

export const providerNames: Record<Provider, string> = {
  builtin: 'Mailstead', cloudflare: 'Cloudflare', rfc2136: 'Nameserver', route53: 'Route 53', hetzner: 'Hetzner', desec: 'deSEC', manual: 'Your DNS provider', external: 'Elsewhere',
}

/** Tells whether Mailstead makes the records of a domain by the API of its DNS provider. */
export function byApi(provider: Provider): boolean {
  return provider in dnsProviders
}

interface Purpose { name: string; about: string }

const purposes: Record<string, Purpose> = {
  NS: { name: 'Nameservers', about: 'The servers that answer DNS queries for the domain.' },
  MX: { name: 'MX', about: 'Incoming mail: tells other servers where to deliver mail for the domain. Without it, no mail arrives.' },
  SPF: { name: 'SPF', about: 'Allowed senders: lists the servers that can send mail for the domain. Without it, your mail lands in spam.' },
  DKIM: { name: 'DKIM', about: 'Signature: the public key that lets receivers verify that a message is from you and was not modified.' },
  DMARC: { name: 'DMARC', about: 'Policy for unauthenticated mail: tells receivers what to do with mail that fails both SPF and DKIM.' },
  A: { name: 'Web address', about: 'Points to this server, for web redirects and certificates.' },
  TRACKING: { name: 'Tracking', about: 'Points tracked links to this server.' },
  MTA_STS: { name: 'MTA-STS', about: 'Encrypted delivery: tells other servers to deliver mail to you only over encrypted connections.' },
  TLSRPT: { name: 'TLS-RPT', about: 'TLS reports: asks other servers to report failed encrypted deliveries.' },
  AUTOCONFIG: { name: 'Autoconfig', about: 'Lets Outlook, Thunderbird and phones find their mail settings automatically.' },
  CUSTOM: { name: 'Custom', about: 'A record that you added.' },
}

export function purposeOf(code: string, d?: Domain): Purpose {
  if (code === 'A' && d?.apex?.mode === 'elsewhere') return { ...purposes.A!, about: 'The address of your website. It stays as it is.' }
  return purposes[code] ?? { name: code, about: '' }
}

const faults: Record<string, string> = {
  missing: 'Missing', mismatch: 'Wrong value', multiple_spf: 'Duplicate SPF', dkim_wrong_type: 'CNAME, not TXT', lookup_failed: 'Lookup failed',
}

/** What is wrong with a record, in a few words. */
export function faultOf(r: DnsRecord): string {
  return r.error ? (faults[r.error] ?? r.error) : 'Wrong value'
}

/** Whether Mailstead answers for a domain itself, so that only resolvers can have another value of a record. */
export function isCached(d: Domain): boolean {
  return d.dns_provider === 'builtin' && d.ns_status === 'verified'
}

/** What to do about a record that is wrong. */
export function adviceOf(r: DnsRecord, d: Domain): string {
  const provider = d.dns_provider
  if (r.error === 'lookup_failed') return 'The DNS lookup failed. Mailstead tries again automatically.'
  if (isCached(d)) return 'Mailstead publishes this record. Resolvers keep the old value until its TTL is over.'
  if (provider === 'builtin') return 'Mailstead publishes this record. It is visible once the nameservers point to Mailstead.'
  if (byApi(provider)) return `Mailstead publishes this record at your DNS provider (${providerNames[provider]}). Resolvers usually see it within minutes. If they don’t, set the domain up again.`
  switch (r.error) {
    case 'missing':
      return `Add this ${r.type} record at your DNS provider.`
    case 'multiple_spf':
      return 'A domain can have only one SPF record. Replace the existing ones with this record, which combines them.'
    case 'dkim_wrong_type':
      return 'Delete the CNAME record with this name, then add this TXT record.'
  }
  return `Change the value of the ${r.type} record to this.`
}

const order = ['NS', 'MX', 'SPF', 'DKIM', 'DMARC'] // as the server names the problems of a domain

function rank(purpose: string): number {
  const at = order.indexOf(purpose)
  return purpose === 'A' ? order.length + 1 : at < 0 ? order.length : at
}

/** Records in the order in which they matter: what mail needs and lacks comes first. */
export function byNeed(records: DnsRecord[]): DnsRecord[] {
  const weight = (r: DnsRecord) => (r.verified ? 200 : r.critical && r.error !== 'lookup_failed' ? 0 : 100) + rank(r.purpose)
  return [...records].sort((a, b) => weight(a) - weight(b))
}

/** The names in what somebody pasted: one for each line, or with commas, or the addresses of web pages. */
export function namesIn(text: string): string[] {
  const names = text.split(/[\s,;]+/).map((t) => t.trim().toLowerCase().replace(/^[a-z]+:\/\//, '').replace(/[/?#].*$/, '').replace(/\.$/, ''))
  return [...new Set(names.filter(Boolean))]
}

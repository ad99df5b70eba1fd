// How domains and their records are spoken of.
import type { Schemas } from '../../api/client'
import { wordsOf } from '../../api/wording'
import { Badge, type Tone } from '../../ui'

export type Domain = Schemas['Domain']
export type DnsStatus = Schemas['DNSStatus']
export type DnsRecord = Schemas['DNSRecord']
export type Provider = Domain['dns_provider']

/** How a redirect is done, in a few words. */
export function redirectWords(r: NonNullable<Domain['redirect']>): string {
  return (r.permanent ? 'permanent' : 'temporary') + (r.preserve_path ? ', keeps the rest of the address' : '')
}

/** How a domain does: its badge, and what is wrong or next in one sentence. */
export interface State { tone: Tone; label: string; text: string }

const health: Record<Domain['dns_health']['status'], [Tone, string]> = {
  healthy: ['ok', 'Healthy'], degraded: ['warn', 'Needs a look'], failing: ['bad', 'Failing'], unknown: ['ok', 'Ready'],
}

export function stateOf(d: Domain): State {
  switch (d.status) {
    case 'pending_ns':
      return { tone: 'warn', label: 'Waits for you', text: 'Set its nameservers where you registered it.' }
    case 'pending_dns_records':
      return { tone: 'warn', label: 'Waits for you', text: 'Add its records at your DNS provider.' }
    case 'pending':
    case 'in_progress':
      return { tone: 'info', label: 'Setting up', text: d.status_detail ?? 'This goes on by itself.' }
    case 'error':
      return { tone: 'bad', label: 'Failed', text: d.error ? wordsOf(d.error) : 'The setup failed.' }
    case 'deleting':
      return { tone: 'none', label: 'Deleting', text: 'It is being deleted with all its mail.' }
  }
  if (d.dns_provider === 'external') return { tone: 'ok', label: 'Connected', text: 'Its mail is hosted elsewhere.' }
  const [tone, label] = health[d.dns_health.status]
  return { tone, label, text: d.dns_health.issues[0]?.message ?? '' }
}

/** Tells whether its owner should do something about the domain. */
export function needsYou(d: Domain): boolean {
  return ['warn', 'bad'].includes(stateOf(d).tone)
}

export function StateBadge({ domain }: { domain: Domain }) {
  const { tone, label } = stateOf(domain)
  return <Badge tone={tone}>{label}</Badge>
}

export const providerNames: Record<Provider, string> = {
  builtin: 'Mailstead’s DNS', cloudflare: 'Cloudflare', manual: 'Your own DNS', external: 'Hosted elsewhere',
}

interface Purpose { name: string; about: string }

const purposes: Record<string, Purpose> = {
  NS: { name: 'Nameservers', about: 'Say which servers answer for the domain.' },
  MX: { name: 'Incoming mail', about: 'MX: tells other servers where to deliver mail for the domain. Without it none arrives.' },
  SPF: { name: 'Allowed senders', about: 'SPF: lists the servers that may send in the domain’s name. Without it your mail lands in spam.' },
  DKIM: { name: 'Signature', about: 'DKIM: the public key by which receivers see that a message is yours and was not changed.' },
  DMARC: { name: 'Protection from fakes', about: 'DMARC: tells receivers what to do with mail that only pretends to be from you.' },
  A: { name: 'Address', about: 'Leads to this server, for web redirects and certificates.' },
  TRACKING: { name: 'Tracking', about: 'Leads tracked links to this server.' },
  MTA_STS: { name: 'Encrypted delivery', about: 'MTA-STS: has other servers deliver mail to you over encrypted connections only.' },
  TLSRPT: { name: 'Encryption reports', about: 'TLS-RPT: asks other servers to report when an encrypted delivery fails.' },
  AUTOCONFIG: { name: 'Mail program settings', about: 'Lets Outlook, Thunderbird and phones find their settings by themselves.' },
  CUSTOM: { name: 'Your own', about: 'A record that you added.' },
}

export function purposeOf(code: string): Purpose {
  return purposes[code] ?? { name: code, about: '' }
}

const faults: Record<string, string> = {
  missing: 'Not found', mismatch: 'Another value', multiple_spf: 'More than one SPF', dkim_wrong_type: 'A CNAME, must be TXT', lookup_failed: 'No answer yet',
}

/** What is wrong with a record, in a few words. */
export function faultOf(r: DnsRecord): string {
  return r.error ? (faults[r.error] ?? r.error) : 'Not as expected'
}

/** What to do about a record that is wrong. */
export function adviceOf(r: DnsRecord, provider: Provider): string {
  if (r.error === 'lookup_failed') return 'The DNS gave no answer. It is looked up again by itself.'
  if (provider === 'builtin') return 'Mailstead serves this record itself; it is seen as soon as the nameservers lead here.'
  if (provider === 'cloudflare') return 'Mailstead makes this record at Cloudflare. Set the domain up again to have it made anew.'
  switch (r.error) {
    case 'missing':
      return `Add this ${r.type} record at your DNS provider.`
    case 'multiple_spf':
      return 'There may be only one SPF record. Replace those that are there by this one, which says what they say together.'
    case 'dkim_wrong_type':
      return 'Delete the CNAME of this name and add this TXT record.'
  }
  return `Change the ${r.type} record to this value.`
}

const order = ['MX', 'SPF', 'DKIM', 'DMARC', 'A']

function rank(purpose: string): number {
  const at = order.indexOf(purpose)
  return at < 0 ? order.length : at
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

// Settings as the page has them: their groups and names, and their values while they are edited.
import type { Schemas } from '../../api/client'
import { capital } from '../../api/wording'

export type Setting = Schemas['Setting']
export type Value = string | number | boolean | string[] | null

/**
 * A value while it is edited: the text of its field, whether a switch is on, or null for the
 * default.
 */
export type Draft = string | boolean | null

/**
 * The groups, with the tables of the settings file that each has; '' stands for keys without a
 * table.
 */
const groups: [id: string, title: string, tables: string[], note?: string][] = [
  ['general', 'General', ['', 'log']],
  ['relay', 'Relays', ['relay'], 'Servers of mail providers that mail to others can leave through. The first one is the default.'],
  ['destination', 'Destinations', ['destination'], 'How fast mail goes to a large mail operator. What is not set here is as in Mailstead’s own table.'],
  ['sending', 'Sending', ['sending'], 'Mail that goes straight to the servers of its recipients.'],
  ['spam', 'Incoming mail', ['spam'], 'How mail from other servers is screened.'],
  ['limits', 'Limits', ['limits'], 'For each account, unless the account has limits of its own.'],
  ['retention', 'Retention', ['retention']],
  ['doctor', 'Checks', ['doctor'], 'What the checks of this host look at.'],
  ['alerts', 'Alerts', ['alerts']],
  ['backup', 'Backups', ['backup', 's3', 'objects']],
  ['registrar', 'Registrars', ['registrar'], 'Where domains are bought, in this order.'],
  ['dns', 'DNS', ['dns']],
  ['providers', 'DNS providers and RDAP', ['cloudflare', 'route53', 'hetzner', 'desec', 'rdap']],
  ['metrics', 'Metrics', ['metrics']],
  ['otlp', 'Traces', ['otlp']],
  ['operator', 'Other accounts', ['operator']],
  ['simulator', 'Simulator', ['simulator'], 'Addresses that play recipients, for tests.'],
  ['sandbox', 'Clock of the sandbox', ['sandbox']],
]

export interface Group { id: string; title: string; note?: string; settings: Setting[] }

/** The settings in their groups. A table that no group has is a group of its own. */
export function groupsOf(settings: Setting[]): Group[] {
  const out: Group[] = groups.map(([id, title, , note]) => ({ id, title, note, settings: [] }))
  for (const s of settings) {
    const table = s.key.includes('.') ? s.key.split('.')[0]! : ''
    const id = groups.find(([, , tables]) => tables.includes(table))?.[0] ?? table
    let group = out.find((g) => g.id === id)
    if (!group) out.push(group = { id, title: named(table), settings: [] })
    group.settings.push(s)
  }
  return out.filter((g) => g.settings.length > 0 || lists.includes(g.id))
}

/** Lists of the file whose entries can be added and deleted. */
export const lists = ['relay', 'destination']

const entryKey = /^(relay|destination|dns\.secondaries)\.("(?:[^"\\]|\\.)*")(?:\.(\w+))?$/
const registrarKey = /^(registrar)\.(namecom|cloudflare)\.(\w+)$/

/**
 * What the key of a setting in an entry names: its list, the entry and the setting; nothing for
 * other keys.
 */
export function entryOf(key: string): { list: string; entry: string; name: string } | undefined {
  const [, list, quoted, name = ''] = entryKey.exec(key) ?? []
  if (list) return { list, entry: JSON.parse(quoted!) as string, name }
  const [, registrar, entry, field] = registrarKey.exec(key) ?? []
  return registrar ? { list: registrar, entry: entry!, name: field! } : undefined
}

/** The key of an entry, or of a setting in it. */
export function keyOf(list: string, entry: string, name?: string): string {
  return `${list}.${list === 'registrar' ? entry : JSON.stringify(entry)}` + (name ? '.' + name : '')
}

const names: Record<string, string> = {
  http: 'HTTP listener', http_tls: 'HTTPS listener', smtp: 'SMTP listener', submission: 'Submission listener', submissions: 'Submission listener, TLS from the start', imap: 'IMAP listener',
  imaps: 'IMAP listener, TLS from the start', dns: 'DNS listener', outbound: 'Outgoing mail', tls_cert: 'TLS certificate', tls_key: 'TLS key', acme_directory: 'Certificate authority', acme_email: 'Contact for the certificate authority',
  public_ip: 'Public IP addresses', trusted_proxy: 'Trusted proxies', resolver: 'DNS resolver', ca_file: 'Additional certificate authorities', 'limits.plan': 'Plan of new accounts', 'limits.team_users': 'Team members', 'limits.exempt_networks': 'Networks without limits',
  'spam.dnsbl': 'DNS block lists', 'spam.dnsbl_action': 'Mail from hosts on a block list', 'spam.milter': 'Mail filter (milter)', 'spam.milter_timeout': 'Timeout of the mail filter', 'spam.trusted_sealers': 'Trusted ARC sealers', 'spam.dmarc_reports': 'Send DMARC reports',
  'spam.classifier': 'Spam filter', 'spam.first_sender_delay': 'Delay of unknown senders', 'sending.helo': 'EHLO name', 'backup.to': 'Backup destination', 'backup.every': 'Backup interval', 'backup.full_every': 'Full backup interval', 'backup.keep': 'Backup retention',
  'backup.drill': 'Drill interval', 'backup.sync': 'Synchronous backups', 'backup.age_recipients': 'Encryption recipients', 'retention.trash_days': 'Days in Trash', 'retention.junk_days': 'Days in Junk', 'retention.request_days': 'Days in the request log',
  'alerts.url': 'Alert URL', 'simulator.enabled': 'Simulated recipients', 'registrar.sandbox': 'Sandbox registrar', 'operator.sign_in_links': 'Sign-in links', 'doctor.port25_targets': 'Servers to try port 25 with', 'metrics.allowed_networks': 'Networks that may read metrics',
  'otlp.endpoint': 'OpenTelemetry collector', 'log.level': 'Log level', allow_private_destinations: 'Private destinations', 'sandbox.clock_offset': 'Clock offset',
}

const terms: Record<string, string> = {
  acme: 'ACME', api: 'API', arn: 'ARN', ca: 'CA', dkim: 'DKIM', dns: 'DNS', eab: 'EAB', hmac: 'HMAC', id: 'ID', imap: 'IMAP', ip: 'IP', ipv4: 'IPv4', ipv6: 'IPv6', kid: 'key ID', mx: 'MX', rdap: 'RDAP', s3: 'S3', ses: 'SES', smtp: 'SMTP', sns: 'SNS',
  tls: 'TLS', tsig: 'TSIG', url: 'URL', desec: 'deSEC', namecom: 'name.com',
}

/** The words of a name such as max_age, with the terms of the field as they are written. */
function named(text: string): string {
  return capital(text.split('_').map((word) => terms[word] ?? word).join(' '))
}

const tables: Record<string, string> = { cloudflare: 'Cloudflare', route53: 'Route 53', hetzner: 'Hetzner', desec: 'deSEC', rdap: 'RDAP', s3: 'S3' }

/** The name of a setting for people. */
export function nameOf(key: string): string {
  const known = names[key]
  if (known) return known
  const of = entryOf(key)
  if (of) return `${of.entry}: ${named(of.name)}`
  const [table, ...rest] = key.split('.')
  if (rest.length === 0) return named(table!)
  return tables[table!] ? `${tables[table!]} ${named(rest.join('_')).replace(/^[A-Z](?=[a-z])/, (c) => c.toLowerCase())}` : named(rest.join('_'))
}

/** Whether a setting, or the group that it is in, has every word that was typed. */
export function fits(s: Setting, group: string, typed: string): boolean {
  const text = [s.key, s.key.replace(/[_."]/g, ' '), nameOf(s.key), s.description, group].join(' ').toLowerCase()
  return typed.toLowerCase().split(/\s+/).every((word) => text.includes(word))
}

/** Whether something other than the store sets the value, so that it cannot be changed here. */
export function isFixed(s: Setting): boolean {
  return s.source === 'flag' || s.source === 'environment' || s.source === 'file'
}

/** Where a value comes from. */
export function originOf(s: Pick<Setting, 'source' | 'line'>): string {
  switch (s.source) {
    case 'file':
      return s.line === null ? 'Set in the file' : `Set in the file, line ${s.line}`
    case 'environment':
      return 'Set by an environment variable'
    case 'flag':
      return 'Set by a command-line flag'
    case 'store':
      return 'Set here'
  }
  return 'Default'
}

/** What the field of a setting shows before it is edited. */
export function draftOf(type: string, value: Value): string | boolean {
  if (type === 'boolean') return value === true
  if (Array.isArray(value)) return value.join('\n')
  return value === null || typeof value === 'boolean' ? '' : String(value)
}

/** The value that is sent for a draft; null removes the value from the store. */
export function valueOf(type: string, draft: Draft): Value {
  if (draft === null || typeof draft === 'boolean') return draft
  if (type === 'list') return draft.split('\n').map((line) => line.trim()).filter(Boolean)
  const text = draft.trim()
  if (text === '') return null
  return (type === 'integer' || type === 'number') && !isNaN(Number(text)) ? Number(text) : text
}

/** A value in words, for those that cannot be edited. */
export function written(value: Value): string[] {
  if (value === null) return []
  if (typeof value === 'boolean') return [value ? 'On' : 'Off']
  return Array.isArray(value) ? value : [String(value)]
}

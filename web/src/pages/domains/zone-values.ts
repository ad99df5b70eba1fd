// The types of records that one may add, with the fields of a value, and how values are written.
import type { Schemas } from '../../api/client'
import type { Pages } from '../../api/query'

export type RecordSet = Schemas['RecordSet']

/** A field of a value. */
export interface Part { label: string; placeholder: string; hint?: string; most?: number; preset?: string; list?: string[] }

interface Kind { about: string; name: string; parts: Part[]; single?: true }

const number = (label: string, most: number, preset: string): Part => ({ label, placeholder: preset, most, preset })
const host = (label: string, placeholder: string, hint?: string): Part => ({ label, placeholder, hint })
const text = (placeholder: string, hint: string): Part[] => [{ label: 'Value', placeholder, hint }]

export const kinds = {
  A: { about: 'IPv4 address', name: 'www', parts: [{ label: 'IPv4 address', placeholder: '192.0.2.10' }] },
  AAAA: { about: 'IPv6 address', name: 'www', parts: [{ label: 'IPv6 address', placeholder: '2001:db8::10' }] },
  CNAME: { about: 'alias of another hostname', name: 'shop', parts: [host('Target', 'sites.example.net', 'The target hostname. No other record can have the same name.')], single: true },
  TXT: { about: 'text', name: '@', parts: [{ label: 'Text', placeholder: 'google-site-verification=…', hint: 'Enter the text without quotation marks.' }] },
  MX: { about: 'mail server', name: 'news', parts: [number('Priority', 65535, '10'), host('Mail server', 'mx.example.net')] },
  NS: { about: 'nameserver of a subdomain', name: 'lab', parts: [host('Nameserver', 'ns1.example.net')] },
  SRV: { about: 'location of a service', name: '_sip._tcp', parts: [number('Priority', 65535, '10'), number('Weight', 65535, '5'), number('Port', 65535, '443'), host('Host', 'sip.example.net')] },
  CAA: { about: 'allowed certificate authority', name: '@', parts: [number('Flags', 255, '0'), { label: 'Tag', placeholder: 'issue', preset: 'issue', list: ['issue', 'issuewild', 'issuemail', 'iodef'] }, { label: 'Value', placeholder: 'letsencrypt.org' }] },
  TLSA: { about: 'certificate of a service (DANE)', name: '_443._tcp.www', parts: text('3 1 1 0d6fce13…', 'Usage, selector, matching type, and the certificate’s digest in hex.') },
  SSHFP: { about: 'SSH host key', name: 'server', parts: text('4 2 123456789a…', 'Algorithm, fingerprint type, and the fingerprint in hex. On the host, ssh-keygen -r prints it.') },
  HTTPS: { about: 'how to reach a website', name: 'www', parts: text('1 . alpn="h2,h3"', 'Priority, target and parameters. A dot as the target means the name itself.') },
  SVCB: { about: 'how to reach a service', name: '_dns', parts: text('1 dns.example.net alpn="dot"', 'Priority, target and parameters. A dot as the target means the name itself.') },
  DS: { about: 'DNSSEC key of a subdomain', name: 'lab', parts: text('12345 13 2 49fd46e6…', 'Key tag, algorithm, digest type, and the digest in hex. The name also needs NS records.') },
} satisfies Record<string, Kind>

export type Type = keyof typeof kinds
export const types = Object.keys(kinds) as Type[]

export function kindOf(type: Type): Kind {
  return kinds[type]
}

/** The fields of a new value. */
export function emptyValue(type: Type): string[] {
  return kindOf(type).parts.map((p) => p.preset ?? '')
}

/** Whether nobody has entered anything into a value. */
export function isEmpty(type: Type, fields: string[]): boolean {
  return kindOf(type).parts.every((p, i) => fields[i]!.trim() === '' || fields[i] === p.preset)
}

/** A text without the quotes and escapes of zone files (RFC 1035 section 5.1), or as it is if it has no quotes. */
function unquoted(value: string): string {
  const strings = value.match(/"(?:[^"\\]|\\.)*"/g)
  if (!value.startsWith('"') || !strings || strings.join('').length !== value.replace(/"[ \t]+"/g, '""').length) return value
  const bytes: number[] = []
  for (const [, byte, char, rest] of strings.map((s) => s.slice(1, -1)).join('').matchAll(/\\(\d{3})|\\(.)|([^\\]+)/g)) {
    if (byte) bytes.push(Number(byte))
    else bytes.push(...new TextEncoder().encode(char ?? rest))
  }
  return new TextDecoder().decode(new Uint8Array(bytes))
}

/** The fields of a value. */
export function fieldsOf(type: Type, value: string): string[] {
  if (type === 'TXT') {
    const text = unquoted(value)
    return [text.startsWith('"') ? value : text]
  }
  const n = kindOf(type).parts.length
  if (n === 1) return [value]
  const words = value.split(' ')
  const last = words.slice(n - 1).join(' ')
  return [...words.slice(0, n - 1), type === 'CAA' ? unquoted(last) : last]
}

/** The value of fields. */
export function valueOf(type: Type, fields: string[]): string {
  const trimmed = fields.map((f) => f.trim())
  if (type === 'CAA') trimmed[2] = `"${unquoted(trimmed[2]!)}"`
  return trimmed.join(' ')
}

/** A value as it is shown: texts stand without quotes. */
export function shown(type: string, value: string): string {
  return type === 'TXT' ? unquoted(value) : value
}

/** What is plainly wrong with a field, before the server is asked. */
export function wrongIn(type: Type, part: Part, field: string): string | undefined {
  const v = field.trim()
  if (v === '') return
  if (part.most !== undefined && !(/^\d+$/.test(v) && Number(v) <= part.most)) return `Enter a number from 0 to ${part.most}.`
  if (type === 'A' && !(/^\d{1,3}(\.\d{1,3}){3}$/.test(v) && v.split('.').every((n) => Number(n) <= 255))) return 'This is not an IPv4 address. Example: 192.0.2.10'
  if (type === 'AAAA' && !/^[0-9a-f:.]*:[0-9a-f:.]*$/i.test(v)) return 'This is not an IPv6 address. Example: 2001:db8::10'
  if (['CNAME', 'MX', 'NS', 'SRV'].includes(type) && part.most === undefined && /[\s/]/.test(v)) return 'Enter a hostname only, without https:// or a path.'
}

/** A name as the zone lists it: relative to the domain, `@` for the domain itself. */
export function relative(name: string, domain: string): string {
  const whole = name.trim().toLowerCase().replace(/\.$/, '')
  if (whole === '' || whole === domain) return '@'
  return whole.endsWith('.' + domain) ? whole.slice(0, -domain.length - 1) : whole
}

/** The whole name of a record. */
export function fqdn(name: string, domain: string): string {
  return name === '@' ? domain : `${name}.${domain}`
}

export function seconds(n: number): string {
  if (n % 86_400 === 0) return `${n / 86_400} d`
  if (n % 3600 === 0) return `${n / 3600} h`
  return n % 60 === 0 ? `${n / 60} min` : `${n} s`
}

/** What tells the record sets of one source apart. */
export function keyOf(r: { name: string; type: string }): string {
  return r.name + ' ' + r.type
}

/** A list that is here as a whole. */
export function whole<T>(items: T[], reload = async () => {}): Pages<T> {
  return { items, error: undefined, loading: false, more: false, loadMore: () => {}, reload, drop: () => {}, patch: () => {} }
}

// What errors are called on screen: one table of codes, in words of the dashboard, with the place
// where each is mended.
import table from './wordings.json'

interface Wording { text: string; href?: string; link?: string; request?: boolean }
interface Detail { field: string; code: string; message: string }

/** What the server says about a fault: in the answer to a request, in a job, or in a domain. */
export interface Fault { code: string; message: string; details?: Detail[]; requestId?: string; retryAfter?: number }

/** Where something is mended. */
export interface Mend { href: string; link: string }

const codes: Record<string, Wording | undefined> = table.codes
const verdicts: Record<string, string | undefined> = table.details
const fields: Record<string, string | undefined> = table.fields

const names = /\S+[.@]\S+/g // of hosts and the like, which may have an underscore
const apiTerms = /\/v1\b|\b(GET|POST|PUT|PATCH|DELETE)\b|[A-Za-z0-9]_[a-z]|`|\bJSON\b/

/** A text of the server, if it does not speak of the API. quotes: what it quotes are the viewer's own words. */
export function plain(text: string, quotes = false): string | undefined {
  const server = quotes ? text.replace(/"[^"]*"/g, '') : text
  return text.includes('mailstead.toml') || apiTerms.test(server.replace(names, '')) ? undefined : text
}

/** A fault in the dashboard's words. */
export function wordsOf(f: Fault): string {
  const details = f.details ?? detailIn(f)
  if (['validation_error', 'too_many_items', 'invalid_record'].includes(f.code) && details.length > 0) return details.map(sentence).join(' ')
  const known = codes[f.code]
  if (!known) return ended(plain(f.message) || 'Something went wrong. Try again.')
  const text = known.text.replace('{message}', () => ended(plain(f.message, f.code === 'invalid_domain') ?? '')).replace('{wait}', waitOf(f.retryAfter ?? 0)).trim()
  return known.request && f.requestId ? `${text} Request ID: ${f.requestId}` : text || 'Something went wrong. Try again.'
}

/** A fault in the words of the server alone, as items of a list have it: some begin with their code. */
export function faultIn(text: string): Fault {
  const [, code = '', message = ''] = /^([a-z_]+): (.+)/s.exec(text) ?? []
  return codes[code] ? { code, message } : { code: '', message: text }
}

/** Where a fault is mended, if the dashboard has such a place. */
export function mendOf(f: Fault): Mend | undefined {
  const known = codes[f.code]
  const field = f.details?.[0]?.field
  if (!known?.href || !known.link || (known.href.includes('{field}') && !field)) return
  return { href: known.href.replace('{field}', () => encodeURIComponent(field!)), link: known.link }
}

/** What is wrong with one field, for the place below it. */
export function wrongWith(d: Detail): string {
  return capital(plain(d.message) ?? verdicts[d.code] ?? verdicts['invalid']!)
}

/** The detail of a fault that has it in its message alone, as those of the items of a list do. */
function detailIn({ code, message }: Fault): Detail[] {
  const [, field, text] = /^([a-z_.0-9]+): (.+)/.exec(message) ?? []
  return code === 'validation_error' && field && text ? [{ field, code: 'invalid', message: text }] : []
}

const verb = /^(must|is|are|has|have|names|cannot|takes|needs|comes|was|may|leads|stands|holds)\b/

/** What is wrong with one field, where the field is not seen. */
function sentence(d: Detail): string {
  const text = plain(d.message) ?? verdicts[d.code] ?? verdicts['invalid']!
  const field = d.field.split(/[.[\]]/).findLast((part) => /[a-z]/i.test(part)) ?? ''
  return ended(verb.test(text) ? `${fields[field] ?? capital(field.replaceAll('_', ' '))} ${text}` : capital(text))
}

function waitOf(seconds: number): string {
  if (seconds <= 0) return 'later'
  if (seconds < 100) return `in ${Math.ceil(seconds)} s`
  return seconds < 5400 ? `in ${Math.ceil(seconds / 60)} minutes` : `in ${Math.ceil(seconds / 3600)} hours`
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

function ended(text: string): string {
  return text === '' || /[.!?]$/.test(text) ? text : text + '.'
}

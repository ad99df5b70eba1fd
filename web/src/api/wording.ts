// What errors are called on screen: one table of codes, in words of the dashboard, with the place
// where each is mended. Codes that are marked `people` are met by people with a mailbox too, whose
// pages have them in other languages (src/words).
import { language, t, textOf, tn } from '../words'
import table from './wordings.json'

interface Wording {
  text: string
  href?: string
  link?: string
  request?: boolean
  people?: boolean
  /** The server's texts are for the operator, who knows the settings file. */
  verbatim?: boolean
}
interface Detail { field: string; code: string; message: string }

/** What the server says about a fault: in the answer to a request, in a job, or in a domain. */
export interface Fault { code: string; message: string; details?: Detail[]; requestId?: string; retryAfter?: number }

/** Where something is mended. */
export interface Mend { href: string; link: string }

const codes: Record<string, Wording | undefined> = table.codes
const fields: Record<string, string | undefined> = table.fields

const names = /\S+[.@]\S+/g // of hosts and the like, which may have an underscore
const apiTerms = /\/v1\b|\b(GET|POST|PUT|PATCH|DELETE)\b|[A-Za-z0-9]_[a-z]|`|\bJSON\b/

/**
 * A text of the server, if it is in the language of the page and does not speak of the API. quotes:
 * what it quotes are the viewer's own words.
 */
export function plain(text: string, quotes = false): string | undefined {
  if (language.value !== 'en') return undefined
  const server = quotes ? text.replace(/"[^"]*"/g, '') : text
  return text.includes('mailstead.toml') || apiTerms.test(server.replace(names, '')) ? undefined : text
}

/** A fault in the dashboard's words. */
export function wordsOf(f: Fault): string {
  const details = f.details ?? detailIn(f)
  if (['validation_error', 'too_many_items', 'invalid_record'].includes(f.code) && details.length > 0) return details.map(sentence).join(' ')
  const known = codes[f.code]
  if (!known) return ended(plain(f.message) || t('error.unknown'))
  const text = (textOf('error.' + f.code) ?? known.text).replace('{message}', () => ended((known.verbatim ? f.message : plain(f.message, f.code === 'invalid_domain')) ?? '')).replace('{wait}', waitOf(f.retryAfter ?? 0)).trim()
  return known.request && f.requestId ? `${text} ${t('error.request', { id: f.requestId })}` : text || t('error.unknown')
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

/** What is wrong with one field, for the place below it. of is the code of the whole error. */
export function wrongWith(d: Detail, of = ''): string {
  return capital((codes[of]?.verbatim ? d.message : plain(d.message)) ?? verdictOn(d))
}

const range = /^must have (?:from )?(\d+) to (\d+) characters\b/, atMost = /^must have at most (\d+) characters\b/

/** What is wrong with a field, in words of the page. */
function verdictOn({ code, message }: Detail): string {
  const [, from, to] = range.exec(message) ?? []
  if (from && to) return t('error.field.range', { from, to })
  const [, most] = atMost.exec(message) ?? []
  if (most) return t('error.field.at_most', { n: most })
  return textOf('detail.' + code) ?? t('detail.invalid')
}

/** The detail of a fault that has it in its message alone, as those of the items of a list do. */
function detailIn({ code, message }: Fault): Detail[] {
  const [, field, text] = /^([a-z_.0-9]+): (.+)/.exec(message) ?? []
  return code === 'validation_error' && field && text ? [{ field, code: 'invalid', message: text }] : []
}

const verb = /^(must|is|are|has|have|names|cannot|takes|needs|comes|was|may|leads|stands|holds)\b/

/** What is wrong with one field, where the field is not seen. */
function sentence(d: Detail): string {
  const text = plain(d.message) ?? verdictOn(d)
  const field = d.field.split(/[.[\]]/).findLast((part) => /[a-z]/i.test(part)) ?? ''
  const name = textOf('field.' + field)
  if (language.value !== 'en') return ended(name ? t('error.field', { field: name, text }) : t('error.validation_error'))
  return ended(verb.test(text) ? t('error.field', { field: name ?? fields[field] ?? capital(field.replaceAll('_', ' ')), text }) : capital(text))
}

function waitOf(seconds: number): string {
  if (seconds <= 0) return t('error.wait.later')
  if (seconds < 100) return t('error.wait.seconds', { n: Math.ceil(seconds) })
  return seconds < 5400 ? tn('error.wait.minutes', Math.ceil(seconds / 60)) : tn('error.wait.hours', Math.ceil(seconds / 3600))
}

/** The text as a sentence begins, unless it begins with a name such as example.com. */
export function capital(text: string): string {
  return /^\S*[.@_]\w/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1)
}

function ended(text: string): string {
  return text === '' || /[.!?]$/.test(text) ? text : text + '.'
}

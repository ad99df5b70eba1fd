// Messages that are being written. They are kept until they are sent, and outlive a reload of the page: texts in the
// session's storage, files in a database of the browser. Once the writer pauses they are saved in the Drafts folder of the
// mailbox too, where other devices find them (saving.ts).
import { effect, signal } from '@preact/signals'
import type { Dropped } from './clean'
import { call, fetched, session, type Schemas } from '../../../api/client'
import { failed } from '../../../ui'
import { locale, t } from '../../../words'
import { inFolder, type Message } from '../actions'
import { emailOf, nameOf, without } from '../people'
import { pathOf } from '../source'
import { dropFiles, keepFiles, keptFiles } from './kept'
import { htmlOfLines, plainOf } from './quote'

export type Way = 'reply' | 'all' | 'forward'

export interface Draft {
  key: string
  kind: 'new' | 'reply' | 'forward' | 'draft'
  /** The mailbox that sends, by id and address. '' is none yet. */
  from: { user_id: string; email: string }
  to: string[]
  cc: string[]
  bcc: string[]
  subject: string
  /** What it says as plain text. */
  text: string
  /** What it says with its formatting; nothing where it has none. */
  html?: string
  /** The HTML is that of another program: the editor has not taken it yet. */
  foreign?: boolean
  /** What of that HTML cannot be kept. */
  dropped?: Dropped[]
  /** The names of the files that are images in the text, by their Content-IDs. */
  inline?: Record<string, string>
  /** When it is to be sent, as an input has it in the viewer's zone; '' or nothing is at once. */
  send_at?: string
  in_reply_to?: string
  references?: string[]
  files: File[]
  /** What files there are or are to be, for when the page is loaded again. */
  had?: { name: string; size: number }[]
  /** Names of files that were not kept: they have to be attached again. */
  lost?: string[]
  /** Files that are still being fetched. */
  fetching?: boolean
  /** The address of the mailbox that stands in From; nothing is its own. */
  as?: string
  /** The signature that the text was begun with. */
  signature?: string
  /** Where it is saved on the server. */
  saved?: { user_id: string; uid: string }
}

/** A place where a draft is kept; each user has their own. */
const place = (key: string) => `draft ${session.value?.user.id} ${key}`
const drafts = new Map<string, Draft>()

/** The draft that is open beside what one reads, by its key. */
export const docked = signal<string | null>(null)

/** The message under which its answers are written, by its id, while it is in view. */
export const under = signal<string | null>(null)

/** Whether a draft answers a message, or passes it on. */
export function isAbout(key: string, id: string): boolean {
  return key === 'reply ' + id || key === 'forward ' + id
}

effect(() => {
  if (session.value === null) docked.value = null // who signs in next has not opened it
})

/** Counts changes of drafts, so that who shows one hears of them. */
export const changed = signal(0)

function blank(key: string): Draft {
  return { key, kind: 'new', from: { user_id: '', email: '' }, to: [], cc: [], bcc: [], subject: '', text: '', files: [] }
}

/** The draft of a key, as it was left, or an empty one. */
export function draftOf(key: string): Draft {
  let d = drafts.get(place(key))
  if (!d) {
    d = stored(key) ?? blank(key)
    drafts.set(place(key), d)
  }
  return d
}

function stored(key: string): Draft | undefined {
  try {
    const text = sessionStorage.getItem(place(key))
    if (!text) return undefined
    const d: Draft = { ...blank(key), ...(JSON.parse(text) as Partial<Draft>), files: [] }
    if (d.had?.length) {
      d.fetching = true
      void restore(key, d.had)
    }
    return d
  } catch {
    return undefined // storage may be forbidden
  }
}

/** Takes the files of a draft from where they are kept. */
async function restore(key: string, had: { name: string; size: number }[]) {
  const files = await keptFiles(place(key))
  const d = drafts.get(place(key))
  if (!d) return
  const lost = had.filter((h) => !files.some((f) => f.name === h.name && (f.size === h.size || h.size < 0))).map((h) => h.name)
  change(key, { fetching: false, files: [...files, ...d.files], lost: [...(d.lost ?? []), ...lost] })
}

export function change(key: string, to: Partial<Draft>) {
  const d = { ...draftOf(key), ...to }
  if (to.files) {
    if (!d.fetching) d.had = d.files.map(({ name, size }) => ({ name, size }))
    keepFiles(place(key), d.files)
  }
  drafts.set(place(key), d)
  const { files: _, fetching: __, ...kept } = d
  try {
    sessionStorage.setItem(place(key), JSON.stringify(kept))
  } catch {
    // full or forbidden: then it lives as long as the page
  }
  changed.value++
}

/** The file of an image in the text; undefined if it is not there. */
export function imageOf(d: Draft, cid: string): File | undefined {
  const name = d.inline?.[cid]
  return name === undefined ? undefined : d.files.find((f) => f.name === name)
}

/** So many random bytes in hex. crypto.randomUUID is there over HTTPS alone. */
export function randomHex(bytes: number): string {
  return [...crypto.getRandomValues(new Uint8Array(bytes))].map((n) => n.toString(16).padStart(2, '0')).join('')
}

const shownImage = /<img src="cid:([^"]+)"[^>]*>/g // as the editor writes it

/**
 * The files that go with a draft: those that are attached, and the images that stand in its text.
 */
export function filesOf(d: Draft): { attached: File[]; images: { cid: string; file: File }[] } {
  const images: { cid: string; file: File }[] = []
  for (const [, cid] of (d.html ?? '').matchAll(shownImage)) {
    const file = imageOf(d, cid!)
    if (file && !images.some((i) => i.cid === cid)) images.push({ cid: cid!, file })
  }
  const inline = new Set(Object.values(d.inline ?? {}))
  return { attached: d.files.filter((f) => !inline.has(f.name)), images }
}

/** The HTML of a draft, without the images whose files are lost. */
export function sentHTML(d: Draft): string | undefined {
  return d.html?.replace(shownImage, (image, cid: string) => (imageOf(d, cid) ? image : ''))
}

/** A name that no other file of the draft has. */
export function freeName(d: Draft, name: string): string {
  const taken = new Set([...d.files.map((f) => f.name), ...(d.had ?? []).map((f) => f.name)])
  const dot = name.lastIndexOf('.') > 0 ? name.lastIndexOf('.') : name.length
  let free = name
  for (let n = 2; taken.has(free); n++) free = `${name.slice(0, dot)}-${n}${name.slice(dot)}`
  return free
}

/** Attaches files to a draft. */
export function attach(key: string, files: File[]) {
  const d = draftOf(key), inline = new Set(Object.values(d.inline ?? {}))
  const more = files.map((f) => (inline.has(f.name) ? new File([f], freeName(d, f.name), { type: f.type }) : f))
  change(key, { files: [...d.files, ...more], lost: d.lost?.filter((name) => !files.some((f) => f.name === name)) })
}

/** Throws a draft away. */
export function discard(key: string) {
  drafts.delete(place(key))
  dropFiles(place(key))
  try {
    sessionStorage.removeItem(place(key))
  } catch {
    // as above
  }
  if (docked.value === key) docked.value = null
  changed.value++
}

/** Whether anything would be lost. */
export function isEmpty(d: Draft): boolean {
  return d.to.length + d.cc.length + d.bcc.length + d.files.length + (d.lost?.length ?? 0) === 0 && !d.fetching && d.subject.trim() === '' && d.text.trim() === (d.signature ?? '').trim()
}

/** Whether a draft was begun that was not sent or thrown away. */
export function isBegun(key: string): boolean {
  return !isEmpty(draftOf(key))
}

/**
 * Opens the draft of a new message in the dock. An empty one is from the mailbox in view, else from
 * the last that sent.
 */
export function composeNew(mailbox: string | null) {
  if (isEmpty(draftOf('new'))) change('new', { from: { user_id: '', email: mailbox ?? '' } })
  docked.value = 'new'
}

const senderPlace = () => `sender ${session.value?.user.id}`

/** The address that the viewer sent from last, in this browser; '' if it is not known. */
export function lastSender(): string {
  try {
    return localStorage.getItem(senderPlace()) ?? ''
  } catch {
    return '' // storage may be forbidden
  }
}

export function rememberSender(email: string) {
  try {
    localStorage.setItem(senderPlace(), email)
  } catch {
    // as above
  }
}

/** Begins an answer to a message, or passes it on, unless that was begun before; then it goes on. */
export async function replyTo(m: Message, way: Way) {
  const key = `${way === 'forward' ? 'forward' : 'reply'} ${m.id}`
  const before = draftOf(key)
  if (!isEmpty(before)) {
    if (way === 'all') change(key, { cc: without([...before.cc, ...othersOf(m)], [...before.to, m.mailbox]) })
    docked.value = key
    return
  }
  try {
    const detail = await call('get_message', { user_id: m.user_id, message_id: m.uid, folder: inFolder(m) })
    change(key, way === 'forward' ? forwardOf(detail) : answerOf(detail, way))
    docked.value = key
    if (way === 'forward' && detail.attachments.length > 0) void fetchFiles(key, detail)
  } catch (error) {
    failed(error)
  }
}

/** Goes on with a message of the Drafts folder. */
export function openDraft(m: Detail) {
  const key = `draft ${m.user_id} ${m.email_id}`
  if (m.truncated) return failed(new Error(t('compose.too_long')))
  if (isEmpty(draftOf(key))) {
    const own = emailOf(m.from).toLowerCase() === m.mailbox.toLowerCase()
    change(key, {
      kind: 'draft', from: { user_id: m.user_id, email: m.mailbox }, as: own || !m.from ? undefined : emailOf(m.from), to: m.to, cc: m.cc, bcc: m.bcc, subject: m.subject,
      text: wholeTextOf(m), ...(m.html !== null && { html: m.html, foreign: true, inline: inlineOf(m) }),
      in_reply_to: m.in_reply_to ?? undefined, references: m.references, saved: { user_id: m.user_id, uid: m.uid },
    })
    if (m.attachments.length > 0) void fetchFiles(key, m)
  }
  docked.value = key
}

/** Passes a message on as it is, as a file. */
export async function forwardAttached(m: Detail) {
  const key = `attached ${m.id}`
  if (isEmpty(draftOf(key))) {
    try {
      const response = await fetched(pathOf(m, 'raw')).catch(() => { throw new Error(t('compose.unread')) })
      const name = (m.subject || t('compose.file_name')).replace(/[\\/:*?"<>|\p{Cc}]+/gu, ' ').trim().slice(0, 80) + '.eml'
      change(key, { kind: 'forward', from: { user_id: m.user_id, email: m.mailbox }, subject: prefixed('Fwd', m.subject), files: [new File([await response.blob()], name, { type: 'message/rfc822' })] })
    } catch (error) {
      failed(error)
      return
    }
  }
  docked.value = key
}

type Detail = Schemas['MessageDetail']

function othersOf(m: Message): string[] {
  return [...m.to, ...m.cc]
}

/** Whom an answer goes to. A message that the mailbox has sent itself is answered to whom it went to. */
export function answeredTo(m: Message): string[] {
  if (m.from_email.toLowerCase() === m.mailbox.toLowerCase() && m.to.length > 0) return m.to
  return m.reply_to.length > 0 ? m.reply_to : [m.from]
}

function answerOf(m: Detail, way: Way): Partial<Draft> {
  const to = answeredTo(m)
  return {
    kind: 'reply', from: { user_id: m.user_id, email: m.mailbox }, to: without(to, []),
    cc: way === 'all' ? without(othersOf(m), [...to, m.mailbox]) : [],
    subject: prefixed('Re', m.subject), text: '\n\n' + quoteOf(m),
    in_reply_to: m.message_id || undefined, references: referencesOf(m),
  }
}

const mostReferences = 20 // the first and the last of long conversations

function referencesOf(m: Detail): string[] {
  const all = [...(m.references.length > 0 ? m.references : m.in_reply_to ? [m.in_reply_to] : []), m.message_id].filter(Boolean)
  return all.length <= mostReferences ? all : [all[0]!, ...all.slice(1 - mostReferences)]
}

function forwardOf(m: Detail): Partial<Draft> {
  const lines = [t('compose.forwarded'), `${t('compose.from')}: ${m.from}`, `${t('compose.date')}: ${timeOf(m)}`, `${t('compose.subject')}: ${m.subject}`, `${t('compose.to')}: ${m.to.join(', ')}`]
  if (m.cc.length > 0) lines.push(`${t('compose.cc')}: ${m.cc.join(', ')}`)
  const head = `\n\n${lines.join('\n')}\n\n`
  const rich = m.html !== null && m.html.length <= mostForwarded
  return {
    kind: 'forward', from: { user_id: m.user_id, email: m.mailbox }, subject: prefixed('Fwd', m.subject), references: referencesOf(m),
    text: `${head}${textOf(m)}\n`, ...(rich && { html: htmlOfLines(head) + m.html, foreign: true, inline: inlineOf(m) }),
  }
}

function prefixed(with_: string, subject: string): string {
  return new RegExp(`^\\s*${with_}\\s*:`, 'i').test(subject) ? subject : `${with_}: ${subject}`
}

const mostQuoted = 100_000 // characters
const mostForwarded = 500_000 // characters of HTML; of what is longer the text is passed on

function wholeTextOf(m: Detail): string {
  return (m.text ?? (m.html ? plainOf(m.html) : '')).replace(/\r\n?/g, '\n').trimEnd()
}

function textOf(m: Detail): string {
  return wholeTextOf(m).slice(0, mostQuoted).trimEnd()
}

function timeOf(m: Detail): string {
  return new Intl.DateTimeFormat(locale.value, { dateStyle: 'medium', timeStyle: 'short' }).format(new Date(m.date ?? m.received_at))
}

function quoteOf(m: Detail): string {
  const quoted = textOf(m).split('\n').map((line) => (line.startsWith('>') ? '>' + line : line ? '> ' + line : '>'))
  return `${t('compose.wrote', { time: timeOf(m), name: nameOf(m.from), email: emailOf(m.from) })}\n${quoted.join('\n')}\n`
}

/** The names of a message's files, each once. */
function namesOf(m: Detail): string[] {
  const names: string[] = []
  for (const a of m.attachments) {
    const name = a.filename || `attachment-${a.index + 1}`
    names.push(names.includes(name) ? `${a.index + 1}-${name}` : name)
  }
  return names
}

/** The files that are images in the text of a message. */
function inlineOf(m: Detail): Record<string, string> {
  const names = namesOf(m), out: Record<string, string> = {}
  m.attachments.forEach((a, i) => {
    if (a.content_id && /^[^\s<>"&]+$/.test(a.content_id) && a.content_type.startsWith('image/') && m.html?.includes('cid:' + a.content_id)) out[a.content_id] = names[i]!
  })
  return out
}

/** Fetches the files of a message that is passed on. */
async function fetchFiles(key: string, m: Detail) {
  const names = namesOf(m)
  change(key, { fetching: true, had: names.map((name) => ({ name, size: -1 })) })
  const files: File[] = []
  try {
    for (const [i, a] of m.attachments.entries()) {
      const response = await fetched(pathOf(m, `attachments/${a.index}`)).catch(() => { throw new Error(t('compose.file_unread', { name: names[i]! })) })
      files.push(new File([await response.blob()], names[i]!, { type: a.content_type }))
    }
  } catch (error) {
    failed(error)
  }
  if (drafts.has(place(key))) change(key, { fetching: false, files: [...draftOf(key).files, ...files] })
}

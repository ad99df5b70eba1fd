// What is done to messages. Each can be taken back for some seconds.
import { signal } from '@preact/signals'
import { call, type Schemas } from '../../api/client'
import type { Pages } from '../../api/query'
import { plain } from '../../api/wording'
import { doLater, failed } from '../../ui'
import { t, tn } from '../../words'

export type Message = Schemas['InboxMessage']

/** A message by its place. folder is the IMAP name, '' or nothing the inbox. */
export interface Ref { user_id: string; uid: string; folder?: string }

/** The folder of a message as requests take it: nothing for the inbox. */
export function inFolder(m: { folder?: string }): string | undefined {
  return !m.folder || m.folder.toUpperCase() === 'INBOX' ? undefined : m.folder
}

/** What a message is called in the list. */
export function keyOf(m: Ref): string {
  const folder = inFolder(m)
  return m.user_id + '/' + m.uid + (folder ? '/' + folder : '')
}

/** The messages that were deleted here, by their ids. They stay out of sight while that can still be taken back. */
export const gone = signal<ReadonlyMap<string, Message>>(new Map())

function setGone(messages: Message[], is: boolean) {
  const next = new Map(gone.value)
  for (const m of messages) is ? next.set(m.id, m) : next.delete(m.id)
  gone.value = next
}

const isOne = (m: Message) => (m.thread?.messages ?? 1) < 2

/** Whether a row of the list is out of sight: that of a conversation once all of it was deleted. */
export function isGone(row: Message): boolean {
  if (isOne(row) || !gone.value.has(row.id)) return gone.value.has(row.id)
  const out = [...gone.value.values()].filter((m) => m.user_id === row.user_id && m.thread_id === row.thread_id && inFolder(m) === inFolder(row))
  return out.length >= row.thread!.messages || out.some((m) => !isOne(m))
}

/** How a message is to be marked: one of the two. */
export type Change = { is_read: boolean } | { is_flagged: boolean }

const mostAtOnce = 200 // that one bulk operation takes

const refOf = (m: Message) => ({ uid: m.uid, mailbox: m.mailbox, folder: inFolder(m) })

/** Those that are not marked so yet. */
function differing(messages: Message[], change: Change): Message[] {
  return messages.filter((m) => ('is_read' in change ? m.is_read !== change.is_read : m.is_flagged !== change.is_flagged))
}

/** Marks messages read or unread, starred or not. */
export async function mark(pages: Pages<Message>, messages: Message[], change: Change) {
  const changed = differing(messages, change)
  pages.patch(new Set(changed.map(keyOf)), change)
  try {
    const all = 'is_read' in change && change.is_read ? differing(await whole(messages.filter((m) => !m.is_read || (m.thread?.unread ?? 0) > 0)), change) : changed
    for (let i = 0; i < all.length; i += mostAtOnce) {
      const { errors } = await call('bulk_mark_messages', { messages: all.slice(i, i + mostAtOnce).map(refOf), ...change })
      if (errors.length > 0) throw new Error(`${tn('inbox.not_marked', errors.length)} ${plain(errors[0]!.error) ?? ''}`.trim())
    }
  } catch (error) {
    failed(error)
    await pages.reload()
  }
}

/** Says that messages were marked. */
function markedText(change: Change, n: number): string {
  if ('is_read' in change) return change.is_read ? tn('inbox.marked_read', n) : tn('inbox.marked_unread', n)
  return change.is_flagged ? tn('inbox.starred', n) : tn('inbox.unstarred', n)
}

const opposite = (change: Change): Change => ('is_read' in change ? { is_read: !change.is_read } : { is_flagged: !change.is_flagged })

/** Marks many, and offers to take it back. */
export async function markMany(pages: Pages<Message>, messages: Message[], change: Change) {
  const changed = differing(messages, change)
  if (changed.length === 0) return
  const done = mark(pages, changed, change)
  const back = () => void done.then(() => mark(pages, changed.map((m) => ({ ...m, ...change })), opposite(change)))
  doLater(markedText(change, changed.length), () => done, back, `${Object.keys(change)} of ${changed.map(keyOf)}`)
  await done
}

/** Deletes messages once nobody has taken it back: to Trash, and what is there for good. */
export function remove(messages: Message[], trash: boolean) {
  if (trash) later(messages, { done: (n) => tn('inbox.deleted', n), failed: (n) => tn('inbox.not_deleted', n) }, removeNow)
  else later(messages, movedTo(t('inbox.folder.trash')), async (some) => {
    const errors = await moveNow(some, 'trash')
    const elsewhere = errors.filter((e) => e.code === 'external_mailbox') // its server has a way of its own
    if (elsewhere.length === 0) return errors
    const there = some.filter((m) => elsewhere.some((e) => e.uid === m.uid && e.mailbox === m.mailbox))
    return [...errors.filter((e) => !elsewhere.includes(e)), ...await removeNow(there)]
  })
}

/** Moves messages to a folder, by its role or its name, once nobody has taken it back. */
export function moveTo(messages: Message[], to: string, name: string) {
  later(messages, movedTo(name), (some) => moveNow(some, to))
}

/** Says that messages are junk, or that they are not. */
export function markJunk(messages: Message[], junk: boolean) {
  later(messages, movedTo(junk ? t('inbox.folder.junk') : t('inbox.folder.inbox')), async (some) => (await call('bulk_mark_messages', { messages: some.map(refOf), junk })).errors)
}

/** What is said of so many messages, once something was done with them or could not be done. */
interface Deed { done: (n: number) => string; failed: (n: number) => string }

function movedTo(folder: string): Deed {
  return { done: (n) => tn('inbox.moved', n, { folder }), failed: (n) => tn('inbox.not_moved', n, { folder }) }
}

interface ItemError { uid: string; mailbox: string; error: string; code: string }

async function moveNow(some: Message[], to: string): Promise<ItemError[]> {
  return (await call('bulk_move_messages', { messages: some.map(refOf), to })).errors
}

async function removeNow(some: Message[]): Promise<ItemError[]> {
  return (await call('bulk_delete_messages', { messages: some.map(refOf) })).errors
}

/** With the others of their conversations that are in the same folder, where the list shows one for all. */
async function whole(messages: Message[]): Promise<Message[]> {
  const all: Message[] = []
  for (const m of messages) {
    if (isOne(m)) {
      all.push(m)
      continue
    }
    const { data } = await call('list_inbox', { thread_id: m.thread_id, mailbox: m.mailbox, folder: m.folder, limit: mostAtOnce })
    all.push(...(data.some((x) => x.id === m.id) ? data : [m, ...data]))
  }
  return all
}

/** Takes messages out of sight and does something with them once nobody has taken it back. */
function later(messages: Message[], deed: Deed, act: (some: Message[]) => Promise<ItemError[]>) {
  if (messages.length === 0) return
  setGone(messages, true)
  const run = async () => {
    const all = await whole(messages)
    setGone(all, true)
    for (let i = 0; i < all.length; i += mostAtOnce) {
      const some = all.slice(i, i + mostAtOnce)
      const errors = await act(some)
      if (errors.length === 0) continue
      setGone(some.filter((m) => errors.some((e) => e.uid === m.uid && e.mailbox === m.mailbox)), false)
      failed(new Error(`${deed.failed(errors.length)} ${plain(errors[0]!.error) ?? ''}`.trim()))
    }
  }
  doLater(deed.done(messages.length), run, () => setGone(messages, false))
}

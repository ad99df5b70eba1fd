// What is done to messages. Each can be taken back for some seconds.
import { signal } from '@preact/signals'
import { call, type Schemas } from '../../api/client'
import type { Pages } from '../../api/query'
import { plain } from '../../api/wording'
import { doLater, failed, plural } from '../../ui'

export type Message = Schemas['InboxMessage']

/** What a message is called in the list and in the address. */
export function keyOf(m: { user_id: string; uid: string }): string {
  return m.user_id + '/' + m.uid
}

/** The messages that were deleted here. They stay out of sight while that can still be taken back. */
export const gone = signal<ReadonlySet<string>>(new Set())

function setGone(messages: Message[], is: boolean) {
  const next = new Set(gone.value)
  for (const m of messages) is ? next.add(m.id) : next.delete(m.id)
  gone.value = next
}

/** How a message is to be marked: one of the two. */
export type Change = { is_read: boolean } | { is_flagged: boolean }

const mostAtOnce = 200 // that one bulk operation takes

const refOf = (m: Message) => ({ uid: m.uid, mailbox: m.mailbox })

/** Those that are not marked so yet. */
function differing(messages: Message[], change: Change): Message[] {
  return messages.filter((m) => ('is_read' in change ? m.is_read !== change.is_read : m.is_flagged !== change.is_flagged))
}

/** Marks messages read or unread, starred or not. */
export async function mark(pages: Pages<Message>, messages: Message[], change: Change) {
  const changed = differing(messages, change)
  pages.patch(new Set(changed.map(keyOf)), change)
  try {
    for (let i = 0; i < changed.length; i += mostAtOnce) {
      const { errors } = await call('bulk_mark_messages', { messages: changed.slice(i, i + mostAtOnce).map(refOf), ...change })
      if (errors.length > 0) throw new Error(`${plural(errors.length, 'message')} could not be marked. ${plain(errors[0]!.error) ?? ''}`)
    }
  } catch (error) {
    failed(error)
    await pages.reload()
  }
}

function markedAs(change: Change): string {
  if ('is_read' in change) return change.is_read ? 'marked read' : 'marked unread'
  return change.is_flagged ? 'starred' : 'unstarred'
}

const opposite = (change: Change): Change => ('is_read' in change ? { is_read: !change.is_read } : { is_flagged: !change.is_flagged })

/** Marks many, and offers to take it back. */
export async function markMany(pages: Pages<Message>, messages: Message[], change: Change) {
  const changed = differing(messages, change)
  if (changed.length === 0) return
  const done = mark(pages, changed, change)
  const back = () => void done.then(() => mark(pages, changed.map((m) => ({ ...m, ...change })), opposite(change)))
  doLater(`${plural(changed.length, 'message')} ${markedAs(change)}`, () => done, back)
  await done
}

/** Deletes messages once nobody has taken it back. */
export function remove(messages: Message[]) {
  if (messages.length === 0) return
  setGone(messages, true)
  const text = messages.length === 1 ? 'Message deleted' : `${plural(messages.length, 'message')} deleted`
  doLater(text, () => removeNow(messages), () => setGone(messages, false))
}

async function removeNow(messages: Message[]) {
  for (let i = 0; i < messages.length; i += mostAtOnce) {
    const some = messages.slice(i, i + mostAtOnce)
    const { errors } = await call('bulk_delete_messages', { messages: some.map(refOf) })
    if (errors.length === 0) continue
    setGone(some.filter((m) => errors.some((e) => e.uid === m.uid && e.mailbox === m.mailbox)), false)
    failed(new Error(`${plural(errors.length, 'message')} could not be deleted. ${plain(errors[0]!.error) ?? ''}`))
  }
}

// What is done to messages. Each can be taken back for some seconds.
import { signal } from '@preact/signals'
import { call, type Schemas } from '../../api/client'
import type { Pages } from '../../api/query'
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

const atOnce = 4 // requests under way; the API marks one message at a time

async function each(messages: Message[], run: (m: Message) => Promise<unknown>) {
  const waiting = [...messages]
  const errors: unknown[] = []
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (let m = waiting.shift(); m; m = waiting.shift()) await run(m).catch((e) => errors.push(e))
  }))
  if (errors.length > 0) throw errors[0]
}

function patch(pages: Pages<Message>, messages: Message[], is_read: boolean) {
  pages.patch(new Set(messages.map(keyOf)), { is_read })
}

/** Marks messages read or unread. */
export async function mark(pages: Pages<Message>, messages: Message[], is_read: boolean) {
  const changed = messages.filter((m) => m.is_read !== is_read)
  patch(pages, changed, is_read)
  try {
    await each(changed, (m) => call('mark_message', { user_id: m.user_id, message_id: m.uid, is_read }))
  } catch (error) {
    failed(error)
    await pages.reload()
  }
}

/** Marks many, and offers to take it back. */
export async function markMany(pages: Pages<Message>, messages: Message[], is_read: boolean) {
  const changed = messages.filter((m) => m.is_read !== is_read)
  if (changed.length === 0) return
  const done = mark(pages, changed, is_read)
  const back = () => void done.then(() => mark(pages, changed.map((m) => ({ ...m, is_read })), !is_read))
  doLater(`${plural(changed.length, 'message')} marked ${is_read ? 'read' : 'unread'}`, () => done, back)
  await done
}

const mostAtOnce = 200 // that one bulk delete takes

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
    const { errors } = await call('bulk_delete_messages', { messages: some.map((m) => ({ uid: m.uid, mailbox: m.mailbox })) })
    if (errors.length === 0) continue
    setGone(some.filter((m) => errors.some((e) => e.uid === m.uid && e.mailbox === m.mailbox)), false)
    failed(new Error(`${plural(errors.length, 'message')} could not be deleted: ${errors[0]!.error}`))
  }
}

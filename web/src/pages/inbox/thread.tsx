// The conversation that a message is part of: what came, by the inbox, and what went out, by the sending log.
import { useQuery, useRead } from '../../api/query'
import { call, person, type Schemas } from '../../api/client'
import { Icon, plural, theirs, Time } from '../../ui'
import { StatusBadge } from '../sent/words'
import { keyOf } from './actions'
import { placeOf } from './filters'
import type { Detail } from './types'

type Sent = Schemas['SentMessage']

/** The rows of the sending log that may belong to the conversation: what the mailbox sent to who wrote. */
function useSent(m: Detail): Sent[] {
  const bounce = m.is_bounce
  const some = bounce || m.original_message_id !== null || m.in_reply_to !== null || m.is_answered
  const log = useQuery('list_messages', { mailbox: m.mailbox, recipient: bounce ? undefined : m.from_email, limit: 100 }, { when: some && m.from_email !== '' })
  return log.data?.data ?? []
}

/** Says which sent message this one answers. */
export function Answered({ message: m }: { message: Detail }) {
  const id = m.original_message_id ?? m.in_reply_to
  const row = useSent(m).find((s) => s.message_id === id)
  if (!row && m.original_message_id === null) return null
  return (
    <p class="inbox-answers small">
      <Icon name="send" />
      <span>{m.is_bounce ? 'Bounce for' : 'In reply to'}{' '}
        {person() ? theirs(row?.subject) || 'a message that you sent' : row ? <a href={'/sent/' + row.id}>{theirs(row.subject) || '(no subject)'}</a> : <a href={`/sent?mailbox=${encodeURIComponent(m.mailbox)}`}>a message sent from {m.mailbox}</a>}
        {row && <>, sent to {theirs(row.recipient)} <Time of={row.queued_at} /></>}
      </span>
    </p>
  )
}

const mostShown = 50

/** The newest messages of a conversation that came, and whether there are more. A page may be cut short: what is missing is on the next ones. */
async function readThread(thread_id: string, mailbox: string) {
  const came: Schemas['InboxMessage'][] = []
  let cursor: string | undefined
  for (let pages = 0; pages < 20; pages++) {
    const { data, pagination } = await call('list_inbox', { thread_id, mailbox, folder: 'all', limit: mostShown, cursor })
    came.push(...data)
    cursor = pagination.cursor ?? undefined
    if (!pagination.has_more) return { came, more: false }
    if (came.length >= mostShown) break
  }
  return { came: came.slice(0, mostShown), more: true }
}

interface Item { key: string; at: string; href: string; who: string; text: string; sent?: Sent; here: boolean; unread: boolean }

export function Conversation({ message: m }: { message: Detail }) {
  const thread = useRead(`thread ${m.mailbox} ${m.thread_id}`, () => readThread(m.thread_id, m.mailbox), { kinds: ['inbox'], only: (c) => c.id === m.user_id })
  const log = useSent(m)
  const came = thread.data?.came ?? []
  const known = new Set([m, ...came].flatMap((x) => [...x.references, x.in_reply_to, x.original_message_id]))
  const topic = topicOf(m.subject)
  const kept = new Set(came.map((x) => x.message_id))
  const went = m.is_bounce ? [] : log.filter((s) => !kept.has(s.message_id)).filter((s) => known.has(s.message_id) || (topic !== '' && topicOf(s.subject) === topic))
  const items: Item[] = [
    ...came.map((x) => ({ key: keyOf(x), at: x.received_at, href: placeOf(x), who: x.from_email === x.mailbox ? 'You' : x.from_name || x.from_email, text: x.body_preview || x.subject, here: keyOf(x) === keyOf(m), unread: !x.is_read })),
    ...went.map((s) => ({ key: s.id, at: s.queued_at, href: person() ? '/inbox?folder=sent' : '/sent/' + s.id, who: 'You', text: s.subject, sent: s, here: false, unread: false })),
  ].sort((a, b) => a.at.localeCompare(b.at))
  if (items.length < 2) return null
  return (
    <details class="inbox-thread">
      <summary><Icon name="next" /> {thread.data?.more ? `Conversation of more than ${came.length} messages` : `Conversation of ${plural(items.length, 'message')}`}</summary>
      <ol>
        {items.map((i) => (
          <li key={i.key}>
            <a href={i.href} aria-current={i.here ? 'true' : undefined} class={i.unread ? 'unread' : undefined}>
              <span class="who truncate" dir="auto">{i.who}</span>
              <span class="grow truncate muted" dir="auto">{i.text}</span>
              {i.sent && <StatusBadge status={i.sent.status} />}
              <span class="small muted nowrap"><Time of={i.at} form="short" /></span>
            </a>
          </li>
        ))}
      </ol>
    </details>
  )
}

/** A subject without what answers put before it. */
function topicOf(subject: string): string {
  return subject.replace(/^(\s*(re|aw|fwd?|wg|sv|antw|tr|rif)(\[\d+\])?\s*:)+/i, '').trim().toLowerCase()
}

// The conversation of the open message, one message below the other: what came, by the inbox, and
// what went out, by the sending log. The message of the address and the newest one are open, the
// others a line each.
import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { useQuery, useRead } from '../../api/query'
import { call, person, type Schemas } from '../../api/client'
import { count, Icon, theirs, Time } from '../../ui'
import { rich, t, tn } from '../../words'
import { StatusBadge } from '../sent/words'
import { gone, inFolder, keyOf, type Message } from './actions'
import { placeOf } from './filters'
import { nameOfFolder } from './folders'
import type { Detail } from './types'

type Sent = Schemas['SentMessage']

/**
 * The rows of the sending log that may belong to the conversation: what the mailbox sent to who
 * wrote.
 */
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
  const what = person() ? theirs(row?.subject) || t('message.answers.some')
    : row ? <a href={'/sent/' + row.id}>{theirs(row.subject) || t('message.no_subject')}</a>
      : <a href={`/sent?mailbox=${encodeURIComponent(m.mailbox)}`}>{t('message.answers.of', { mailbox: m.mailbox })}</a>
  return (
    <p class="inbox-answers small">
      <Icon name="send" />
      <span>
        {rich(m.is_bounce ? 'message.answers.bounce' : 'message.answers.reply', { what })}
        {row && rich('message.answers.sent', { recipient: theirs(row.recipient), when: <Time of={row.queued_at} /> })}
      </span>
    </p>
  )
}

const mostShown = 50

/**
 * The newest messages of a conversation that came, and whether there are more. A page may be cut
 * short: what is missing is on the next ones.
 */
async function readThread(thread_id: string, mailbox: string) {
  const came: Message[] = []
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

/**
 * A message of the conversation: one that is kept here, or a row of the sending log of one that is
 * not.
 */
interface Item { key: string; at: string; who: string; text: string; kept?: Message; sent?: Sent }

/** The items of the conversation that m is in, the oldest first. */
function useItems(m: Detail): { items: Item[]; more: boolean } {
  const thread = useRead(`thread ${m.mailbox} ${m.thread_id}`, () => readThread(m.thread_id, m.mailbox), { kinds: ['inbox'], only: (c) => c.id === m.user_id })
  const log = useSent(m)
  const read = thread.data?.came ?? []
  const came = [...read.filter((x) => keyOf(x) !== keyOf(m)), m].filter((x) => !gone.value.has(x.id) || keyOf(x) === keyOf(m))
  const known = new Set(came.flatMap((x) => [...x.references, x.in_reply_to, x.original_message_id]))
  const topic = topicOf(m.subject)
  const here = new Set(came.map((x) => x.message_id))
  const went = m.is_bounce ? [] : log.filter((s) => !here.has(s.message_id)).filter((s) => known.has(s.message_id) || (topic !== '' && topicOf(s.subject) === topic))
  const items: Item[] = [
    ...came.map((x) => ({ key: keyOf(x), at: x.received_at, who: x.from_email === x.mailbox ? t('message.you') : x.from_name || x.from_email, text: x.body_preview || x.subject, kept: x })),
    ...went.map((s) => ({ key: s.id, at: s.queued_at, who: t('message.you'), text: s.subject, sent: s })),
  ].sort((a, b) => a.at.localeCompare(b.at))
  return { items, more: thread.data?.more ?? false }
}

const isDraft = (m: Message | undefined) => m !== undefined && inFolder(m) === 'Drafts'

const longest = 5 // lines in a row that are shown; of more, the first and the last

interface Props {
  message: Detail
  /** An open message: how to close it, unless it is that of the address. */
  letter: (m: Message, close: (() => void) | undefined) => ComponentChildren
}

export function Conversation({ message: m, letter }: Props) {
  const { items, more } = useItems(m)
  const [turned, setTurned] = useState<ReadonlyMap<string, boolean>>(new Map())
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set())
  const here = keyOf(m)
  const newest = useRef<string | undefined>(undefined) // as the viewer came; what comes later does not push it away
  if (newest.current === undefined && items.length > 1) newest.current = items.findLast((i) => i.kept && !isDraft(i.kept))?.key
  const isOpen = (i: Item) => i.kept !== undefined && (i.key === here || (turned.get(i.key) ?? i.key === newest.current))
  const turn = (key: string, open: boolean) => setTurned(new Map(turned).set(key, open))
  const rows: ComponentChildren[] = []
  for (let at = 0; at < items.length;) {
    const item = items[at]!
    if (isOpen(item)) {
      rows.push(<li key={item.key} class="inbox-opened">{letter(item.kept!, item.key === here ? undefined : () => turn(item.key, false))}</li>)
      at++
      continue
    }
    let end = at
    while (end < items.length && !isOpen(items[end]!) && !(items[end]!.kept?.is_read === false && end > at)) end++
    const run = items.slice(at, end)
    const folds = run.length > longest && !unfolded.has(item.key)
    const lines = run.map((i) => <li key={i.key}><Line item={i} onOpen={() => turn(i.key, true)} /></li>)
    if (folds) rows.push(lines[0], <li key={'fold ' + item.key}><button type="button" class="inbox-fold" onClick={() => setUnfolded(new Set(unfolded).add(item.key))}>{tn('message.fold', run.length - 2)}</button></li>, lines.at(-1))
    else rows.push(...lines)
    at = end
  }
  return (
    <>
      {items.length > 1 && <p class="small muted inbox-conversation-size">{more ? t('message.conversation.newest', { n: count(mostShown) }) : tn('message.conversation', items.length)}</p>}
      <ol class="inbox-stack" aria-label={t('message.conversation')}>{rows}</ol>
    </>
  )
}

/**
 * One line for a message that is not open. What was only sent, and drafts, have a page of their
 * own.
 */
function Line({ item: i, onOpen }: { item: Item; onOpen: () => void }) {
  const draft = isDraft(i.kept)
  const what = (
    <>
      <span class="author truncate" dir="auto">{i.who}</span>
      <span class="grow truncate muted" dir="auto">{i.text}</span>
      {draft && <span class="tag">{nameOfFolder('drafts')}</span>}
      {i.sent && <StatusBadge status={i.sent.status} />}
      <span class="small muted nowrap"><Time of={i.at} form="short" /></span>
    </>
  )
  if (i.sent || draft) return <a class="inbox-line" href={i.sent ? (person() ? '/inbox?folder=sent' : '/sent/' + i.sent.id) : placeOf(i.kept)}>{what}</a>
  return <button type="button" class={'inbox-line' + (i.kept!.is_read ? '' : ' unread')} aria-expanded={false} onClick={onOpen}>{what}</button>
}

/** A subject without what answers put before it. */
function topicOf(subject: string): string {
  return subject.replace(/^(\s*(re|aw|fwd?|wg|sv|antw|tr|rif)(\[\d+\])?\s*:)+/i, '').trim().toLowerCase()
}

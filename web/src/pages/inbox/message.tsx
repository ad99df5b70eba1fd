// The reading pane: one message, and what can be done about it.
import { useEffect, useRef, useState } from 'preact/hooks'
import { call, can, person } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, bytes, Facts, Icon, IconButton, LinkButton, Menu, Show, theirList, theirs, Time, told } from '../../ui'
import { inFolder, type Message } from './actions'
import { lazy } from '../lazy'
import { rules } from '../mailboxes/rules_part'
import { Avatar } from './avatar'
import { Body } from './body'
import { forwardAttached, openDraft, type Way } from './compose/draft'
import { MoveMenu, roleOf } from './folders'
import { Headers, pathOf, Raw, rawOf } from './source'
import { nameOf } from './people'
import { Answered, Conversation } from './thread'
import type { Detail, Steps } from './types'
import { Verdict } from './verdict'

interface Props {
  user_id: string
  uid: string
  /** Its folder; nothing is the inbox. */
  folder: string | undefined
  /** The message as the list has it, if it is there. */
  known: Message | undefined
  steps: Steps
  move: (to: Message | undefined) => void
  leave: () => void
  answer: (way: Way) => void
  setRead: (m: Message, read: boolean) => Promise<unknown>
  star: (m: Message) => unknown
  drop: (m: Message) => void
  moveTo: (m: Message, to: string, name: string) => void
  /** To Junk, or from there back to the inbox. */
  junk: (m: Message) => void
  /** Tells what was read, and how to read it again. */
  onRead: (m: Message | undefined, reload: () => unknown) => void
}

export function Reading(props: Props) {
  const { user_id, uid, folder, known } = props
  const read = useQuery('get_message', { user_id, message_id: uid, folder }, { only: (c) => c.id === user_id })
  const pane = useRef<HTMLElement>(null)
  useEffect(() => { // where the list gives way to the message, the focus goes with it
    if (document.activeElement === document.body || !document.activeElement?.checkVisibility({ visibilityProperty: true })) pane.current?.focus({ preventScroll: true })
  }, [])
  const message = known && read.data ? { ...read.data, is_read: known.is_read, is_flagged: known.is_flagged } : read.data
  useEffect(() => props.onRead(message, read.reload))
  return (
    <section class="inbox-reading" aria-label="Message" tabIndex={-1} ref={pane}>
      <Tools {...props} message={message} reload={read.reload} />
      <Show of={{ ...read, data: message }} lines={8}>{(m) => <Opened message={m} {...props} />}</Show>
    </section>
  )
}

function Tools({ message: m, known, user_id, steps, move, leave, answer, setRead, star, drop, moveTo, junk, reload }: Props & { message: Detail | undefined; reload: () => Promise<void> }) {
  const [dialog, setDialog] = useState<'headers' | 'raw' | 'rule'>()
  const one = m ?? known
  const role = roleOf(one)
  const turn = async () => {
    if (!one) return
    await setRead(one, !one.is_read)
    await reload()
  }
  return (
    <div class="inbox-tools" role="toolbar" aria-label="Message">
      <span class="inbox-only-narrow"><IconButton look="ghost" small icon="back" label="Back to the list" onClick={leave} /></span>
      {one && roleOf(one) === 'drafts' ? can('send_email') && m && <Button look="primary" small icon="pencil" onClick={() => openDraft(m)}>Edit draft</Button> : can('send_email') && (
        <>
          <Tool icon="reply" name="Reply" onClick={() => answer('reply')} disabled={!one} />
          <Tool icon="reply-all" name="Reply all" onClick={() => answer('all')} disabled={!one} />
          <Tool icon="forward" name="Forward" onClick={() => answer('forward')} disabled={!one} />
        </>
      )}
      <span class="grow" />
      {can('mark_message') && <IconButton look="ghost" small icon={one?.is_read === false ? 'mail-open' : 'mail'} label={one?.is_read === false ? 'Mark as read' : 'Mark as unread'} disabled={!one} onClick={turn} />}
      {can('mark_message') && <IconButton look="ghost" small icon={one?.is_flagged ? 'star-on' : 'star'} label={one?.is_flagged ? 'Unstar' : 'Star'} disabled={!one} onClick={() => one && star(one)} />}
      {can('bulk_move_messages') && role !== 'archive' && role !== 'drafts' && <span class="inbox-only-roomy"><IconButton look="ghost" small icon="archive" label="Archive" disabled={!one} onClick={() => one && moveTo(one, 'archive', 'Archive')} /></span>}
      {can('bulk_move_messages') && role === 'junk' && <Button look="ghost" small icon="inbox" disabled={!one} onClick={() => one && junk(one)}>Not junk</Button>}
      {can('bulk_move_messages') && one && <MoveMenu small userID={user_id} onMove={(to, name) => (to === 'junk' ? junk(one) : moveTo(one, to, name))} />}
      {can('bulk_delete_messages') && <IconButton look="ghost" small icon="trash" label={role === 'trash' ? 'Delete for good' : 'Delete'} disabled={!one} onClick={() => one && drop(one)} />}
      {m && (
        <Menu label="More" small>
          {can('send_email') && <Button look="ghost" small icon="clip" onClick={() => forwardAttached(m)}>Forward as attachment</Button>}
          {can('unsubscribe_message') && m.headers.some((h) => h.name.toLowerCase() === 'list-unsubscribe-post') && <Button look="ghost" small icon="ban" onClick={() => unsubscribe(m)}>Unsubscribe</Button>}
          {can('create_rule') && m.from_email && <Button look="ghost" small icon="plus" onClick={() => setDialog('rule')}>Make a rule</Button>}
          {can('create_rule') && m.from_email && <Button look="ghost" small icon="ban" onClick={() => block(m)}>Block this sender</Button>}
          <Button look="ghost" small icon="book" onClick={() => print()}>Print</Button>
          <Button look="ghost" small icon="menu" onClick={() => setDialog('headers')}>Show headers</Button>
          <Button look="ghost" small icon="book" onClick={() => setDialog('raw')}>Show source</Button>
          <LinkButton look="ghost" small icon="download" href={rawOf(m)} download>Download as .eml</LinkButton>
        </Menu>
      )}
      <span class="inbox-steps">
        <span class="up"><IconButton look="ghost" small icon="down" label="Previous message" disabled={!steps.previous} onClick={() => move(steps.previous)} /></span>
        <IconButton look="ghost" small icon="down" label="Next message" disabled={!steps.next} onClick={() => move(steps.next)} />
      </span>
      {m && dialog === 'headers' && <Headers of={m} onClose={() => setDialog(undefined)} />}
      {m && dialog === 'rule' && <EditRule userID={m.user_id} draft={ruleFor(m)} onClose={() => setDialog(undefined)} />}
      {m && dialog === 'raw' && <Raw of={m} onClose={() => setDialog(undefined)} />}
    </div>
  )
}

const EditRule = lazy(rules, (p) => p.EditRule)

/** The rule that a message suggests: for its mailing list, or else its author. */
function ruleFor(m: Detail) {
  const list = m.headers.find((h) => h.name.toLowerCase() === 'list-id')?.value.match(/<([^<>]+)>/)?.[1]
  const condition = list ? { field: 'list_id', op: 'is', value: list } : { field: 'from', op: 'is', value: m.from_email }
  return { name: (m.from_name || m.from_email).slice(0, 100), conditions: [condition], actions: [{ type: 'move', value: 'archive' }] }
}

function block(m: Detail) {
  ask({
    title: `Block ${m.from_email}?`, action: 'Block', text: 'Mail from this address goes to Junk from now on, by a rule that you can delete.',
    run: async () => {
      await call('create_rule', { user_id: m.user_id, name: `Block ${m.from_email}`.slice(0, 100), position: 0, conditions: [{ field: 'from', op: 'is', value: m.from_email }], actions: [{ type: 'move', value: 'junk' }, { type: 'stop' }] })
      told(`${m.from_email} is blocked.`)
    },
  })
}

function unsubscribe(m: Detail) {
  ask({
    title: 'Unsubscribe from this list?', action: 'Unsubscribe', danger: false, text: `Mailstead asks the list of ${m.from_email} to send nothing more to ${m.mailbox}.`,
    run: async () => told((await call('unsubscribe_message', { user_id: m.user_id, message_id: m.uid, folder: inFolder(m) })).message),
  })
}

function Tool({ icon, name, disabled, onClick }: { icon: 'reply' | 'reply-all' | 'forward'; name: string; disabled: boolean; onClick: () => void }) {
  return (
    <>
      <span class="inbox-only-roomy"><Button look="ghost" small icon={icon} disabled={disabled} onClick={onClick}>{name}</Button></span>
      <span class="inbox-only-tight"><IconButton look="ghost" small icon={icon} label={name} disabled={disabled} onClick={onClick} /></span>
    </>
  )
}

const readAfter = 1000 // ms that a message has to be open

function Opened({ message: m, setRead }: Props & { message: Detail }) {
  useEffect(() => {
    document.title = (m.subject || '(no subject)') + ' · Mailstead'
  }, [m.subject])
  useEffect(() => { // only once: who then marks it unread wants it so
    if (m.is_read || !can('mark_message')) return
    const timer = setTimeout(() => void setRead(m, true), readAfter)
    return () => clearTimeout(timer)
  }, [])
  return (
    <article class="inbox-message">
      <header class="inbox-message-head">
        <h2 dir="auto">{m.subject || '(no subject)'}</h2>
        <Sender message={m} />
        <Suspected message={m} />
        <Invited message={m} />
        <Answered message={m} />
        <Conversation message={m} />
        <Attachments message={m} />
      </header>
      <Body message={m} />
    </article>
  )
}

function Sender({ message: m }: { message: Detail }) {
  const to = [...m.to, ...m.cc].map(nameOf)
  return (
    <div class="inbox-sender">
      <Avatar name={m.from_name} email={m.from_email} />
      <div class="inbox-sender-text">
        <div class="inbox-sender-line">
          <strong class="truncate" dir="auto">{m.from_name || m.from_email || 'Unknown sender'}</strong>
          {m.from_name && <span class="muted truncate" dir="auto">{m.from_email}</span>}
          <span class="muted small when"><Time of={m.received_at} form="at" /></span>
        </div>
        <div class="inbox-sender-line">
          <details class="inbox-to">
            <summary><span class="truncate">to {theirList(to.slice(0, 3)) || 'undisclosed recipients'}{to.length > 3 && ` and ${to.length - 3} more`}</span><Icon name="down" /></summary>
            <Facts of={[
              ['From', theirs(m.from)], ['To', theirList(m.to)], ['Cc', theirList(m.cc)], ['Bcc', theirList(m.bcc)], ['Reply-to', theirList(m.reply_to)],
              ['Mailbox', person() ? m.mailbox : <a href={`/mailboxes/${m.user_id}`}>{m.mailbox}</a>], ['Date', m.date && <Time of={m.date} form="at" />],
              ['Received', <Time of={m.received_at} form="at" />], ['Size', bytes(m.size)], ['Spam score', m.spam && `${m.spam.score}, ${held[m.spam.verdict]}`], ['Message-ID', <code>{m.message_id}</code>],
            ]} />
          </details>
        </div>
        <div class="inbox-badges">
          <Verdict auth={m.auth} sender={m.from_email} />
          {m.is_bounce && <Badge tone="bad">Bounce</Badge>}
          {m.is_auto_reply && <Badge tone="info">Auto-reply</Badge>}
          {m.is_warmup && <Badge tone="warn">Warm-up</Badge>}
          {m.is_answered && <Badge tone="none">{m.answered_by && !person() ? `Replied: ${m.answered_by.name}` : 'Replied'}</Badge>}
        </div>
      </div>
    </div>
  )
}

const held = { ham: 'wanted mail', unsure: 'unsure', spam: 'spam' }

/** Why a message is in Junk, where the classifier put it there. */
function Suspected({ message: m }: { message: Detail }) {
  if (m.spam?.verdict !== 'spam' || roleOf(m) !== 'junk') return null
  const why = m.spam.reasons.filter((r) => r.weight > 0).slice(0, 5)
  return (
    <section class="inbox-invitation" aria-label="Spam">
      <Icon name="ban" />
      <div class="grow">
        <strong>This looks like spam.</strong>
        {why.length > 0 && <ul class="small muted">{why.map((r) => <li key={r.text}>{r.text}</li>)}</ul>}
      </div>
    </section>
  )
}

const invitationAnswers = [['accepted', 'Yes'], ['tentative', 'Maybe'], ['declined', 'No']] as const
const answered = { accepted: 'You accepted.', tentative: 'You answered maybe.', declined: 'You declined.' }

/** An invitation to an event, and the answers to it. */
function Invited({ message: m }: { message: Detail }) {
  const [now, setNow] = useState<keyof typeof answered>()
  const i = m.invitation
  if (!i) return null
  const given = now ?? i.answer
  const answer = async (to: keyof typeof answered) => {
    await call('answer_invitation', { user_id: m.user_id, message_id: m.uid, folder: inFolder(m), answer: to })
    setNow(to)
    told('Your answer is on its way.')
  }
  return (
    <section class="inbox-invitation" aria-label="Invitation">
      <Icon name="clock" />
      <div class="grow">
        <strong dir="auto">{i.summary || 'Event'}</strong>
        <p class="small muted">{i.starts_at ? <><Time of={i.starts_at} form="at" />{i.ends_at && i.ends_at !== i.starts_at && <> to <Time of={i.ends_at} form="at" /></>}</> : 'The time could not be read.'}{i.organizer && <>, by {theirs(i.organizer)}</>}</p>
        {given && <p class="small">{answered[given]}</p>}
      </div>
      {can('answer_invitation') && i.organizer && <span class="row nowrap" role="group" aria-label="Answer the invitation">{invitationAnswers.map(([to, text]) => <Button key={to} small aria-pressed={given === to} onClick={() => answer(to)}>{text}</Button>)}</span>}
    </section>
  )
}

function Attachments({ message: m }: { message: Detail }) {
  if (m.attachments.length === 0) return null
  return (
    <ul class="inbox-files" aria-label="Attachments">
      {m.attachments.map((a) => (
        <li key={a.index}>
          <a href={pathOf(m, `attachments/${a.index}`)} download={a.filename || `attachment-${a.index + 1}`}>
            <Icon name="clip" />
            <span class="truncate" dir="auto">{a.filename || `Attachment ${a.index + 1}`}</span>
            <span class="small muted nowrap">{bytes(a.size)}</span>
            <Icon name="download" />
          </a>
        </li>
      ))}
    </ul>
  )
}

// The reading pane: a message with its conversation, and what can be done about it.
import { signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { call, can, person } from '../../api/client'
import { useQuery } from '../../api/query'
import { plain } from '../../api/wording'
import { setTitle } from '../../title'
import { ask, Badge, Button, bytes, Facts, Icon, IconButton, LinkButton, Menu, Show, theirList, theirs, Time, told } from '../../ui'
import { rich, t, type Key } from '../../words'
import { inFolder, type Message } from './actions'
import { lazy } from '../lazy'
import { rules } from '../mailboxes/rules_part'
import { Attachments } from './attachments'
import { Avatar } from './avatar'
import { Body } from './body'
import { ReplyUnder } from './compose/dock'
import { forwardAttached, openDraft, replyTo, type Way } from './compose/draft'
import { Answered, Conversation } from './conversation'
import { MoveMenu, nameOfFolder, roleOf } from './folders'
import { Invited } from './invitation'
import { Headers, Raw, rawOf } from './source'
import { nameOf } from './people'
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
    <section class="inbox-reading" aria-label={t('message.pane')} tabIndex={-1} ref={pane}>
      <Tools {...props} message={message} reload={read.reload} />
      <Show of={{ ...read, data: message }} lines={8}>{(m) => <Opened message={m} {...props} />}</Show>
    </section>
  )
}

/** What can be done about the message of the address. */
function Tools({ message: m, known, user_id, steps, move, leave, answer, setRead, star, drop, moveTo, junk, reload }: Props & { message: Detail | undefined; reload: () => Promise<void> }) {
  const one = m ?? known
  const role = roleOf(one)
  const turn = async () => {
    if (!one) return
    await setRead(one, !one.is_read)
    await reload()
  }
  return (
    <div class="inbox-tools" role="toolbar" aria-label={t('message.pane')}>
      <span class="inbox-only-narrow"><IconButton look="ghost" small icon="back" label={t('message.back')} onClick={leave} /></span>
      {one && roleOf(one) === 'drafts' ? can('send_email') && m && <Button look="primary" small icon="pencil" onClick={() => openDraft(m)}>{t('message.edit_draft')}</Button> : can('send_email') && (
        <>
          <Tool icon="reply" name={t('message.reply')} onClick={() => answer('reply')} disabled={!one} />
          <Tool icon="reply-all" name={t('message.reply_all')} onClick={() => answer('all')} disabled={!one} />
          <Tool icon="forward" name={t('message.forward')} onClick={() => answer('forward')} disabled={!one} />
        </>
      )}
      <span class="grow" />
      {can('mark_message') && <IconButton look="ghost" small icon={one?.is_read === false ? 'mail-open' : 'mail'} label={one?.is_read === false ? t('inbox.mark_read') : t('inbox.mark_unread')} disabled={!one} onClick={turn} />}
      {can('mark_message') && <IconButton look="ghost" small icon={one?.is_flagged ? 'star-on' : 'star'} label={one?.is_flagged ? t('inbox.unstar') : t('inbox.star')} disabled={!one} onClick={() => one && star(one)} />}
      {can('bulk_move_messages') && role !== 'archive' && role !== 'drafts' && <span class="inbox-only-roomy"><IconButton look="ghost" small icon="archive" label={t('inbox.archive')} disabled={!one} onClick={() => one && moveTo(one, 'archive', nameOfFolder('archive'))} /></span>}
      {can('bulk_move_messages') && role === 'junk' && <Tool icon="inbox" name={t('message.not_junk')} disabled={!one} onClick={() => one && junk(one)} />}
      {can('bulk_move_messages') && one && <MoveMenu small userID={user_id} onMove={(to, name) => (to === 'junk' ? junk(one) : moveTo(one, to, name))} />}
      {can('bulk_delete_messages') && <IconButton look="ghost" small icon="trash" label={role === 'trash' ? t('message.delete_for_good') : t('inbox.delete')} disabled={!one} onClick={() => one && drop(one)} />}
      {m && <More message={m} label={t('message.more')} />}
      <span class="inbox-steps">
        <span class="up"><IconButton look="ghost" small icon="down" label={t('message.previous')} disabled={!steps.previous} onClick={() => move(steps.previous)} /></span>
        <IconButton look="ghost" small icon="down" label={t('message.next')} disabled={!steps.next} onClick={() => move(steps.next)} />
      </span>
    </div>
  )
}

/**
 * What is done more rarely about a message. Within a conversation, others that only the toolbar has
 * for its message.
 */
function More({ message: m, label, within }: { message: Detail; label: string; within?: Pick<Props, 'setRead' | 'star' | 'drop'> }) {
  const [dialog, setDialog] = useState<'headers' | 'raw' | 'rule'>()
  return (
    <>
      <Menu label={label} small>
        {within && can('send_email') && <Button look="ghost" small icon="reply" onClick={() => void replyTo(m, 'reply')}>{t('message.reply')}</Button>}
        {within && can('send_email') && <Button look="ghost" small icon="reply-all" onClick={() => void replyTo(m, 'all')}>{t('message.reply_all')}</Button>}
        {within && can('send_email') && <Button look="ghost" small icon="forward" onClick={() => void replyTo(m, 'forward')}>{t('message.forward')}</Button>}
        {within && can('mark_message') && <Button look="ghost" small icon="mail" onClick={() => void within.setRead(m, false)}>{t('inbox.mark_unread')}</Button>}
        {within && can('mark_message') && <Button look="ghost" small icon={m.is_flagged ? 'star-on' : 'star'} onClick={() => void within.star(m)}>{m.is_flagged ? t('inbox.unstar') : t('inbox.star')}</Button>}
        {within && can('bulk_delete_messages') && <Button look="ghost" small icon="trash" onClick={() => within.drop(m)}>{t('inbox.delete')}</Button>}
        {can('send_email') && <Button look="ghost" small icon="clip" onClick={() => forwardAttached(m)}>{t('message.forward_attached')}</Button>}
        {can('unsubscribe_message') && m.headers.some((h) => h.name.toLowerCase() === 'list-unsubscribe-post') && <Button look="ghost" small icon="ban" disabled={unsubscribed.value.has(m.id)} onClick={() => unsubscribe(m)}>{unsubscribed.value.has(m.id) ? t('message.unsubscribed') : t('message.unsubscribe')}</Button>}
        {can('create_rule') && m.from_email && <Button look="ghost" small icon="plus" onClick={() => setDialog('rule')}>{t('message.make_rule')}</Button>}
        {can('create_rule') && m.from_email && <Button look="ghost" small icon="ban" onClick={() => block(m)}>{t('message.block')}</Button>}
        {!within && <Button look="ghost" small icon="print" onClick={() => print()}>{t('message.print')}</Button>}
        <Button look="ghost" small icon="menu" onClick={() => setDialog('headers')}>{t('message.show_headers')}</Button>
        <Button look="ghost" small icon="book" onClick={() => setDialog('raw')}>{t('message.show_source')}</Button>
        <LinkButton look="ghost" small icon="download" href={rawOf(m)} download>{t('message.download')}</LinkButton>
      </Menu>
      {dialog === 'headers' && <Headers of={m} onClose={() => setDialog(undefined)} />}
      {dialog === 'rule' && <EditRule userID={m.user_id} draft={ruleFor(m)} onClose={() => setDialog(undefined)} />}
      {dialog === 'raw' && <Raw of={m} onClose={() => setDialog(undefined)} />}
    </>
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
    title: t('message.block.title', { email: m.from_email }), action: t('message.block.action'), text: t('message.block.text'),
    run: async () => {
      await call('create_rule', { user_id: m.user_id, name: t('message.block.rule', { email: m.from_email }).slice(0, 100), position: 0, conditions: [{ field: 'from', op: 'is', value: m.from_email }], actions: [{ type: 'move', value: 'junk' }, { type: 'stop' }] })
      told(t('message.block.done', { email: m.from_email }))
    },
  })
}

/** The messages whose list has accepted the request to send nothing more. */
const unsubscribed = signal<ReadonlySet<string>>(new Set())

function unsubscribe(m: Detail) {
  ask({
    title: t('message.unsubscribe.title'), action: t('message.unsubscribe'), danger: false, text: t('message.unsubscribe.text', { list: m.from_email, mailbox: m.mailbox }),
    run: async () => {
      const { http_status: status } = await call('unsubscribe_message', { user_id: m.user_id, message_id: m.uid, folder: inFolder(m) })
      const accepted = status >= 200 && status < 300
      if (accepted) unsubscribed.value = new Set(unsubscribed.value).add(m.id)
      told(accepted ? t('message.unsubscribe.done') : t('message.unsubscribe.unsure', { status }))
    },
  })
}

function Tool({ icon, name, disabled, onClick }: { icon: 'reply' | 'reply-all' | 'forward' | 'inbox'; name: string; disabled: boolean; onClick: () => void }) {
  return (
    <>
      <span class="inbox-tool-name inbox-only-roomy"><Button look="ghost" small icon={icon} disabled={disabled} onClick={onClick}>{name}</Button></span>
      <span class="inbox-tool-name inbox-only-tight"><IconButton look="ghost" small icon={icon} label={name} disabled={disabled} onClick={onClick} /></span>
    </>
  )
}

const readAfter = 1000 // ms that a message has to be open

function Opened({ message: m, ...props }: Props & { message: Detail }) {
  const subject = m.subject || t('message.no_subject')
  useEffect(() => setTitle(subject), [subject])
  return (
    <div class="inbox-message">
      <header class="inbox-subject"><h2 dir="auto">{subject}</h2></header>
      <Conversation message={m} letter={(of, close) => (close ? <Other of={of} close={close} {...props} /> : <Letter message={m} {...props} />)} />
    </div>
  )
}

/** Another message of the conversation, opened by hand or as the newest one. */
function Other({ of, close, ...props }: Props & { of: Message; close: () => void }) {
  const read = useQuery('get_message', { user_id: of.user_id, message_id: of.uid, folder: inFolder(of) }, { only: (c) => c.id === of.user_id })
  return <Show of={read} lines={4}>{(m) => <Letter message={{ ...m, is_read: of.is_read, is_flagged: of.is_flagged }} close={close} {...props} />}</Show>
}

/** A message as it is read. */
function Letter({ message: m, close, ...props }: Props & { message: Detail; close?: () => void }) {
  useEffect(() => { // only once: who then marks it unread wants it so
    if (m.is_read || !can('mark_message')) return
    const timer = setTimeout(() => void props.setRead(m, true), readAfter)
    return () => clearTimeout(timer)
  }, [])
  return (
    <article class="inbox-letter" aria-label={t('message.from', { sender: m.from_name || m.from_email || t('message.unknown_sender') })}>
      <div class="inbox-message-head">
        <Sender message={m} close={close} {...props} />
        <Suspected message={m} />
        <Invited message={m} />
        <Answered message={m} />
        <Attachments message={m} />
      </div>
      <Body message={m} />
      {roleOf(m) !== 'drafts' && <ReplyUnder message={m} />}
    </article>
  )
}

function Sender({ message: m, close, ...props }: Props & { message: Detail; close: (() => void) | undefined }) {
  const to = [...m.to, ...m.cc].map(nameOf)
  const names = <>{theirList(to.slice(0, 3)) || t('message.undisclosed')}</>
  return (
    <div class="inbox-sender">
      <Avatar name={m.from_name} email={m.from_email} />
      <div class="inbox-sender-text">
        <div class="inbox-sender-line">
          <strong class="truncate" dir="auto">{m.from_name || m.from_email || t('message.unknown_sender')}</strong>
          {m.from_name && <span class="muted truncate" dir="auto">{m.from_email}</span>}
          <span class="muted small when"><Time of={m.received_at} form="at" /></span>
        </div>
        <div class="inbox-sender-line">
          <details class="inbox-to">
            <summary><span class="truncate">{to.length > 3 ? rich('message.to_more', { names, n: to.length - 3 }) : rich('message.to', { names })}</span><Icon name="down" /></summary>
            <Facts of={[
              [t('message.field.from'), theirs(m.from)], [t('message.field.to'), theirList(m.to)], [t('message.field.cc'), theirList(m.cc)], [t('message.field.bcc'), theirList(m.bcc)], [t('message.field.reply_to'), theirList(m.reply_to)],
              [t('inbox.mailbox'), person() ? m.mailbox : <a href={`/mailboxes/${m.user_id}`}>{m.mailbox}</a>], [t('message.field.date'), m.date && <Time of={m.date} form="at" />],
              [t('message.field.received'), <Time of={m.received_at} form="at" />], [t('message.field.size'), bytes(m.size)], [t('message.field.spam'), m.spam && `${m.spam.score}, ${t(held[m.spam.verdict] ?? 'message.spam.unsure')}`], ['Message-ID', <code>{m.message_id}</code>],
            ]} />
          </details>
          {close && <span class="row nowrap"><More message={m} label={t('message.more_of', { sender: m.from_name || m.from_email })} within={props} /><IconButton look="ghost" small icon="collapse" label={t('message.close')} onClick={close} /></span>}
        </div>
        <div class="inbox-badges">
          {!isOwn(m) && <Verdict auth={m.auth} sender={m.from_email} />}
          {m.is_bounce && <Badge tone="bad">{t('message.bounce')}</Badge>}
          {m.is_auto_reply && <Badge tone="info">{t('message.auto_reply')}</Badge>}
          {m.is_warmup && <Badge tone="warn">{t('message.warmup')}</Badge>}
          {m.is_answered && <Badge tone="none">{m.answered_by && !person() ? t('message.replied_by', { name: m.answered_by.name }) : t('message.replied')}</Badge>}
        </div>
      </div>
    </div>
  )
}

/** Whether a message was written here, so that nobody checked its sender: a draft, or one that was sent. */
function isOwn(m: Detail): boolean {
  return ['Drafts', 'Sent'].includes(inFolder(m) ?? '') && m.auth.dmarc === 'none' && m.auth.spf === 'none' && m.auth.dkim === 'none'
}

const held: Record<string, Key> = { ham: 'message.spam.ham', unsure: 'message.spam.unsure', spam: 'message.spam.spam' }

/** What a reason is about that is no word of the message. */
const abouts: [RegExp, Key][] = [[/^sender/, 'message.spam.sender'], [/^link/, 'message.spam.link'], [/^attachment/, 'message.spam.attachment']]

/** Why a message looks like spam: in the server's words, or else by the kind of the reason. */
function reasonOf({ code, text }: { code: string; text: string }): string {
  const said = plain(text, true)
  if (said) return said
  const word = /^(word|subject|phrase)$/.test(code) && /"(.+)"/.exec(text)?.[1]
  return word ? t('message.spam.word', { word }) : t(abouts.find(([kind]) => kind.test(code))?.[1] ?? 'message.spam.other')
}

/** Why a message is in Junk, where the classifier put it there. */
function Suspected({ message: m }: { message: Detail }) {
  if (m.spam?.verdict !== 'spam' || roleOf(m) !== 'junk') return null
  const why = m.spam.reasons.filter((r) => r.weight > 0).slice(0, 5)
  return (
    <section class="inbox-suspected" aria-label={t('message.spam')}>
      <Icon name="ban" />
      <div class="grow">
        <strong>{t('message.spam.looks')}</strong>
        {why.length > 0 && <ul class="small muted">{[...new Set(why.map(reasonOf))].map((text) => <li key={text}>{text}</li>)}</ul>}
      </div>
    </section>
  )
}

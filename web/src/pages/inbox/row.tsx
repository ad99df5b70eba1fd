// One line of the list.
import { count, Icon, theirs, Time } from '../../ui'
import { rich, t, tn } from '../../words'
import { inFolder, keyOf, type Message } from './actions'
import { Avatar } from './avatar'
import { placeOf } from './filters'
import { folderInView, nameOfFolder, roleOf } from './folders'
import { emailOf, nameOf } from './people'

interface Props {
  message: Message
  open: boolean
  cursor: boolean
  selected: boolean
  /** Whether messages of many mailboxes are shown, so that it matters which one this is in. */
  mixed: boolean
  onSelect: (range: boolean) => void
  onFocus: () => void
  /** Gives it a star or takes it away; not given where that may not be done. */
  onStar: (() => unknown) | undefined
}

export function Row({ message: m, open, cursor, selected, mixed, onSelect, onFocus, onStar }: Props) {
  const written = roleOf(m) === 'sent' || roleOf(m) === 'drafts' || m.folder === 'Sent' || m.folder === 'Drafts'
  const to = [...m.to, ...m.cc].map(nameOf).join(', ')
  const sender = written ? t('inbox.row.to', { names: to || t('inbox.row.nobody') }) : m.from_name || m.from_email || t('message.unknown_sender')
  const subject = m.subject || t('message.no_subject')
  const click = (e: MouseEvent) => {
    if (!e.shiftKey) return
    e.preventDefault()
    onSelect(true)
  }
  return (
    <div class={`inbox-row ${m.is_read ? '' : 'unread'} ${open ? 'open' : ''} ${cursor ? 'cursor' : ''} ${selected ? 'selected' : ''}`} data-key={keyOf(m)}>
      <label class="inbox-pick" onMouseDown={(e) => { if (e.shiftKey) e.preventDefault() }}>
        <Avatar name={written && m.to[0] ? nameOf(m.to[0]) : m.from_name} email={written && m.to[0] ? emailOf(m.to[0]) : m.from_email} />
        <input type="checkbox" checked={selected} aria-label={t('inbox.row.select', { subject, sender })} onClick={(e) => onSelect(e.shiftKey)} />
      </label>
      <a href={placeOf(m)} aria-current={open ? 'true' : undefined} onClick={click} onFocus={onFocus} draggable={false}>
        <span class="inbox-row-top">
          {!m.is_read && <span class="visually-hidden">{t('inbox.row.unread')} </span>}
          <span class="sender truncate">{written ? rich('inbox.row.to', { names: theirs(to) || t('inbox.row.nobody') }) : theirs(sender)}{m.thread && m.thread.messages > 1 && <span class="count" title={m.thread.from.join(', ')}> <span aria-hidden="true">{count(m.thread.messages)}</span><span class="visually-hidden">{tn('inbox.messages', m.thread.messages)}. </span></span>}</span>
          {m.is_answered && <Mark icon="reply" text={t('message.replied')} />}
          {m.is_flagged && !onStar && <Mark icon="star-on" text={t('inbox.filter.starred')} />}
          {m.has_attachments && <Mark icon="clip" text={t('inbox.row.has_attachments')} />}
          <span class="when"><Time of={m.received_at} form="short" /></span>
        </span>
        <span class="subject truncate" dir="auto">{subject}</span>
        <span class="inbox-row-foot">
          <span class="truncate" dir="auto">{m.body_preview || t('inbox.row.no_text')}</span>
          {tagOf(m) && <span class="tag">{tagOf(m)}</span>}
          {folderInView() === 'all' && <span class="tag truncate" dir="auto">{nameOfFolder(inFolder(m) ?? 'inbox')}</span>}
          {mixed && <span class="box truncate" title={t('inbox.row.in', { mailbox: m.mailbox })}>{m.mailbox}</span>}
        </span>
      </a>
      {onStar && (
        <button type="button" class="inbox-star" aria-pressed={m.is_flagged} aria-label={t('inbox.row.star', { subject, sender })} title={m.is_flagged ? t('inbox.unstar') : t('inbox.star')} onClick={onStar}>
          <Icon name={m.is_flagged ? 'star-on' : 'star'} />
        </button>
      )}
    </div>
  )
}

function tagOf(m: Message): string {
  return m.is_bounce ? t('message.bounce') : m.is_auto_reply ? t('message.auto_reply') : m.is_warmup ? t('message.warmup') : ''
}

function Mark({ icon, text }: { icon: 'reply' | 'star-on' | 'clip'; text: string }) {
  return <span class="mark" title={text}><Icon name={icon} /><span class="visually-hidden">{text}. </span></span>
}

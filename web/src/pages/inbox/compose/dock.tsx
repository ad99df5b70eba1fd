// Where a message is written beside what one reads: in a corner, or below the message that it
// answers.
import { signal } from '@preact/signals'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { can } from '../../../api/client'
import { go } from '../../../router'
import { Icon, IconButton, narrow } from '../../../ui'
import { t } from '../../../words'
import type { Message } from '../actions'
import { nameOf } from '../people'
import { answeredTo, changed, docked, draftOf, isAbout, isBegun, replyTo, under } from './draft'
import { ComposeForm, editor, type Sent } from './form'
import { Fates, Undo, useWaits } from './sent'

const last = signal<Sent | null>(null)
const soon = 1000 // ms after which the editor is fetched, before it is needed

export function Dock() {
  useEffect(() => {
    const timer = setTimeout(() => void editor.load().catch(() => { /* it is fetched when it is needed */ }), soon)
    return () => clearTimeout(timer)
  }, [])
  const key = docked.value
  if (key === null) return <Done />
  return under.value !== null && isAbout(key, under.value) ? null : <Corner key={key} draft={key} />
}

function close() {
  docked.value = null
}

function Corner({ draft: key }: { draft: string }) {
  useFocusBack()
  return <section class="compose compose-dock" role="dialog" aria-label={t(`compose.title.${draftOf(key).kind}`)} onKeyDown={leaveByKey}><Writing draft={key} /></section>
}

/** Closes what is written by Escape; the draft is kept. */
function leaveByKey(e: KeyboardEvent) {
  if (e.key !== 'Escape' || e.defaultPrevented) return
  e.stopPropagation()
  close()
}

function useFocusBack() {
  const [before] = useState(() => document.activeElement as HTMLElement | null)
  useEffect(() => () => before?.focus?.(), [])
}

function Writing({ draft: key }: { draft: string }) {
  return (
    <>
      <header>
        <h2>{t(`compose.title.${draftOf(key).kind}`)}</h2>
        <IconButton look="ghost" small icon="expand" label={t('compose.expand')} onClick={() => { close(); go('/compose?draft=' + encodeURIComponent(key)) }} />
        <IconButton look="ghost" small icon="x" label={t('compose.close')} onClick={close} />
      </header>
      <ComposeForm draft={key} onSent={(sent) => { last.value = sent; close() }} onDiscard={close} />
    </>
  )
}

/** The place below a message where it is answered or passed on. */
export function ReplyUnder({ message: m }: { message: Message }) {
  void changed.value
  const key = docked.value
  useLayoutEffect(() => {
    if (narrow.peek()) return // there is no room below a message
    under.value = m.id
    return () => {
      under.value = null
      if (docked.value !== null && isAbout(docked.value, m.id)) close() // the draft is kept
    }
  }, [m.id])
  if (!can('send_email')) return null
  if (key !== null && under.value === m.id && isAbout(key, m.id)) return <Below key={key} draft={key} />
  const begun = (['reply', 'forward'] as const).find((way) => isBegun(`${way} ${m.id}`))
  return (
    <div class="compose-again">
      <button type="button" onClick={() => (begun ? docked.value = `${begun} ${m.id}` : void replyTo(m, 'reply'))}>
        <Icon name={begun ? 'pencil' : 'reply'} />
        <span class="truncate" dir="auto">{begun ? t('compose.go_on') : t('compose.reply_to', { name: nameOf(answeredTo(m)[0]!) })}</span>
      </button>
    </div>
  )
}

function Below({ draft: key }: { draft: string }) {
  const place = useRef<HTMLElement>(null)
  useFocusBack()
  useEffect(() => place.current!.scrollIntoView({ block: 'nearest' }), [])
  return <section class="compose compose-under" aria-label={t(`compose.title.${draftOf(key).kind}`)} ref={place} onKeyDown={leaveByKey}><Writing draft={key} /></section>
}

const seconds = 12

/** Says for some time that a message is on its way. */
function Done() {
  const sent = last.value
  const waits = useWaits(sent)
  useEffect(() => {
    if (!sent || waits) return
    const timer = setTimeout(() => { last.value = null }, seconds * 1000)
    return () => clearTimeout(timer)
  }, [sent, waits])
  if (!sent) return null
  return (
    <section class="compose compose-done" aria-label={t('compose.sent')} role="status">
      <header>
        <h2><Icon name="check" /> {t(sent.until === 0 && sent.status === 'scheduled' ? 'compose.scheduled' : 'compose.sent')}</h2>
        {waits && <Undo sent={sent} onBack={() => { last.value = null; docked.value = sent.draft.key }} />}
        <IconButton look="ghost" small icon="x" label={t('ui.close')} onClick={() => { last.value = null }} />
      </header>
      {!waits && <Fates sent={sent} />}
    </section>
  )
}

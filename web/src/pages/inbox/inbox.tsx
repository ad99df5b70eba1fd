// The inbox: the list, and beside it, or after it on a small screen, the message that is read.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { can, person, session, type Input } from '../../api/client'
import { readAhead, usePages, useQuery } from '../../api/query'
import { go, params } from '../../router'
import { aside } from '../../aside'
import { setTitle, unread } from '../../title'
import { Button, Empty, LinkButton, LongList, useDrawn } from '../../ui'
import { rich, t, type Key } from '../../words'
import { isGone, keyOf, mark, markJunk, markMany, moveTo, remove, type Change, type Message } from './actions'
import { composeNew, replyTo, type Way } from './compose/draft'
import { Dock } from './compose/dock'
import { clearFilters, filters, isFiltered, placeOf, setFilter } from './filters'
import { FolderList, folderInView, nameOfFolder, roleOf, useUnread } from './folders'
import { Bulk, Head, UniversalNotice } from './head'
import { Help, useKeys } from './keys'
import { Reading } from './message'
import { useNotifications } from './notify'
import { Row } from './row'
import { useSelection } from './selection'
import type { Steps } from './types'

/** The heights of a row: three lines, or one, or on a phone two. */
const heights = { height: 86, compactHeight: 36, narrowCompactHeight: 58 }

/** What the list reads: conversations, unless it is a search. */
function listOf(narrowed: Input<'list_inbox'>): Input<'list_inbox'> {
  return { ...narrowed, threads: !narrowed.q && !narrowed.from || undefined, limit: 50 }
}

/** Reads what the inbox begins with, before it is opened. */
export const readInboxAhead = () => readAhead('list_inbox', listOf({}))

export function Inbox({ user_id, uid }: { user_id?: string; uid?: string }) {
  const folder = params.value.get('in') ?? undefined
  const here = user_id && uid ? keyOf({ user_id, uid, folder }) : undefined
  const narrowed = filters()
  const all = usePages('list_inbox', listOf(narrowed), keyOf)
  const account = useQuery('get_account', {}, { when: useDrawn(all) && !person() }).data
  const pages = { ...all, items: all.items.filter((m) => !isGone(m)) }
  const [cursor, setCursor] = useState<string | undefined>(here)
  const [help, setHelp] = useState(false)
  const selection = useSelection(pages.items)
  const steps = useSteps(pages.items, here ?? cursor)
  const at = pages.items.find((m) => keyOf(m) === here)
  const open = at && { ...at, thread: undefined } // the message alone, of which the list may have the conversation
  const read = useRef<Message | undefined>(undefined) // the open message, also if the list does not have it
  const reread = useRef<(() => unknown) | undefined>(undefined)
  useEffect(() => { if (here) setCursor(here) }, [here])
  useEffect(() => { if (!here) setTitle(nameOfFolder(folderInView())) }, [here, folderInView()])
  useFirstFocus()
  useAside()
  useNotifications(params.value.get('mailbox') ?? '')

  const move = (to: Message | undefined) => {
    if (!to) return
    setCursor(keyOf(to))
    if (here) go(placeOf(to), { replace: true })
    focusRow(keyOf(to))
  }
  const leave = () => {
    go(placeOf())
    focusRow(here ?? cursor)
  }
  const entering = useRef(false) // the viewer wants to go from the search field into the list
  useEffect(() => {
    if (!entering.current || pages.loading) return
    entering.current = false
    const first = pages.items[0]
    if (!first || document.activeElement?.id !== 'inbox-search') return
    setCursor(keyOf(first))
    focusRow(keyOf(first))
  })
  const [, enter] = useState(0)
  /** The open message alone, or a row of the list with its conversation. */
  const current = () => open ?? (here ? read.current : pages.items.find((m) => keyOf(m) === cursor))
  /** What a key acts on: the selected, else the open one, else the one that the keys are at. */
  const those = (): Message[] => {
    if (selection.chosen.length > 0) return selection.chosen
    const one = current()
    return one ? [one] : []
  }
  /** Does something with messages that go from the list, and opens the next one where the open one goes. */
  const take = (messages: Message[], away: (messages: Message[]) => void) => {
    const next = messages.some((m) => keyOf(m) === here) ? (steps.after(messages) ?? null) : undefined
    away(messages)
    selection.none()
    if (next) move(next)
    if (next === null) go(placeOf(), { replace: true })
  }
  const drop = (messages: Message[]) => take(messages, () => remove(messages, roleOf(messages[0]) === 'trash'))
  const moveAll = (messages: Message[], to: string, name: string) => take(messages, () => moveTo(messages, to, name))
  /** Those that are junk already are not. */
  const junk = (messages: Message[]) => take(messages, () => markJunk(messages, roleOf(messages[0]) !== 'junk'))
  const set = (messages: Message[], change: Change) => {
    selection.none()
    return messages.length === 1 ? mark(all, messages, change) : markMany(all, messages, change)
  }
  const afterwards = (done: Promise<void>) => (here ? done.then(() => reread.current?.()) : done) // the list need not have the open message
  /** Gives them a star; where all have one, takes it away. */
  const star = (messages: Message[]) => afterwards(set(messages, { is_flagged: messages.some((m) => !m.is_flagged) }))
  const answer = (way: Way) => {
    const one = current()
    if (one && can('send_email')) void replyTo(one, way)
  }
  /** A new message is from the mailbox in view: that of the list, or of the open message. */
  const compose = () => composeNew(person() ? session.value!.user.email : params.value.get('mailbox') || ((open ?? (here ? read.current : undefined))?.mailbox ?? null))
  const may = { mark: can('mark_message'), remove: can('bulk_delete_messages'), move: can('bulk_move_messages') }

  useKeys({
    j: () => move(steps.next), k: () => move(steps.previous),
    ArrowDown: () => onList() && move(steps.next), ArrowUp: () => onList() && (steps.previous ? move(steps.previous) : document.getElementById('inbox-search')?.focus()),
    u: here ? leave : undefined, Escape: selection.chosen.length > 0 ? selection.none : here ? leave : undefined,
    x: cursor ? () => selection.toggle(cursor, false) : undefined,
    e: may.mark ? () => {
      const messages = those()
      void set(messages, { is_read: true })
      if (messages.length === 1) move(steps.next)
    } : undefined,
    U: may.mark ? () => void set(those(), { is_read: false }) : undefined, s: may.mark ? () => void star(those()) : undefined,
    '#': may.remove ? () => drop(those()) : undefined, Delete: may.remove ? () => drop(those()) : undefined,
    y: may.move ? () => moveAll(those(), 'archive', nameOfFolder('archive')) : undefined, '!': may.move ? () => junk(those()) : undefined,
    r: () => answer('reply'), a: () => answer('all'), f: () => answer('forward'),
    c: can('send_email') ? compose : undefined,
    '/': () => document.getElementById('inbox-search')?.focus(), '?': () => setHelp(true),
    Enter: document.activeElement === document.body && cursor && !here ? () => go(placeOf(pages.items.find((m) => keyOf(m) === cursor))) : undefined,
  })

  return (
    <div class={'inbox' + (here ? ' reading' : '')}>
      <section class="inbox-list" aria-label={t('inbox.list')}>
        <header class="inbox-head">
          <Head account={account} onCompose={compose} onHelp={() => setHelp(true)} onDown={() => { entering.current = true; enter((n) => n + 1) }} />
          {selection.chosen.length > 0 && (
            <Bulk selected={selection.chosen.length} loaded={pages.items.length} onAll={selection.all} onNone={selection.none}
              onMark={(read) => set(selection.chosen, { is_read: read })} onStar={() => star(selection.chosen)} starred={selection.chosen.every((m) => m.is_flagged)} onDelete={() => drop(selection.chosen)}
              userID={new Set(selection.chosen.map((m) => m.user_id)).size === 1 ? selection.chosen[0]!.user_id : ''} onMove={(to, name) => moveAll(selection.chosen, to, name)} />
          )}
        </header>
        <div class={'inbox-rows' + (selection.chosen.length > 0 ? ' selecting' : '')}>
          <LongList pages={pages} idOf={keyOf} {...heights} label={t('inbox.list')} current={cursor} empty={<Nothing />}
            row={(m) => (
              <Row message={m} open={keyOf(m) === here} cursor={keyOf(m) === cursor} selected={selection.has(keyOf(m))} mixed={!person() && !params.value.get('mailbox')}
                onSelect={(range) => { selection.toggle(keyOf(m), range); setCursor(keyOf(m)) }} onFocus={() => setCursor(keyOf(m))}
                onStar={may.mark ? () => afterwards(mark(all, [m], { is_flagged: !m.is_flagged })) : undefined} />
            )} />
          <UniversalNotice account={account} />
        </div>
      </section>
      {here ? (
        <Reading key={here} user_id={user_id!} uid={uid!} folder={folder} known={open} steps={steps} move={move} leave={leave} answer={answer} onRead={(m, reload) => { read.current = m; reread.current = reload }}
          setRead={(m, read) => mark(all, [m], { is_read: read })} star={(m) => star([m])} drop={(m) => drop([m])} moveTo={(m, to, name) => moveAll([m], to, name)} junk={(m) => junk([m])} />
      ) : <Unopened onHelp={() => setHelp(true)} />}
      <Dock />
      {help && <Help onClose={() => setHelp(false)} />}
    </div>
  )
}

function onList(): boolean {
  return !!document.activeElement?.closest('.inbox-row')
}

let focusWanted = 0 // counts who asked for the focus; the last one gets it

/** Gives the focus to a row once the list has drawn it, unless the viewer has moved it elsewhere meanwhile. */
function focusRow(key: string | undefined, frames = 20) {
  const from = document.activeElement, mine = ++focusWanted
  const look = () => {
    const now = document.activeElement
    if (mine !== focusWanted || now !== from && now !== document.body && !onList()) return
    const row = [...document.querySelectorAll<HTMLElement>('.inbox-row')].find((r) => r.dataset.key === key)
    if (row) row.querySelector('a')?.focus({ preventScroll: true })
    else if (--frames > 0) requestAnimationFrame(look)
  }
  requestAnimationFrame(() => requestAnimationFrame(look))
}

function useFirstFocus() {
  useEffect(() => {
    if (document.activeElement === document.body || document.activeElement?.closest('nav')) document.querySelector<HTMLElement>('.inbox h1')?.focus({ preventScroll: true })
  }, [])
}

/** The neighbours of a message in the list; of the place where it was, if it is there no more. */
function useSteps(items: Message[], key: string | undefined): Steps {
  const place = useRef(-1)
  const at = items.findIndex((m) => keyOf(m) === key)
  if (at >= 0) place.current = at
  const is = at >= 0
  const from = key ? place.current : -1
  return {
    next: items[is ? from + 1 : Math.max(0, from)], previous: items[from - 1],
    after: (messages) => {
      const out = new Set(messages.map(keyOf)), start = Math.max(0, from)
      return items.slice(start).find((m) => !out.has(keyOf(m))) ?? items.slice(0, start).findLast((m) => !out.has(keyOf(m)))
    },
  }
}

/**
 * Shows the folders in the navigation, and the number of unread messages in the title, while the
 * inbox is open.
 */
function useAside() {
  const n = useUnread()
  useEffect(() => { unread.value = n }, [n])
  useLayoutEffect(() => { // they are in the first picture of the page
    aside.value = <FolderList />
    return () => {
      aside.value = null
      unread.value = undefined
    }
  }, [])
}

const emptied: Record<string, Key> = {
  inbox: 'inbox.empty.inbox', drafts: 'inbox.empty.drafts', junk: 'inbox.empty.junk', trash: 'inbox.empty.trash', archive: 'inbox.empty.archive', sent: 'inbox.empty.sent',
}

function Nothing() {
  const folder = folderInView()
  if (isFiltered()) {
    const wider = params.value.get('q') && folder !== 'all'
    return (
      <Empty icon="search" title={t('inbox.no_results')} action={<span class="row">{wider && <Button onClick={() => setFilter({ folder: 'all' })}>{t('inbox.search.all')}</Button>}<Button onClick={clearFilters}>{t('inbox.filter.clear_all')}</Button></span>}>
        {t('inbox.no_results.text')}
      </Empty>
    )
  }
  const text = emptied[folder]
  if (folder !== 'inbox' || person()) return <Empty icon="inbox" title={folder === 'inbox' ? t('inbox.empty') : t('inbox.empty.folder', { folder: nameOfFolder(folder) })}>{text && t(text)}</Empty>
  return <Empty icon="inbox" title={t('inbox.empty')} action={<LinkButton href="/mailboxes">{t('inbox.view_mailboxes')}</LinkButton>}>{t('inbox.empty.team')}</Empty>
}

function Unopened({ onHelp }: { onHelp: () => void }) {
  return (
    <div class="inbox-reading inbox-unopened">
      <Empty icon="mail-open" title={t('inbox.unopened')} action={<Button look="ghost" small icon="keyboard" onClick={onHelp}>{t('inbox.all_keys')}</Button>}>
        {rich('inbox.unopened.text', { next: <kbd>j</kbd>, previous: <kbd>k</kbd>, open: <kbd>{t('ui.key.enter')}</kbd> })}
      </Empty>
    </div>
  )
}

// Lists to choose from that open below a button, such as that of the mailboxes. There may be ten
// thousand, so the server is asked for those that fit what is typed.
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useId, useRef, useState } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { useLate, useQuery, type Query } from '../../api/query'
import { Icon } from '../../ui'
import { t, tn } from '../../words'

export type Mailbox = Schemas['EmailUser']

/** Tells whether a mailbox can send. The status of an external one is about its incoming mail. */
export function maySend(m: Mailbox): boolean {
  return m.status === 'active' || (m.type === 'external' && m.smtp_host !== '' && (m.status === 'pending' || m.status === 'error'))
}

const ends = ['pointerup', 'pointercancel'] as const
const afterPress = 50 // ms until the click of a press has come

/**
 * A button that opens a list to choose from, which gets how to close it. value is what was chosen.
 * opened: the list is open at first.
 */
export function Picker({ label, value, opened = false, children }: { label: string; value: string; opened?: boolean; children: (close: () => void) => ComponentChildren }) {
  const [open, setOpen] = useState(opened)
  const box = useRef<HTMLDivElement>(null)
  const pressing = useRef(false) // something outside: the list goes after that, since what lies below it moves, and the press would miss it
  const close = () => {
    setOpen(false)
    box.current?.querySelector('button')?.focus()
  }
  useEffect(() => {
    if (!open) return
    const outside = (e: Event) => { pressing.current = !box.current?.contains(e.target as Node) }
    const end = () => {
      if (!pressing.current) return
      setTimeout(() => {
        pressing.current = false
        setOpen(false)
      }, afterPress)
    }
    addEventListener('pointerdown', outside)
    for (const name of ends) addEventListener(name, end)
    return () => {
      pressing.current = false
      removeEventListener('pointerdown', outside)
      for (const name of ends) removeEventListener(name, end)
    }
  }, [open])
  return (
    <div class="inbox-picker" ref={box} onFocusOut={(e) => { if (!pressing.current && e.relatedTarget && !box.current?.contains(e.relatedTarget as Node)) setOpen(false) }}>
      <button type="button" class="inbox-picker-button" aria-haspopup="listbox" aria-expanded={open} aria-label={`${label}: ${value}`} onClick={() => setOpen(!open)}>
        <span class="truncate">{value}</span> <Icon name="down" />
      </button>
      {open && children(close)}
    </div>
  )
}

interface Choice<T> { of: T; key: string; name: string; about?: string; aside?: string; chosen: boolean }

interface ChoicesProps<T> {
  label: string
  /** What the field says that is searched by it. */
  search: string
  typed: string
  onType: (text: string) => void
  /** What was asked of the server, and its answer. */
  q: string
  list: Query<{ pagination: { has_more: boolean } }>
  choices: Choice<T>[]
  /** What is said where there is nothing to choose from. */
  none: string
  onPick: (of: T) => void
  onEscape: () => void
}

/** The list of a picker, below the field by which it is searched. */
export function Choices<T>({ label, search, typed, onType, q, list, choices, none, onPick, onEscape }: ChoicesProps<T>) {
  const [at, setAt] = useState(0)
  const id = useId()
  const box = useRef<HTMLDivElement>(null), input = useRef<HTMLInputElement>(null)
  const here = Math.min(at, choices.length - 1)
  const ready = typed.trim() === q && !list.loading
  const hasty = useRef(false) // Enter came before what was searched for
  useLayoutEffect(() => input.current?.focus(), []) // at once, since a key may follow before the next picture
  useEffect(() => { if (box.current?.closest('dialog')) box.current.scrollIntoView({ block: 'nearest' }) }, [choices.length]) // there it has a place of its own
  useEffect(() => setAt(0), [q])
  useEffect(() => document.getElementById(id + here)?.scrollIntoView({ block: 'nearest' }), [here])

  const pick = () => { if (here >= 0) onPick(choices[here]!.of) }
  useEffect(() => {
    if (!hasty.current || !ready) return
    hasty.current = false
    pick()
  })
  const press = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown') setAt(Math.min(here + 1, choices.length - 1))
    else if (e.key === 'ArrowUp') setAt(Math.max(here - 1, 0))
    else if (e.key === 'Enter' && ready) pick()
    else if (e.key === 'Enter') hasty.current = true
    else if (e.key === 'Escape') onEscape()
    else return
    e.preventDefault()
    e.stopPropagation()
  }
  return (
    <div class="inbox-choices" ref={box}>
      <input ref={input} class="input" type="text" role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls={id} aria-activedescendant={here >= 0 ? id + here : undefined}
        aria-label={search} placeholder={search} value={typed} onInput={(e) => onType(e.currentTarget.value)} onKeyDown={press} spellcheck={false} />
      <ul role="listbox" id={id} aria-label={label} onMouseDown={(e) => e.preventDefault() /* a dialog would take the focus, and with it the list away */}>
        {choices.map((c, i) => (
          <li key={c.key} id={id + i} role="option" aria-selected={c.chosen} class={i === here ? 'at' : ''} onPointerMove={() => setAt(i)} onClick={() => onPick(c.of)}>
            <span class="grow truncate">
              <span class="truncate">{c.name}</span>
              {c.about && <span class="small muted truncate" dir="auto">{c.about}</span>}
            </span>
            {c.aside && <span class="small muted">{c.aside}</span>}
            {c.chosen && <Icon name="check" />}
          </li>
        ))}
      </ul>
      <p class="small muted inbox-choices-note" role="status">
        {list.error ? list.error.message : choices.length === 0 ? (ready ? none : t('inbox.searching')) : list.data?.pagination.has_more ? t('inbox.type_for_more') : ''}
      </p>
    </div>
  )
}

interface Props {
  label: string
  /** The address that is picked; '' for all. */
  value: string
  onPick: (mailbox: Mailbox | null) => void
  /** What stands for no mailbox in particular. Without it one has to be picked. */
  all?: string
  opened?: boolean
}

/** Picks one of the mailboxes. */
export function MailboxPicker(props: Props) {
  const { label, value, all, opened, onPick } = props
  return (
    <Picker label={label} value={value || all || t('inbox.choose_mailbox')} opened={opened}>
      {(close) => <Mailboxes {...props} onPick={(m) => { onPick(m); close() }} onEscape={close} />}
    </Picker>
  )
}

function Mailboxes({ label, value, all, onPick, onEscape }: Props & { onEscape: () => void }) {
  const [typed, setTyped] = useState(''), q = useLate(typed.trim(), 150)
  const list = useQuery('list_email_users', { q: q || undefined, limit: 30 }, { kinds: [] })
  const found: (Mailbox | null)[] = list.data?.data ?? []
  const choices = (all && q === '' ? [null, ...found] : found).map((m) => ({
    of: m, key: m?.id ?? '', name: m?.email ?? all!, about: m?.name, aside: m && m.unread_count > 0 ? tn('inbox.unread', m.unread_count) : '', chosen: (m?.email ?? '') === value,
  }))
  return <Choices {...{ label, typed, q, list, choices, onPick, onEscape }} search={t('inbox.search_mailboxes')} onType={setTyped} none={q ? t('inbox.no_mailboxes_match') : t('inbox.no_mailboxes')} />
}

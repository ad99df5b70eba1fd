// Picks one of the mailboxes. There may be ten thousand, so it asks the server for those that fit what is typed.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Icon } from '../../ui'
import { t, tn } from '../../words'

type Mailbox = Schemas['EmailUser']

/** Tells whether a mailbox can send. The status of an external one is about its incoming mail. */
export function maySend(m: Mailbox): boolean {
  return m.status === 'active' || (m.type === 'external' && m.smtp_host !== '' && (m.status === 'pending' || m.status === 'error'))
}

interface Props {
  label: string
  /** The address that is picked; '' for all. */
  value: string
  onPick: (mailbox: Mailbox | null) => void
  /** What stands for no mailbox in particular. Without it one has to be picked. */
  all?: string
  /** Only those that can send. */
  active?: boolean
}

export function MailboxPicker({ label, value, onPick, all, active }: Props) {
  const [open, setOpen] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const close = (focus: boolean) => {
    setOpen(false)
    if (focus) box.current?.querySelector('button')?.focus()
  }
  useEffect(() => {
    if (!open) return
    const outside = (e: Event) => { if (!box.current?.contains(e.target as Node)) setOpen(false) }
    addEventListener('pointerdown', outside)
    return () => removeEventListener('pointerdown', outside)
  }, [open])
  return (
    <div class="inbox-picker" ref={box} onFocusOut={(e) => { if (e.relatedTarget && !box.current?.contains(e.relatedTarget as Node)) setOpen(false) }}>
      <button type="button" class="inbox-picker-button" aria-haspopup="listbox" aria-expanded={open} aria-label={`${label}: ${value || all || t('inbox.choose_mailbox')}`} onClick={() => setOpen(!open)}>
        <span class="truncate">{value || all || t('inbox.choose_mailbox')}</span> <Icon name="down" />
      </button>
      {open && <Choices {...{ label, value, all, active }} onPick={(m) => { onPick(m); close(true) }} onEscape={() => close(true)} />}
    </div>
  )
}

function Choices({ label, value, all, active, onPick, onEscape }: Props & { onEscape: () => void }) {
  const [typed, setTyped] = useState('')
  const q = useLate(typed.trim(), 150)
  const [at, setAt] = useState(0)
  const id = useId()
  const list = useQuery('list_email_users', { q: q || undefined, limit: active ? 100 : 30 }, { kinds: [] })
  const found = (list.data?.data ?? []).filter((m) => !active || maySend(m))
  const choices: (Mailbox | null)[] = all && q === '' ? [null, ...found] : found
  const here = Math.min(at, choices.length - 1)
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => input.current?.focus(), [])
  useEffect(() => setAt(0), [q])
  useEffect(() => document.getElementById(id + here)?.scrollIntoView({ block: 'nearest' }), [here])

  const pick = () => { if (here >= 0) onPick(choices[here]!) }
  const hasty = useRef(false) // Enter came before what was searched for
  useEffect(() => {
    if (hasty.current && typed.trim() === q && !list.loading) pick()
    hasty.current &&= list.loading || typed.trim() !== q
  })
  const press = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown') setAt(Math.min(here + 1, choices.length - 1))
    else if (e.key === 'ArrowUp') setAt(Math.max(here - 1, 0))
    else if (e.key === 'Enter' && typed.trim() === q && !list.loading) pick()
    else if (e.key === 'Enter') hasty.current = true
    else if (e.key === 'Escape') onEscape()
    else return
    e.preventDefault()
    e.stopPropagation()
  }
  return (
    <div class="inbox-choices">
      <input ref={input} class="input" type="text" role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls={id} aria-activedescendant={here >= 0 ? id + here : undefined}
        aria-label={t('inbox.search_mailboxes')} placeholder={t('inbox.search_mailboxes')} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} onKeyDown={press} spellcheck={false} />
      <ul role="listbox" id={id} aria-label={label} onMouseDown={(e) => e.preventDefault() /* a dialog would take the focus, and with it the list away */}>
        {choices.map((m, i) => (
          <li key={m?.id ?? ''} id={id + i} role="option" aria-selected={(m?.email ?? '') === value} class={i === here ? 'at' : ''} onPointerMove={() => setAt(i)} onClick={() => onPick(m)}>
            <span class="grow truncate">
              <span class="truncate">{m ? m.email : all}</span>
              {m?.name && <span class="small muted truncate" dir="auto">{m.name}</span>}
            </span>
            {m && !active && m.unread_count > 0 && <span class="small muted">{tn('inbox.unread', m.unread_count)}</span>}
            {(m?.email ?? '') === value && <Icon name="check" />}
          </li>
        ))}
      </ul>
      <p class="small muted inbox-choices-note" role="status">
        {list.error ? list.error.message : choices.length === 0 ? (list.loading ? t('inbox.searching') : q ? t('inbox.no_mailboxes_match') : t('inbox.no_mailboxes')) : list.data?.pagination.has_more ? t('inbox.type_for_more') : ''}
      </p>
    </div>
  )
}

/** A value that follows once it has been still for some milliseconds. */
export function useLate<T>(value: T, ms: number): T {
  const [late, setLate] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setLate(value), ms)
    return () => clearTimeout(timer)
  }, [value])
  return late
}

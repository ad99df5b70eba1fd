// A field for many recipients. Each becomes a chip once it is complete. A list offers who may be
// meant.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import type { ComponentChildren } from 'preact'
import { useLate } from '../../../api/query'
import { Icon } from '../../../ui'
import { t } from '../../../words'
import { emailOf, isEmail, nameOf, splitPeople, without } from '../people'
import { isSaid, textOf, useSuggestions } from './suggest'

interface Props {
  label: string
  people: string[]
  onChange: (people: string[]) => void
  wrong?: string
  autoFocus?: boolean
  /** What stands beside the field, and comes before it for the keyboard. */
  beside?: ComponentChildren
  /** The mailbox whose correspondents are suggested. */
  userID: string
}

const pause = 150 // ms without a key

export function Chips({ label, people, onChange, wrong, autoFocus, beside, userID }: Props) {
  const [typed, setTyped] = useState('')
  const [closed, setClosed] = useState(false) // by Escape, until something else is typed
  const [picked, setPicked] = useState<number>() // by the arrow keys
  const hasty = useRef(false) // Enter or Tab came before what was searched for
  const [, draw] = useState(0)
  const [inside, setInside] = useState(false)
  const id = useId()
  const input = useRef<HTMLInputElement>(null)
  const wanted = typed.trim(), late = useLate(wanted, pause)
  const q = hasty.current ? wanted : late
  const { found, done } = useSuggestions(userID, q)
  const fresh = q === wanted && wanted !== ''
  const offered = fresh ? found.filter((s) => !people.some((p) => emailOf(p).toLowerCase() === s.email.toLowerCase())) : []
  const open = inside && !closed && offered.length > 0
  const at = Math.min(picked ?? (isSaid(wanted, offered[0]) ? -1 : 0), offered.length - 1)

  const add = (text: string) => {
    const more = splitPeople(text)
    if (more.length > 0) onChange(without([...people, ...more], []))
    type('')
  }
  /** Takes what is typed. Outside of quotes a comma, or a space after it, ends an address. */
  const typing = (text: string) => (text.split('"').length % 2 === 1 && (/[,;]\s*$/.test(text) || /\s$/.test(text) && isEmail(text.trim())) ? add(text) : type(text))
  const type = (text: string) => {
    setTyped(text)
    setPicked(undefined)
    setClosed(false)
    hasty.current = false
  }
  /** Takes what the list offers first, or else what is typed. */
  const takeFirst = () => add(at >= 0 && !closed ? textOf(offered[at]!) : typed)
  useEffect(() => { if (hasty.current && fresh && done) takeFirst() })
  useEffect(() => document.getElementById(`${id}o${at}`)?.scrollIntoView({ block: 'nearest' }), [at, open])

  const remove = (i: number) => {
    onChange(people.filter((_, n) => n !== i))
    input.current?.focus()
  }
  const press = (e: KeyboardEvent) => {
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
      if (wanted) add(typed)
    } else if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) {
      return
    } else if (open && (e.key === 'ArrowDown' || e.key === 'ArrowUp')) {
      setPicked((at + (e.key === 'ArrowDown' ? 1 : offered.length - 1 + Number(at < 0))) % offered.length)
      e.preventDefault()
    } else if (e.key === 'Enter' || (e.key === 'Tab' && !e.shiftKey && wanted)) {
      if (e.key === 'Enter') e.preventDefault()
      if (!wanted) return
      if (fresh && done || isSaid(wanted, undefined) || /[,;]/.test(wanted)) return takeFirst()
      hasty.current = true
      draw((n) => n + 1)
    } else if (e.key === 'Escape' && open) {
      e.preventDefault()
      setClosed(true)
    } else if (e.key === 'Backspace' && typed === '' && people.length > 0) {
      e.preventDefault()
      type(people.at(-1)!)
      onChange(people.slice(0, -1))
    }
  }
  const paste = (e: ClipboardEvent) => {
    const text = e.clipboardData?.getData('text') ?? '', list = splitPeople(text)
    if (list.length < 2 && !isEmail(text.trim())) return
    e.preventDefault()
    add(`${typed},${text}`)
  }
  const leave = () => {
    setInside(false)
    if (!hasty.current) add(typed)
  }
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>{label}</label>
      {beside}
      <div class="compose-chips" onClick={(e) => { if (e.target === e.currentTarget) input.current?.focus() }}>
        {people.map((p, i) => <Chip key={p} person={p} onRemove={() => remove(i)} />)}
        <input ref={(e) => { input.current = e; if (e && autoFocus && !e.dataset.met) { e.dataset.met = '1'; e.focus() } }} id={id} type="text" inputMode="email" autocapitalize="off" autocomplete="off" spellcheck={false} dir="auto" placeholder=" "
          role="combobox" aria-autocomplete="list" aria-expanded={open} aria-controls={id + 'l'} aria-activedescendant={open && at >= 0 ? `${id}o${at}` : undefined} value={typed} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined}
          onInput={(e) => typing(e.currentTarget.value)} onKeyDown={press} onPaste={paste} onFocus={() => setInside(true)} onBlur={leave} />
      </div>
      <ul class="compose-offer" role="listbox" id={id + 'l'} aria-label={t('compose.suggestions')} hidden={!open} onMouseDown={(e) => e.preventDefault() /* the field keeps the focus */}>
        {open && offered.map((s, i) => (
          <li key={s.email} id={`${id}o${i}`} role="option" aria-selected={i === at} class={i === at ? 'at' : ''} onPointerMove={() => setPicked(i)} onClick={() => add(textOf(s))}>
            <span class="truncate" dir="auto">{s.name || s.email}</span>
            {s.name && <span class="small muted truncate" dir="auto">{s.email}</span>}
            {s.kind && <span class="small muted nowrap">{s.kind}</span>}
          </li>
        ))}
      </ul>
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

function Chip({ person, onRemove }: { person: string; onRemove: () => void }) {
  const fine = isEmail(person)
  return (
    <span class={'compose-chip' + (fine ? '' : ' bad')} title={fine ? emailOf(person) : t('compose.not_an_address')}>
      {!fine && <Icon name="alert" />}
      <span class="truncate" dir="auto">{nameOf(person)}</span>
      {!fine && <span class="visually-hidden">, {t('compose.not_an_address')}</span>}
      <button type="button" aria-label={t('compose.remove', { name: nameOf(person) })} onClick={onRemove}><Icon name="x" /></button>
    </span>
  )
}

// A field for many recipients. Each becomes a chip once it is complete.
import { useId, useRef, useState } from 'preact/hooks'
import type { ComponentChildren } from 'preact'
import { useQuery } from '../../../api/query'
import { Icon } from '../../../ui'
import { emailOf, isEmail, nameOf, splitPeople, without } from '../people'
import { useLate } from '../picker'

interface Props {
  label: string
  people: string[]
  onChange: (people: string[]) => void
  wrong?: string
  autoFocus?: boolean
  after?: ComponentChildren
  /** The mailbox whose correspondents are suggested. */
  userID: string
}

export function Chips({ label, people, onChange, wrong, autoFocus, after, userID }: Props) {
  const [typed, setTyped] = useState('')
  const id = useId()
  const input = useRef<HTMLInputElement>(null)
  const q = useLate(typed.trim(), 200)
  const suggestions = useQuery('suggest_addresses', { user_id: userID, q, limit: 8 }, { when: userID !== '' && q.length > 0 && q.length <= 60, kinds: [] })
  const suggested = q.length > 0 ? suggestions.data?.data ?? [] : []
  const add = (text: string) => {
    const more = splitPeople(text)
    if (more.length > 0) onChange(without([...people, ...more], []))
    setTyped('')
  }
  const remove = (at: number) => {
    onChange(people.filter((_, i) => i !== at))
    input.current?.focus()
  }
  const press = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey) {
      if (e.key === 'Enter' && typed.trim()) add(typed)
      return
    }
    const ends = e.key === 'Enter' || e.key === ',' || e.key === ';' || (e.key === ' ' && isEmail(typed.trim()))
    if (ends && (typed.trim() || e.key !== 'Enter')) {
      e.preventDefault()
      add(typed)
    } else if (e.key === 'Enter') {
      e.preventDefault()
    } else if (e.key === 'Backspace' && typed === '' && people.length > 0) {
      e.preventDefault()
      setTyped(people.at(-1)!)
      onChange(people.slice(0, -1))
    }
  }
  const paste = (e: ClipboardEvent) => {
    const text = e.clipboardData?.getData('text') ?? ''
    if (splitPeople(text).length < 2) return
    e.preventDefault()
    add(typed + text)
  }
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>{label}</label>
      <div class="compose-chips" onClick={(e) => { if (e.target === e.currentTarget) input.current?.focus() }}>
        {people.map((p, i) => <Chip key={p} person={p} onRemove={() => remove(i)} />)}
        <input ref={(e) => { input.current = e; if (e && autoFocus && !e.dataset.met) { e.dataset.met = '1'; e.focus() } }} id={id} type="text" inputMode="email" autocapitalize="off" autocomplete="off" spellcheck={false}
          value={typed} list={id + 's'} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined}
          onInput={(e) => setTyped(e.currentTarget.value)} onKeyDown={press} onPaste={paste} onBlur={() => add(typed)} />
        <datalist id={id + 's'}>{suggested.map((s) => <option key={s.email} value={s.name ? `${s.name} <${s.email}>` : s.email} />)}</datalist>
      </div>
      {after}
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

function Chip({ person, onRemove }: { person: string; onRemove: () => void }) {
  const fine = isEmail(person)
  return (
    <span class={'compose-chip' + (fine ? '' : ' bad')} title={fine ? emailOf(person) : 'Not a valid email address'}>
      {!fine && <Icon name="alert" />}
      <span class="truncate" dir="auto">{nameOf(person)}</span>
      {!fine && <span class="visually-hidden">, not a valid email address</span>}
      <button type="button" aria-label={'Remove ' + nameOf(person)} onClick={onRemove}><Icon name="x" /></button>
    </span>
  )
}

// The search field of the list. It completes the operators that a search may have, and leads down
// into the results.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { daysAgo } from '../../api/clock'
import { useLate, useQuery } from '../../api/query'
import { useTyped } from '../../router'
import { Button, Icon, IconButton } from '../../ui'
import { t, type Key } from '../../words'
import { hiddenFilters } from './filters'
import { nameOfFolder, standard, useFolders, useMailboxInView } from './folders'

/** What can be typed in the place of the word at the caret, and what that means. */
interface Completion { insert: string; means: string }

const operators: [text: string, means: Key][] = [
  ['from:', 'inbox.search.from'], ['to:', 'inbox.search.to'], ['cc:', 'inbox.search.cc'], ['subject:', 'inbox.search.subject'], ['has:attachment', 'inbox.search.has'],
  ['is:unread', 'inbox.search.unread'], ['is:read', 'inbox.search.read'], ['is:starred', 'inbox.search.starred'], ['is:answered', 'inbox.search.answered'], ['in:', 'inbox.search.in'],
  ['before:', 'inbox.search.before'], ['after:', 'inbox.search.after'], ['larger:', 'inbox.search.larger'], ['smaller:', 'inbox.search.smaller'],
]

const days: [ago: number, means: Key][] = [[0, 'inbox.search.today'], [7, 'inbox.search.week'], [30, 'inbox.search.month'], [365, 'inbox.search.year']]
const sizes = ['1MB', '5MB', '10MB', '25MB']

/**
 * The word that ends at the caret, without a leading minus: where it begins, and its operator and
 * value if it has one.
 */
function wordAt(text: string, caret: number): { begins: number; word: string; operator: string; value: string } {
  let begins = 0, within = false // quotes
  for (let i = 0; i < caret; i++) {
    if (text[i] === '"') within = !within
    else if (!within && /\s/.test(text[i]!)) begins = i + 1
  }
  if (text[begins] === '-') begins++
  const word = text.slice(begins, caret)
  const [, operator = '', value = ''] = /^([a-z]+):(.*)$/is.exec(word) ?? []
  return { begins, word, operator: operator.toLowerCase(), value: value.replace(/"/g, '').toLowerCase() }
}

const quoted = (value: string) => (/\s/.test(value) ? `"${value}"` : value)

/** What completes the word at the caret. */
function useCompletions(text: string, caret: number): Completion[] {
  const { word, operator, value } = wordAt(text, caret)
  const userID = useMailboxInView()
  const { folders } = useFolders(userID)
  const person = useLate(['from', 'to', 'cc'].includes(operator) ? value : '', 150)
  const people = useQuery('suggest_addresses', { user_id: userID, q: person, limit: 6 }, { when: person !== '' && userID !== '' })
  if (word === '') return []
  switch (operator) {
    case 'from': case 'to': case 'cc':
      return person === '' ? [] : (people.data?.data ?? []).filter((p) => p.email !== value).map((p) => ({ insert: `${operator}:${p.email}`, means: p.name ?? '' }))
    case 'in':
      return [...standard.map(([role]) => ({ insert: 'in:' + role, means: nameOfFolder(role) })), ...folders.filter((f) => f.role === null).map((f) => ({ insert: 'in:' + quoted(f.name), means: '' }))]
        .filter((c) => c.insert.toLowerCase().replace(/"/g, '').startsWith('in:' + value) && c.insert.toLowerCase() !== 'in:' + value)
    case 'before': case 'after':
      return days.map(([ago, means]) => ({ insert: `${operator}:${daysAgo(ago)}`, means: t(means) })).filter((c) => c.insert.startsWith(word.toLowerCase()) && c.insert !== word)
    case 'larger': case 'smaller':
      return sizes.map((size) => ({ insert: `${operator}:${size}`, means: '' })).filter((c) => c.insert.toLowerCase().startsWith(word.toLowerCase()) && c.insert !== word)
  }
  return operators.filter(([op]) => op.startsWith(word.toLowerCase()) && op !== word.toLowerCase()).map(([op, means]) => ({ insert: op, means: t(means) }))
}

/** A search without the operator at its end that is not typed out yet, which the server would take for a word of the message. */
function typedOut(text: string): string {
  const { begins, word, operator, value } = wordAt(text, text.length), now = word.toLowerCase()
  const half = operator !== '' && (operators.some(([op]) => op.startsWith(now) && (op !== now || op.endsWith(':'))) || /^(before|after)$/.test(operator) && /^[\d-]{0,9}$/.test(value))
  return half ? text.slice(0, begins).replace(/-$/, '') : text
}

/** onDown goes from the field into the results; more tells whether the other filters are shown. */
export function Search({ onDown, more, onMore }: { onDown: () => void; more: boolean; onMore: () => void }) {
  const [typed, setTyped] = useTyped('q', { ready: typedOut })
  const input = useRef<HTMLInputElement>(null)
  const [caret, setCaret] = useState(-1) // -1 while nothing is completed
  const [at, setAt] = useState(-1)
  const id = useId()
  const choices = useCompletions(typed, caret < 0 ? 0 : caret)
  const open = caret >= 0 && choices.length > 0
  const here = Math.min(at, choices.length - 1)
  const n = hiddenFilters()
  useEffect(() => setAt(-1), [typed])
  useEffect(() => document.getElementById(id + here)?.scrollIntoView({ block: 'nearest' }), [here])

  const take = (c: Completion) => {
    const { begins } = wordAt(typed, caret)
    const rest = typed.slice(caret).replace(/^\S*/, '')
    const insert = c.insert.endsWith(':') || rest.startsWith(' ') ? c.insert : c.insert + ' '
    const ends = begins + insert.length, next = typed.slice(0, begins) + insert + rest
    const field = input.current!
    field.value = next // at once, so that what is typed next comes after it
    field.setSelectionRange(ends, ends)
    field.focus()
    setTyped(next)
    setCaret(ends)
  }
  const press = (e: KeyboardEvent) => {
    if (e.isComposing) return
    if (e.key === 'ArrowDown' && open && here < choices.length - 1) setAt(here + 1)
    else if (e.key === 'ArrowDown') {
      setCaret(-1)
      onDown()
    } else if (e.key === 'ArrowUp' && open) setAt(Math.max(here - 1, -1))
    else if (e.key === 'Enter' && open && here >= 0) take(choices[here]!)
    else if (e.key === 'Tab' && open && !e.shiftKey) take(choices[Math.max(here, 0)]!)
    else if (e.key === 'Escape' && open) setCaret(-1)
    else if (e.key === 'Escape' && typed) setTyped('')
    else if (e.key === 'Escape') input.current?.blur()
    else return
    e.preventDefault()
  }
  return (
    <div class="inbox-search" role="search">
      <Icon name="search" />
      <input id="inbox-search" ref={input} class="input" type="text" inputMode="search" enterkeyhint="search" role="combobox" aria-label={t('inbox.search')} aria-autocomplete="list" aria-expanded={open} aria-controls={open ? id : undefined}
        aria-activedescendant={open && here >= 0 ? id + here : undefined} placeholder={t('inbox.search.placeholder')} value={typed} dir="auto" spellcheck={false} maxLength={200} autocapitalize="off" autocomplete="off" title={t('inbox.search.hint')}
        onInput={(e) => { setTyped(e.currentTarget.value); setCaret(e.currentTarget.selectionStart ?? e.currentTarget.value.length) }} onKeyDown={press} onBlur={() => setCaret(-1)} />
      {typed ? <IconButton look="ghost" small icon="x" label={t('inbox.search.clear')} onClick={() => { setTyped(''); input.current?.focus() }} /> : <kbd class="inbox-only-wide" aria-hidden="true">/</kbd>}
      <Button look="ghost" small icon="filter" aria-label={n > 0 ? t('inbox.filters_set', { n }) : t('inbox.filters')} title={t('inbox.filters')} aria-expanded={more} aria-controls="inbox-more" onClick={onMore}>{n > 0 ? n : undefined}</Button>
      {open && (
        <ul class="inbox-choices inbox-completions" role="listbox" id={id} aria-label={t('inbox.search.completions')} onMouseDown={(e) => e.preventDefault() /* the field would lose the focus, and with it the list */}>
          {choices.map((c, i) => (
            <li key={c.insert} id={id + i} role="option" aria-selected={i === here} class={i === here ? 'at' : ''} onPointerMove={() => setAt(i)} onClick={() => take(c)}>
              <code class="truncate" dir="auto">{c.insert}</code><span class="muted small truncate" dir="auto">{c.means}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}

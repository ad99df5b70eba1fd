// Chooses who a message is from: a mailbox, or an address that one may send as. There may be ten
// thousand.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { can, person, type Schemas } from '../../../api/client'
import { useQuery } from '../../../api/query'
import { Icon } from '../../../ui'
import { t } from '../../../words'
import { maySend, useLate } from '../picker'

type Mailbox = Schemas['EmailUser']

/** An address to send from. as: it is not the mailbox's own. */
interface Identity { mailbox: Mailbox; email: string; as: boolean }

interface Props { mailbox: Mailbox | undefined; email: string; onPick: (mailbox: { user_id: string; email: string }, as: string | undefined) => void }

export function From({ mailbox, email, onPick }: Props) {
  const [open, setOpen] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const close = () => {
    setOpen(false)
    box.current?.querySelector('button')?.focus()
  }
  useEffect(() => {
    if (!open) return
    const outside = (e: Event) => { if (!box.current?.contains(e.target as Node)) setOpen(false) }
    addEventListener('pointerdown', outside)
    return () => removeEventListener('pointerdown', outside)
  }, [open])
  const others = can('list_email_users') && !person()
  if (!others && (mailbox?.send_as.length ?? 0) < 2) return <span class="truncate">{email}</span>
  return (
    <div class="inbox-picker" ref={box} onFocusOut={(e) => { if (e.relatedTarget && !box.current?.contains(e.relatedTarget as Node)) setOpen(false) }}>
      <button type="button" class="inbox-picker-button" aria-haspopup="listbox" aria-expanded={open} aria-label={`${t('compose.from')}: ${email || t('compose.choose_mailbox')}`} onClick={() => setOpen(!open)}>
        <span class="truncate">{email || t('compose.choose_mailbox')}</span> <Icon name="down" />
      </button>
      {open && <Choices mailbox={mailbox} email={email} others={others} onEscape={close} onPick={(i) => { onPick({ user_id: i.mailbox.user_id, email: i.mailbox.email }, i.as ? i.email : undefined); close() }} />}
    </div>
  )
}

function Choices({ mailbox, email, others, onPick, onEscape }: { mailbox: Mailbox | undefined; email: string; others: boolean; onPick: (identity: Identity) => void; onEscape: () => void }) {
  const [typed, setTyped] = useState('')
  const [at, setAt] = useState(0)
  const id = useId()
  const input = useRef<HTMLInputElement>(null)
  const q = useLate(typed.trim(), 150)
  const list = useQuery('list_email_users', { q: q || undefined, limit: 100 }, { kinds: [], when: others })
  const found = others ? (list.data?.data ?? []).filter((m) => maySend(m) && m.user_id !== mailbox?.user_id) : []
  const choices = [...identitiesOf(mailbox ? [mailbox] : [], q.toLowerCase()), ...identitiesOf(found, '')]
  const here = Math.min(at, choices.length - 1)
  const ready = typed.trim() === q && !(others && list.loading)
  const hasty = useRef(false) // Enter came before what was searched for
  useEffect(() => input.current?.focus(), [])
  useEffect(() => setAt(0), [q])
  useEffect(() => document.getElementById(id + here)?.scrollIntoView({ block: 'nearest' }), [here])
  useEffect(() => {
    if (!hasty.current || !ready) return
    hasty.current = false
    if (here >= 0) onPick(choices[here]!)
  })
  const press = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown') setAt(Math.min(here + 1, choices.length - 1))
    else if (e.key === 'ArrowUp') setAt(Math.max(here - 1, 0))
    else if (e.key === 'Enter' && !ready) hasty.current = true
    else if (e.key === 'Enter') { if (here >= 0) onPick(choices[here]!) }
    else if (e.key === 'Escape') onEscape()
    else return
    e.preventDefault()
    e.stopPropagation()
  }
  return (
    <div class="inbox-choices">
      <input ref={input} class="input" type="text" role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls={id} aria-activedescendant={here >= 0 ? id + here : undefined}
        aria-label={t('compose.search_senders')} placeholder={t('compose.search_senders')} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} onKeyDown={press} spellcheck={false} />
      <ul role="listbox" id={id} aria-label={t('compose.from')} onMouseDown={(e) => e.preventDefault() /* the field keeps the focus */}>
        {choices.map((c, i) => (
          <li key={c.mailbox.user_id + c.email} id={id + i} role="option" aria-selected={c.email === email} class={i === here ? 'at' : ''} onPointerMove={() => setAt(i)} onClick={() => onPick(c)}>
            <span class="grow truncate">
              <span class="truncate">{c.email}</span>
              <span class="small muted truncate" dir="auto">{c.as ? t('compose.as_of', { email: c.mailbox.email }) : c.mailbox.name}</span>
            </span>
            {c.email === email && <Icon name="check" />}
          </li>
        ))}
      </ul>
      <p class="small muted inbox-choices-note" role="status">
        {list.error ? list.error.message : choices.length === 0 ? t(ready ? 'compose.no_sender' : 'compose.searching') : others && list.data?.pagination.has_more ? t('compose.type_for_more') : ''}
      </p>
    </div>
  )
}

/** The addresses of mailboxes that have a text; the mailbox's own first. */
function identitiesOf(mailboxes: Mailbox[], text: string): Identity[] {
  return mailboxes.flatMap((mailbox) => [mailbox.email, ...mailbox.send_as.filter((a) => a !== mailbox.email)]
    .filter((email) => email.toLowerCase().includes(text) || mailbox.name.toLowerCase().includes(text)).map((email) => ({ mailbox, email, as: email !== mailbox.email })))
}

// Which events an endpoint gets: those about all mailboxes and domains, or about some.
import { useEffect, useState } from 'preact/hooks'
import { useQuery } from '../../api/query'
import { Button, IconButton, PartError, plural, Select, TextField } from '../../ui'
import type { Webhook } from './types'

export type Filters = Webhook['filters']

const mostNamed = 20 // of what is chosen; each name is read by itself

/** The filters of a webhook, as they are shown. */
export function saidFilters(f: Filters): string {
  if (!f) return 'all mailboxes and domains'
  const some = [f.mailboxes.length > 0 && plural(f.mailboxes.length, 'mailbox', 'mailboxes'), f.domains.length > 0 && plural(f.domains.length, 'domain', 'domains')].filter(Boolean)
  return some.length > 0 ? some.join(', ') : 'no mailbox or domain'
}

export function FilterFields({ value, onChange }: { value: Filters; onChange: (value: Filters) => void }) {
  const none = value && value.mailboxes.length + value.domains.length === 0
  return (
    <div class="stack-tight">
      <Select label="Mailboxes and domains" value={value ? 'some' : 'all'} onChange={(v) => onChange(v === 'all' ? null : { mailboxes: [], domains: [] })} options={[['all', 'All'], ['some', 'Only some']]}
        hint={value ? `A domain includes its mailboxes. Events about neither, such as alerts, are always sent.${none ? ' Nothing is chosen yet: no events about mailboxes or domains are sent.' : ''}` : undefined} />
      <PartError name="filters" />
      {value && (
        <div class="grid-2">
          <div class="stack-tight">
            {value.domains.slice(0, mostNamed).map((id) => <Domain key={id} id={id} onRemove={() => onChange({ ...value, domains: value.domains.filter((x) => x !== id) })} />)}
            <More of={value.domains} />
            <DomainSearch taken={value.domains} onPick={(id) => onChange({ ...value, domains: [...value.domains, id] })} />
          </div>
          <div class="stack-tight">
            {value.mailboxes.slice(0, mostNamed).map((id) => <Mailbox key={id} id={id} onRemove={() => onChange({ ...value, mailboxes: value.mailboxes.filter((x) => x !== id) })} />)}
            <More of={value.mailboxes} />
            <MailboxSearch taken={value.mailboxes} onPick={(id) => onChange({ ...value, mailboxes: [...value.mailboxes, id] })} />
          </div>
        </div>
      )}
    </div>
  )
}

function More({ of }: { of: string[] }) {
  return of.length > mostNamed ? <p class="small muted">and {of.length - mostNamed} more</p> : null
}

function Domain({ id, onRemove }: { id: string; onRemove: () => void }) {
  const domain = useQuery('get_domain', { domain_id: id }, { kinds: [] })
  return <Chosen name={domain.data?.domain ?? id} onRemove={onRemove} />
}

function Mailbox({ id, onRemove }: { id: string; onRemove: () => void }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { kinds: [] })
  return <Chosen name={mailbox.data?.email ?? id} onRemove={onRemove} />
}

function Chosen({ name, onRemove }: { name: string; onRemove: () => void }) {
  return <div class="row-between"><span class="truncate">{name}</span><IconButton look="ghost" small icon="x" label={`Remove ${name}`} onClick={onRemove} /></div>
}

interface SearchProps { taken: string[]; onPick: (id: string) => void }

function DomainSearch(props: SearchProps) {
  const [typed, setTyped] = useState(''), q = useStill(typed.trim())
  const found = useQuery('list_domains', { q, limit: 8 }, { kinds: [], when: q !== '' })
  return <Search {...props} label="Add a domain" typed={typed} onType={setTyped} asked={q} loading={found.loading} found={(found.data?.data ?? []).map((d) => ({ id: d.domain_id, name: d.domain }))} />
}

function MailboxSearch(props: SearchProps) {
  const [typed, setTyped] = useState(''), q = useStill(typed.trim())
  const found = useQuery('list_email_users', { q, limit: 8 }, { kinds: [], when: q !== '' })
  return <Search {...props} label="Add a mailbox" typed={typed} onType={setTyped} asked={q} loading={found.loading} found={(found.data?.data ?? []).map((m) => ({ id: m.user_id, name: m.email }))} />
}

interface FoundProps extends SearchProps { label: string; typed: string; onType: (text: string) => void; asked: string; loading: boolean; found: { id: string; name: string }[] }

/** A field to search by, and below it what was found, each with a button that takes it. */
function Search({ taken, onPick, label, typed, onType, asked, loading, found }: FoundProps) {
  const left = found.filter((f) => !taken.includes(f.id))
  const pick = (id: string) => {
    onPick(id)
    onType('')
  }
  const enter = (e: KeyboardEvent) => {
    if (e.key !== 'Enter') return
    e.preventDefault() // it would send the form
    if (asked !== '' && asked === typed.trim() && left[0]) pick(left[0].id)
  }
  return (
    <div class="stack-tight" onKeyDown={(e) => { if (e.target instanceof HTMLInputElement) enter(e) }}>
      <TextField label={label} type="search" placeholder="Search" value={typed} onInput={onType} />
      {asked !== '' && typed.trim() !== '' && (
        <div class="webhooks-found" role="group" aria-label={`Found for ${label.toLowerCase()}`}>
          {left.map((f) => <Button key={f.id} look="ghost" small icon="plus" onClick={() => pick(f.id)}>{f.name}</Button>)}
          {left.length === 0 && <span class="small muted" role="status">{loading ? 'Searching…' : 'No results'}</span>}
        </div>
      )}
    </div>
  )
}

/** What was typed, once typing has paused. */
function useStill(text: string): string {
  const [still, setStill] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setStill(text), 150)
    return () => clearTimeout(timer)
  }, [text])
  return still
}

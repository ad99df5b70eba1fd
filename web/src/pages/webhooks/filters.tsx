// Which events an endpoint gets: those about all mailboxes and domains, or about some.
import { useState } from 'preact/hooks'
import { useLate, useQuery } from '../../api/query'
import { PartError, plural, Select } from '../../ui'
import { Choices, MailboxPicker, Picker } from '../inbox/picker'
import { Chosen, ChosenMailbox } from '../people/scope'
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
            <DomainPicker taken={value.domains} onPick={(id) => onChange({ ...value, domains: [...value.domains, id] })} />
          </div>
          <div class="stack-tight">
            {value.mailboxes.slice(0, mostNamed).map((id) => <ChosenMailbox key={id} id={id} onRemove={() => onChange({ ...value, mailboxes: value.mailboxes.filter((x) => x !== id) })} />)}
            <More of={value.mailboxes} />
            <MailboxPicker label="Add a mailbox" value="" onPick={(m) => { if (m && !value.mailboxes.includes(m.id)) onChange({ ...value, mailboxes: [...value.mailboxes, m.id] }) }} />
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

/** Picks one of the domains. */
function DomainPicker({ taken, onPick }: { taken: string[]; onPick: (id: string) => void }) {
  return <Picker label="Add a domain" value="Choose a domain">{(close) => <Domains taken={taken} onPick={(id) => { onPick(id); close() }} onEscape={close} />}</Picker>
}

function Domains({ taken, onPick, onEscape }: { taken: string[]; onPick: (id: string) => void; onEscape: () => void }) {
  const [typed, setTyped] = useState(''), q = useLate(typed.trim(), 150)
  const list = useQuery('list_domains', { q: q || undefined, limit: 30 }, { kinds: [] })
  const choices = (list.data?.data ?? []).filter((d) => !taken.includes(d.domain_id)).map((d) => ({ of: d.domain_id, key: d.domain_id, name: d.domain, chosen: false }))
  return <Choices {...{ typed, q, list, choices, onPick, onEscape }} label="Add a domain" search="Search domains" onType={setTyped} none={q ? 'No domains match.' : 'No more domains.'} />
}

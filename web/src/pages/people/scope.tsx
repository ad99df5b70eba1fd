// Chooses which mailboxes somebody or something is limited to.
import { useQuery } from '../../api/query'
import { IconButton, Select } from '../../ui'
import { MailboxPicker } from '../inbox/picker'

/** 'all' mailboxes, or the ids of some. */
export type Scope = string | string[]

/** hint says what the present choice means. */
export function ScopeFields({ value, onChange, hint }: { value: Scope; onChange: (scope: Scope) => void; hint: string }) {
  const some = Array.isArray(value) ? value : []
  return (
    <>
      <Select label="Mailboxes" name="mailboxes" value={value === 'all' ? 'all' : 'some'} onChange={(v) => onChange(v === 'all' ? 'all' : [])} options={[['all', 'All mailboxes'], ['some', 'Only some mailboxes']]} hint={hint} />
      {value !== 'all' && (
        <div class="stack-tight">
          {some.map((id) => <ChosenMailbox key={id} id={id} onRemove={() => onChange(some.filter((x) => x !== id))} />)}
          <MailboxPicker label="Add a mailbox" value="" onPick={(m) => { if (m && !some.includes(m.id)) onChange([...some, m.id]) }} />
        </div>
      )}
    </>
  )
}

/** A mailbox that was chosen, which can be taken out again. */
export function ChosenMailbox({ id, onRemove }: { id: string; onRemove: () => void }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { kinds: [] })
  return <Chosen name={mailbox.data?.email ?? id} onRemove={onRemove} />
}

/** Something that was chosen, by its name. */
export function Chosen({ name, onRemove }: { name: string; onRemove: () => void }) {
  return <div class="row-between"><span class="truncate">{name}</span><IconButton look="ghost" small icon="x" label={`Remove ${name}`} onClick={onRemove} /></div>
}

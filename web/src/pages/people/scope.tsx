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
          {some.map((id) => <Scoped key={id} id={id} onRemove={() => onChange(some.filter((x) => x !== id))} />)}
          <MailboxPicker label="Add a mailbox" value="" onPick={(m) => { if (m && !some.includes(m.id)) onChange([...some, m.id]) }} />
        </div>
      )}
    </>
  )
}

function Scoped({ id, onRemove }: { id: string; onRemove: () => void }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { kinds: [] })
  const email = mailbox.data?.email ?? id
  return <div class="row-between"><span class="truncate">{email}</span><IconButton look="ghost" small icon="x" label={`Remove ${email}`} onClick={onRemove} /></div>
}

// Chooses which mailboxes somebody or something is limited to.
import { Fragment } from 'preact'
import { useId, useState } from 'preact/hooks'
import { useQuery } from '../../api/query'
import { IconButton, PartError } from '../../ui'
import { MailboxPicker } from '../inbox/picker'

/** 'all' mailboxes, or the ids of some. */
export type Scope = string | string[]

/** hint says what the present choice means. */
export function ScopeFields({ value, onChange, hint }: { value: Scope; onChange: (scope: Scope) => void; hint: string }) {
  const some = Array.isArray(value) ? value : []
  const [turned, setTurned] = useState(false) // to some, so that one types the first at once
  const id = useId()
  const turn = (to: Scope) => {
    setTurned(to !== 'all')
    onChange(to)
  }
  return (
    <>
      <fieldset class="stack-tight people-fieldset" aria-describedby={id + 'h'}>
        <legend>Mailboxes</legend>
        <label class="check"><input type="radio" name={id} checked={value === 'all'} onChange={() => turn('all')} /><span>All mailboxes</span></label>
        <label class="check"><input type="radio" name={id} checked={value !== 'all'} onChange={() => turn([])} /><span>Only some mailboxes</span></label>
        <span class="hint" id={id + 'h'}>{hint}</span>
        <PartError name="mailboxes" />
      </fieldset>
      {value !== 'all' && (
        <div class="stack-tight">
          {some.map((id) => <ChosenMailbox key={id} id={id} onRemove={() => onChange(some.filter((x) => x !== id))} />)}
          <MailboxPicker label="Add a mailbox" value="" opened={turned} onPick={(m) => { if (m && !some.includes(m.id)) onChange([...some, m.id]) }} />
        </div>
      )}
    </>
  )
}

const mostNamed = 2

/** The addresses of mailboxes; of many, the first ones. */
export function MailboxNames({ ids }: { ids: string[] }) {
  return (
    <>
      {ids.slice(0, mostNamed).map((id, n) => <Fragment key={id}>{n > 0 && ', '}<MailboxName id={id} /></Fragment>)}
      {ids.length > mostNamed && ` + ${ids.length - mostNamed} more`}
    </>
  )
}

function MailboxName({ id }: { id: string }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { kinds: [] })
  return <>{mailbox.data?.email ?? id}</>
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

// Who of the team sees a mailbox: all who see every mailbox, and those members who are limited to
// some that have this one.
import { useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Card, failed, IconButton, plural, Show, toldUndoable } from '../../ui'
import { Choices, Picker } from '../inbox/picker'
import type { MailboxOut } from './words'

type User = Schemas['TeamUser']

const nameOf = (u: User) => u.display_name || u.email

/** Whether the viewer decides what members see. */
const mayGive = () => can('invite_team_user') && can('update_team_user')

/** Lets a member see a mailbox, or no longer. What they see by now is read first: the page may not know of it yet. */
async function give(userID: string, mailbox: string, sees: boolean) {
  const { users } = await call('list_team_users')
  const now = users.find((u) => u.id === userID)?.mailboxes
  if (!Array.isArray(now) || now.includes(mailbox) === sees) return
  await call('update_team_user', { user_id: userID, mailboxes: sees ? [...now, mailbox] : now.filter((id) => id !== mailbox) })
}

export function TeamMembers({ of: m }: { of: MailboxOut }) {
  const team = useQuery('list_team_users', {}, { when: can('list_team_users') && !session.value!.by_operator })
  if (!can('list_team_users') || session.value!.by_operator) return null
  const set = async (u: User, sees: boolean) => {
    await give(u.id, m.id, sees)
    await team.reload()
    toldUndoable(sees ? `${nameOf(u)} now sees ${m.email}.` : `${nameOf(u)} no longer sees ${m.email}.`, async () => {
      await give(u.id, m.id, !sees)
      await team.reload()
    }, `${u.id} sees ${m.id}`)
  }
  return (
    <Card title="Team members" note="Who of the team can read and send the mail of this mailbox.">
      <Show of={team} lines={2}>
        {({ users }) => {
          const limited = users.filter((u) => Array.isArray(u.mailboxes))
          const seeing = limited.filter((u) => u.mailboxes.includes(m.id)), others = limited.filter((u) => !u.mailboxes.includes(m.id))
          return (
            <div class="stack-tight mailboxes-people">
              <p>{saidAll(users)}</p>
              {seeing.map((u) => (
                <div key={u.id} class="row-between">
                  <span class="truncate"><strong>{nameOf(u)}</strong>{u.display_name && <span class="muted small"> {u.email}</span>}</span>
                  {mayGive() && <IconButton look="ghost" small icon="x" label={`Remove ${nameOf(u)}`} onClick={() => set(u, false)} />}
                </div>
              ))}
              {mayGive() && (others.length > 0
                ? <Picker label="Team members" value="Add person">{(close) => <People of={others} onPick={(u) => { close(); set(u, true).catch(failed) }} onEscape={close} />}</Picker>
                : <p class="small muted">{limited.length === 0 ? 'No member is limited to some mailboxes.' : 'All members see this mailbox.'} <a href={`/team?invite=${m.id}`}>Invite somebody to this one</a>.</p>)}
            </div>
          )
        }}
      </Show>
    </Card>
  )
}

/** Says who sees all mailboxes. */
function saidAll(users: User[]): string {
  const all = users.filter((u) => !Array.isArray(u.mailboxes))
  const admins = all.filter((u) => u.role === 'admin').length, members = all.filter((u) => u.role === 'member').length
  const who = ['The owner', admins > 0 && plural(admins, 'admin'), members > 0 && plural(members, 'member')].filter(Boolean)
  const last = who.pop()
  return who.length === 0 ? 'The owner sees all mailboxes.' : `${who.join(', ')} and ${last} see all mailboxes.`
}

function People({ of: people, onPick, onEscape }: { of: User[]; onPick: (u: User) => void; onEscape: () => void }) {
  const [typed, setTyped] = useState(''), q = typed.trim()
  const fits = (u: User) => `${nameOf(u)} ${u.email}`.toLowerCase().includes(q.toLowerCase())
  const choices = people.filter(fits).map((u) => ({ of: u, key: u.id, name: nameOf(u), about: u.display_name ? u.email : undefined, chosen: false }))
  return <Choices {...{ typed, q, choices, onPick, onEscape }} label="Add person" search="Search people" onType={setTyped} list={known} none="Nobody matches." />
}

const known = { data: { pagination: { has_more: false } }, error: undefined, loading: false, reload: async () => {} }

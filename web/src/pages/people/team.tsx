// The people who may sign in here.
import { useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { params, setParams } from '../../router'
import { ask, Badge, Button, Card, Check, Code, Dialog, Done, Empty, Form, Menu, Notice, Page, plural, Select, Show, TextField, Time, told } from '../../ui'
import { MailboxNames, ScopeFields, type Scope } from './scope'

type User = Schemas['TeamUser']
type Role = 'admin' | 'member'

/** The roles that may be given. */
const roles = [['member', 'Member'], ['admin', 'Admin']] as const

/** What somebody of a role can do who sees these mailboxes. */
function saidRole(role: Role, scope: Scope): string {
  if (role === 'admin') return 'Can also manage domains, mailboxes and team members.'
  return scope === 'all' ? 'Can view everything and work with mail.' : 'Sees some mailboxes and works with their mail.'
}

/** Whether the signed-in user may change or delete the other: the owner everyone else, admins the members. */
function governs(other: User): boolean {
  const me = session.value!.user
  if (!can('delete_team_user') || other.id === me.id || other.role === 'owner') return false
  return me.role === 'owner' || other.role === 'member'
}

export function Team() {
  const team = useQuery('list_team_users', {})
  const to = params.value.get('invite') ?? undefined // a mailbox that somebody is to be invited to
  const [inviting, setInviting] = useState(to !== undefined && can('invite_team_user'))
  const invited = () => {
    setInviting(false)
    setParams({ invite: '' })
  }
  const [editing, setEditing] = useState<User>()
  return (
    <Page title="Team" intro="Who can sign in here, and what they can do."
      actions={can('invite_team_user') && <Button look="primary" icon="plus" onClick={() => setInviting(true)}>Invite</Button>}>
      <Card flush>
        <Show of={team}>
          {({ users }) => users.length === 0 ? <Empty icon="team" title="No team members yet" /> : (
            <div class="rows">{users.map((u) => <Member key={u.id} user={u} onEdit={() => setEditing(u)} />)}</div>
          )}
        </Show>
      </Card>
      {inviting && <Invite to={to} onClose={invited} />}
      {editing && <Edit user={editing} onClose={() => setEditing(undefined)} />}
    </Page>
  )
}

function Member({ user: u, onEdit }: { user: User; onEdit: () => void }) {
  const me = session.value!.user.id === u.id
  return (
    <div class="line people-member">
      <span class="avatar" aria-hidden="true">{(u.display_name || u.email).charAt(0)}</span>
      <span class="grow truncate"><strong>{u.display_name || u.email}</strong>{me && <span class="muted"> (you)</span>}<br /><span class="muted small truncate">{u.email}</span></span>
      <span class="people-badges">
        <span class={'small muted nowrap' + (u.status === 'invited' ? '' : ' people-seen')}>{u.status === 'invited' ? <Badge tone="info">invited</Badge> : u.last_login_at ? <>Signed in <Time of={u.last_login_at} /></> : 'Never signed in'}</span>
        <Badge plain tone={u.role === 'owner' ? 'ok' : 'none'}>{u.role}</Badge>
        {Array.isArray(u.mailboxes) && <span class="small muted">Only {u.mailboxes.length > 0 && !session.value!.limited ? <MailboxNames ids={u.mailboxes} /> : plural(u.mailboxes.length, 'mailbox', 'mailboxes')}</span>}
      </span>
      {governs(u) && (
        <Menu small label={`Actions for ${u.email}`}>
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Edit</Button>
          <Button look="ghost" small icon="trash" onClick={() => remove(u)}>Remove</Button>
        </Menu>
      )}
    </div>
  )
}

function remove(u: User) {
  ask({
    title: `Remove ${u.display_name || u.email}?`, action: 'Remove',
    text: 'They are signed out everywhere. The API tokens they created, and apps using them, stop working at once.',
    run: async () => {
      await call('delete_team_user', { user_id: u.id })
      told(`${u.email} was removed.`)
    },
  })
}

function Invite({ to, onClose }: { to?: string; onClose: () => void }) {
  const [email, setEmail] = useState(''), [first, setFirst] = useState(''), [last, setLast] = useState('')
  const [role, setRole] = useState<Role>('member'), [scope, setScope] = useState<Scope>(to ? [to] : 'all'), [mailed, setMailed] = useState(false)
  const [made, setMade] = useState<Schemas['TeamUserInvited']>()
  if (made !== undefined) {
    return (
      <Dialog title={`${email} was invited`} onClose={onClose}>
        <div class="stack">
          <p>{email} is now in the team. {mailed && 'A link is on its way to them: it lets them choose a password once, within 72 hours. '}<Reads of={made} /></p>
          {made.reset_link && !mailed && (
            <>
              <Notice tone="warn">Send them this link. It works once, expires after 72 hours, and is not shown again.</Notice>
              <Code text={made.reset_link} label="Link" wraps />
            </>
          )}
          <Done />
        </div>
      </Dialog>
    )
  }
  const mayMakeAdmins = session.value!.user.role === 'owner'
  const submit = async () => {
    setMade(await call('invite_team_user', { email, first_name: first || undefined, last_name: last || undefined, role, mailboxes: role === 'member' ? scope : undefined, send_email: mailed }))
  }
  return (
    <Dialog title="Invite a team member" onClose={onClose}>
      <Form submit="Invite" onSubmit={submit} of={[email, first, last, role, scope]} disabled={email.trim() === ''}>
        <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} autoFocus />
        <div class="grid-2">
          <TextField label="First name" name="first_name" value={first} onInput={setFirst} />
          <TextField label="Last name" name="last_name" value={last} onInput={setLast} />
        </div>
        <Select label="Role" name="role" value={role} onChange={setRole} options={mayMakeAdmins ? roles : roles.slice(0, 1)} hint={saidRole(role, scope)} />
        {role === 'member' && <ScopeFields value={scope} onChange={setScope} hint={scopeHint(scope)} />}
        <Check name="send_email" label="Mail them the link" hint="Otherwise you get it to send it yourself." checked={mailed} onChange={setMailed} />
      </Form>
    </Dialog>
  )
}

/** Says what mail somebody can read who was invited. */
function Reads({ of: { role, mailboxes } }: { of: Schemas['TeamUserInvited'] }) {
  if (role === 'admin') return <>They can read and send the mail of every mailbox, and manage the account.</>
  if (!Array.isArray(mailboxes)) return <>They can read and send the mail of every mailbox of the account.</>
  if (mailboxes.length === 0) return <>They can read no mail.</>
  return <>They can read and send the mail of <MailboxNames ids={mailboxes} />, and no other mail.</>
}

const scopeHint = (of: Scope) => of === 'all' ? 'They can read and send the mail of every mailbox.' : 'They can read and send the mail of these, and see no other mail.'

function Edit({ user: u, onClose }: { user: User; onClose: () => void }) {
  const [first, setFirst] = useState(u.first_name ?? ''), [last, setLast] = useState(u.last_name ?? '')
  const [email, setEmail] = useState(u.email)
  const [role, setRole] = useState(u.role as Role), [scope, setScope] = useState<Scope>(u.mailboxes)
  const submit = async () => {
    await call('update_team_user', { user_id: u.id, first_name: first, last_name: last, email: email === u.email ? undefined : email, ...(session.value!.user.role === 'owner' ? { role } : {}), ...(role === 'member' && String(scope) !== String(u.mailboxes) ? { mailboxes: scope } : {}) })
    told('Saved.')
    onClose()
  }
  return (
    <Dialog title={u.email} onClose={onClose}>
      <Form submit="Save" onSubmit={submit} of={[email, first, last, role, scope]}>
        <div class="grid-2">
          <TextField label="First name" name="first_name" value={first} onInput={setFirst} autoFocus />
          <TextField label="Last name" name="last_name" value={last} onInput={setLast} />
        </div>
        <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} hint="They sign in with this address." />
        {session.value!.user.role === 'owner' && <Select label="Role" name="role" value={role} onChange={setRole} options={roles} hint={`${saidRole(role, scope)} Takes effect with their next request.`} />}
        {role === 'member' && <ScopeFields value={scope} onChange={setScope} hint={scopeHint(scope)} />}
      </Form>
    </Dialog>
  )
}

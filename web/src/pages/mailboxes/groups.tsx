// Groups: addresses whose mail goes to several people.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { ask, Button, Card, Check, Dialog, Empty, Form, LongList, Menu, Page, plural, TextArea, TextField, told } from '../../ui'
import { MailboxTabs } from './words'

type Group = Schemas['Group']

export function Groups() {
  const pages = usePages('list_groups', { limit: 100 }, (g) => g.id, { kinds: ['mailbox'] })
  const [editing, setEditing] = useState<Group | 'new'>()
  const done = async () => {
    setEditing(undefined)
    await pages.reload()
  }
  return (
    <Page title="Groups" heading="Mailboxes" tabs={<MailboxTabs current="groups" />} actions={can('create_group') && <Button look="primary" icon="plus" onClick={() => setEditing('new')}>Create group</Button>}>
      <Card flush>
        <LongList pages={pages} idOf={(g) => g.id} height={58} label="Groups" row={(g) => <Row of={g} onEdit={() => setEditing(g)} onGone={pages.reload} />}
          empty={<Empty icon="team" title="No groups yet">Mail to a group goes to each of its members: mailboxes here, and people elsewhere.</Empty>} />
      </Card>
      {editing && <Edit of={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} onDone={done} />}
    </Page>
  )
}

function Row({ of: g, onEdit, onGone }: { of: Group; onEdit: () => void; onGone: () => Promise<void> }) {
  const remove = () => ask({
    title: `Delete ${g.email}?`, action: 'Delete', text: 'Mail to this address is refused from then on. What was delivered stays.',
    run: async () => {
      await call('delete_group', { group_id: g.id })
      await onGone()
      told('Group deleted.')
    },
  })
  return (
    <div class="line">
      <span class="grow"><span class="truncate" style={{ display: 'block' }}><strong>{g.email}</strong> <span class="muted">{g.name}</span></span><span class="muted small truncate" style={{ display: 'block' }}>{plural(g.members.length, 'member')}: {g.members.map((m) => m.email).join(', ')}</span></span>
      {can('update_group') && (
        <Menu small label={`Actions for ${g.email}`}>
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Edit</Button>
          <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
        </Menu>
      )}
    </div>
  )
}

function Edit({ of: g, onClose, onDone }: { of?: Group; onClose: () => void; onDone: () => Promise<void> }) {
  const [email, setEmail] = useState(g?.email ?? ''), [name, setName] = useState(g?.name ?? ''), [members, setMembers] = useState(g?.members.map((m) => m.email).join('\n') ?? ''), [sendAs, setSendAs] = useState(g?.send_as === 'members')
  const list = members.split(/[\s,;]+/).filter(Boolean).map((email) => ({ email }))
  const submit = async () => {
    const form = { name: name || undefined, members: list, send_as: sendAs ? 'members' as const : 'nobody' as const }
    if (g) await call('update_group', { group_id: g.id, ...form, name: name || null })
    else await call('create_group', { email, ...form })
    told('Saved.')
    await onDone()
  }
  return (
    <Dialog title={g ? g.email : 'Create group'} onClose={onClose}>
      <Form submit={g ? 'Save' : 'Create'} onSubmit={submit} of={[email, name, list, sendAs]} disabled={list.length === 0 || (!g && email.trim() === '')}>
        {!g && <TextField label="Address" name="email" type="email" value={email} onInput={setEmail} placeholder="team@example.com" autoFocus />}
        <TextField label="Name" name="name" value={name} onInput={setName} />
        <TextArea label="Members" name="members" value={members} onInput={setMembers} rows={5} hint="One address per line: a mailbox here, another group, or an address elsewhere." />
        <Check label="Members can send as the group" checked={sendAs} onChange={setSendAs} />
      </Form>
    </Dialog>
  )
}

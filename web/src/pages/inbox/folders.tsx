// The folders of mailboxes: which one is shown, where a message can be moved to, and one's own.
import { useState } from 'preact/hooks'
import { call, can, person, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { params } from '../../router'
import { ask, Button, count, Dialog, Form, IconButton, Menu, TextField, theirs, told, type IconName } from '../../ui'
import { inFolder } from './actions'
import { setFilter } from './filters'

export type Folder = Schemas['MailFolder']

const standard: [role: string, name: string, icon: IconName][] = [
  ['inbox', 'Inbox', 'inbox'], ['drafts', 'Drafts', 'pencil'], ['sent', 'Sent', 'send'], ['archive', 'Archive', 'archive'], ['junk', 'Junk', 'ban'], ['trash', 'Trash', 'trash'],
]

/** The folder that the list shows: a role, all, or a name. */
export function folderInView(): string {
  return params.value.get('folder') || 'inbox'
}

/** What a folder is called on the page. */
export function nameOfFolder(folder: string): string {
  return folder === 'all' ? 'All mail' : standard.find(([role]) => role === folder)?.[1] ?? folder
}

/** The role of the folder that a message is in, as far as its name tells; the list's, where it shows one. */
export function roleOf(m: { folder?: string } | undefined): string {
  const view = folderInView()
  const name = m && (inFolder(m) ?? 'inbox')
  if (view !== 'all' && standard.some(([role]) => role === view) && (!params.value.has('in') || name === params.value.get('in') || name === 'inbox')) return view
  return standard.find(([role, text]) => name === role || name === text)?.[0] ?? ''
}

/** The mailbox in view; '' where there are several. */
function useMailboxInView(): string {
  const email = params.value.get('mailbox') ?? ''
  const found = useQuery('list_email_users', { q: email, limit: 100 }, { kinds: [], when: email !== '' && !person() })
  if (person()) return session.value!.user.id
  return found.data?.data.find((m) => m.email === email)?.user_id ?? ''
}

/** The folders of a mailbox; none of '', which is several. */
export function useFolders(userID: string): { folders: Folder[]; reload: () => Promise<void> } {
  const read = useQuery('list_folders', { user_id: userID }, { when: userID !== '', kinds: ['inbox'], only: (c) => c.id === userID, pause: 5000 })
  return { folders: userID === '' ? [] : read.data?.data ?? [], reload: read.reload }
}

/** Chooses the folder that the list shows. */
export function FolderPicker() {
  const userID = useMailboxInView()
  const { folders, reload } = useFolders(userID)
  const [managing, setManaging] = useState(false)
  const now = folderInView()
  const own = folders.filter((f) => f.role === null)
  const unread = (role: string) => folders.find((f) => f.role === role)?.unread ?? 0
  return (
    <>
      <select class="inbox-folder" aria-label="Folder" value={now} onChange={(e) => setFilter({ folder: e.currentTarget.value === 'inbox' ? undefined : e.currentTarget.value })}>
        {standard.map(([role, name]) => <option key={role} value={role} selected={role === now}>{name}{unread(role) > 0 ? ` (${count(unread(role))})` : ''}</option>)}
        <option value="all" selected={now === 'all'}>All mail</option>
        {own.map((f) => <option key={f.id} value={f.name} selected={f.name === now}>{f.name}{f.unread > 0 ? ` (${count(f.unread)})` : ''}</option>)}
        {now !== 'all' && !standard.some(([role]) => role === now) && !own.some((f) => f.name === now) && <option value={now} selected>{now}</option>}
      </select>
      {userID !== '' && can('create_folder') && <IconButton look="ghost" small icon="box" label="Folders" onClick={() => setManaging(true)} />}
      {managing && <Manage userID={userID} own={own} reload={reload} onClose={() => setManaging(false)} />}
    </>
  )
}

/** A menu of the folders that messages of a mailbox can be moved to; of several mailboxes, the standard ones. */
export function MoveMenu({ userID, small, onMove }: { userID: string; small?: boolean; onMove: (to: string, name: string) => void }) {
  return <Menu label="Move to folder" icon="box" small={small}><Targets userID={userID} onMove={onMove} /></Menu>
}

function Targets({ userID, onMove }: { userID: string; onMove: (to: string, name: string) => void }) {
  const { folders } = useFolders(userID)
  return (
    <>
      {standard.filter(([role]) => role !== folderInView() && role !== 'drafts' && role !== 'sent').map(([role, name, icon]) => <Button key={role} look="ghost" small icon={icon} onClick={() => onMove(role, name)}>{name}</Button>)}
      {folders.filter((f) => f.role === null && f.name !== folderInView()).map((f) => <Button key={f.id} look="ghost" small icon="box" onClick={() => onMove(f.name, f.name)}>{f.name}</Button>)}
    </>
  )
}

function Manage({ userID, own, reload, onClose }: { userID: string; own: Folder[]; reload: () => Promise<void>; onClose: () => void }) {
  const [name, setName] = useState(''), [renaming, setRenaming] = useState<Folder>()
  const create = async () => {
    await call('create_folder', { user_id: userID, name })
    setName('')
    await reload()
  }
  const remove = (f: Folder) => ask({
    title: `Delete the folder ${f.name}?`, action: 'Delete', text: 'Its messages are moved to Trash.',
    run: async () => {
      await call('delete_folder', { user_id: userID, folder_id: f.id })
      if (folderInView() === f.name) setFilter({ folder: undefined })
      await reload()
      told('Folder deleted.')
    },
  })
  if (renaming) return <Rename userID={userID} of={renaming} onClose={async () => { setRenaming(undefined); await reload() }} />
  return (
    <Dialog title="Folders" onClose={onClose}>
      <div class="stack">
        {own.length === 0 ? <p class="muted">Inbox, Drafts, Sent, Archive, Junk and Trash are always there. Add folders of your own here.</p> : (
          <ul class="inbox-folders">
            {own.map((f) => (
              <li key={f.id} class="row-between">
                <span class="truncate grow">{theirs(f.name)} <span class="muted small">{count(f.messages)}</span></span>
                <span class="row nowrap">
                  <IconButton look="ghost" small icon="pencil" label={`Rename ${f.name}`} onClick={() => setRenaming(f)} />
                  <IconButton look="ghost" small icon="trash" label={`Delete ${f.name}`} onClick={() => remove(f)} />
                </span>
              </li>
            ))}
          </ul>
        )}
        <Form submit="Add folder" onSubmit={create} disabled={name.trim() === ''}>
          <TextField label="New folder" name="name" value={name} onInput={setName} maxLength={255} hint="A slash puts a folder below another one: Customers/Berg" />
        </Form>
      </div>
    </Dialog>
  )
}

function Rename({ userID, of: f, onClose }: { userID: string; of: Folder; onClose: () => void }) {
  const [name, setName] = useState(f.name)
  const submit = async () => {
    await call('update_folder', { user_id: userID, folder_id: f.id, name })
    if (folderInView() === f.name) setFilter({ folder: name })
    onClose()
  }
  return (
    <Dialog title={`Rename ${f.name}`} onClose={onClose}>
      <Form submit="Rename" onSubmit={submit} disabled={name.trim() === '' || name === f.name}>
        <TextField label="Name" name="name" value={name} onInput={setName} maxLength={255} autoFocus />
      </Form>
    </Dialog>
  )
}

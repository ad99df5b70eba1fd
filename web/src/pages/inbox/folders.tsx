// The folders of mailboxes: which one is shown, where a message can be moved to, and one's own.
import { signal } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'
import { call, can, person, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { params } from '../../router'
import { ask, Button, count, Dialog, Form, Icon, IconButton, Menu, TextField, theirs, told, type IconName } from '../../ui'
import { t, tn, type Key } from '../../words'
import { inFolder } from './actions'
import { placeOfFolder, setFilter } from './filters'

export type Folder = Schemas['MailFolder']

/**
 * The folders that every mailbox has: their roles, their names by IMAP, and how they are called and
 * drawn here.
 */
export const standard: [role: string, name: string, text: Key, icon: IconName][] = [
  ['inbox', 'Inbox', 'inbox.folder.inbox', 'inbox'], ['drafts', 'Drafts', 'inbox.folder.drafts', 'pencil'], ['sent', 'Sent', 'inbox.folder.sent', 'send'],
  ['archive', 'Archive', 'inbox.folder.archive', 'archive'], ['junk', 'Junk', 'inbox.folder.junk', 'ban'], ['trash', 'Trash', 'inbox.folder.trash', 'trash'],
]

/** The standard folders and that of all mail, as they are shown: each with its icon. */
export const everyFolder: [folder: string, icon: IconName][] = [...standard.map(([role, , , icon]): [string, IconName] => [role, icon]), ['all', 'mail']]

/** The folder that the list shows: a role, all, or a name. */
export function folderInView(): string {
  return params.value.get('folder') || 'inbox'
}

/** What a folder is called on the page, by its role or its name. */
export function nameOfFolder(folder: string): string {
  if (folder === 'all') return t('inbox.folder.all')
  const text = standard.find(([role, name]) => role === folder || name === folder)?.[2]
  return text ? t(text) : folder
}

/** The role of the folder that a message is in, as far as its name tells; the list's, where it shows one. */
export function roleOf(m: { folder?: string } | undefined): string {
  const view = folderInView()
  const name = m && (inFolder(m) ?? 'inbox')
  if (view !== 'all' && standard.some(([role]) => role === view) && (!params.value.has('in') || name === params.value.get('in') || name === 'inbox')) return view
  return standard.find(([role, imap]) => name === role || name === imap)?.[0] ?? ''
}

/** The mailbox in view; '' where there are several. */
export function useMailboxInView(): string {
  const email = params.value.get('mailbox') ?? ''
  const found = useQuery('list_email_users', { q: email, limit: 100 }, { kinds: [], when: email !== '' && !person() })
  if (person()) return session.value!.user.id
  return found.data?.data.find((m) => m.email === email)?.user_id ?? ''
}

/** The folders of a mailbox; none of '', which is several. */
export function useFolders(userID: string): { folders: Folder[]; reload: () => Promise<void> } {
  const read = useQuery('list_folders', { user_id: userID }, { when: userID !== '', kinds: ['inbox'], only: (c) => c.id === userID, pause: 5000 })
  const now = changes.value
  const [first] = useState(now)
  useEffect(() => { if (now !== first && userID !== '') void read.reload() }, [now])
  return { folders: userID === '' ? [] : read.data?.data ?? [], reload: async () => { changes.value++ } }
}

const changes = signal(0) // how often folders were made, renamed or deleted here: every list of them is read again

/** Makes a folder, and gives it as the server named it. */
export async function makeFolder(userID: string, name: string): Promise<Folder> {
  const made = await call('create_folder', { user_id: userID, name })
  changes.value++
  return made
}

const mostMailboxes = 100 // whose unread messages are added up
const patience = 1500 // ms after the inbox was opened, when what it needs was asked for

/**
 * How many messages are unread in the inbox in view; undefined where the account has too many
 * mailboxes to add up.
 */
export function useUnread(): number | undefined {
  const userID = useMailboxInView()
  const { folders } = useFolders(userID)
  const several = !person() && !params.value.get('mailbox')
  const [tooMany, setTooMany] = useState(false) // then nothing is read again
  const [settled, setSettled] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), patience)
    return () => clearTimeout(timer)
  }, [])
  const list = useQuery('list_email_users', { limit: mostMailboxes }, { when: several && settled, kinds: tooMany ? [] : ['inbox', 'mailbox'], pause: 10_000 }).data
  useEffect(() => setTooMany(list?.pagination.has_more === true), [list])
  if (!several) return folders.find((f) => f.role === 'inbox')?.unread
  return list && !list.pagination.has_more ? list.data.reduce((sum, m) => sum + m.unread_count, 0) : undefined
}

const whole = ['drafts', 'junk'] // folders in which every message waits for somebody, read or not

/** How many messages of a folder wait, and that in words. */
function waiting(f: Folder): [n: number, words: string] {
  return whole.includes(f.role ?? '') ? [f.messages, tn('inbox.messages', f.messages)] : [f.unread, tn('inbox.unread', f.unread)]
}

/** The folders in the navigation, with how many messages wait in each. */
export function FolderList() {
  const { folders } = useFolders(useMailboxInView())
  const unread = useUnread()
  const now = folderInView()
  const own = folders.filter((f) => f.role === null)
  const row = (folder: string, icon: IconName, f: Folder | undefined) => {
    const [n, words] = f ? waiting(f) : folder === 'inbox' && unread !== undefined ? [unread, tn('inbox.unread', unread)] : [0, '']
    return (
      <li key={folder}>
        <a href={placeOfFolder(folder)} aria-current={folder === now ? 'page' : undefined} class={f && f.unread > 0 || folder === 'inbox' && unread ? 'unread' : undefined}>
          <Icon name={icon} /> <span class="grow truncate" dir="auto">{nameOfFolder(folder)}</span>
          {n > 0 && <span class="folder-count"><span aria-hidden="true">{count(n)}</span><span class="visually-hidden">{words}</span></span>}
        </a>
      </li>
    )
  }
  return (
    <ul class="side-folders" aria-label={t('inbox.folders')}>
      {everyFolder.map(([folder, icon]) => row(folder, icon, folders.find((f) => f.role === folder)))}
      {own.map((f) => row(f.name, 'box', f))}
    </ul>
  )
}

/** Chooses the folder that the list shows, where the navigation is out of sight. */
export function FolderPicker() {
  const userID = useMailboxInView()
  const { folders, reload } = useFolders(userID)
  const [managing, setManaging] = useState(false)
  const now = folderInView()
  const own = folders.filter((f) => f.role === null)
  const here = folders.find((f) => (f.role ?? f.name) === now)
  const [n, words] = here ? waiting(here) : [0, '']
  const withCount = (name: string, f: Folder | undefined) => (f && f !== here && waiting(f)[0] > 0 ? `${name} (${count(waiting(f)[0])})` : name)
  return (
    <>
      <select class="inbox-folder" aria-label={t('inbox.folder')} value={now} onChange={(e) => setFilter({ folder: e.currentTarget.value === 'inbox' ? undefined : e.currentTarget.value })}>
        {standard.map(([role]) => <option key={role} value={role} selected={role === now}>{withCount(nameOfFolder(role), folders.find((f) => f.role === role))}</option>)}
        <option value="all" selected={now === 'all'}>{nameOfFolder('all')}</option>
        {own.map((f) => <option key={f.id} value={f.name} selected={f.name === now}>{withCount(f.name, f)}</option>)}
        {now !== 'all' && !standard.some(([role]) => role === now) && !own.some((f) => f.name === now) && <option value={now} selected>{now}</option>}
      </select>
      {n > 0 && <span class="folder-count inbox-folder-count"><span aria-hidden="true">{count(n)}</span><span class="visually-hidden">{words}</span></span>}
      {userID !== '' && can('create_folder') && <IconButton look="ghost" small icon="box" label={t('inbox.folders')} onClick={() => setManaging(true)} />}
      {managing && <Manage userID={userID} own={own} reload={reload} onClose={() => setManaging(false)} />}
    </>
  )
}

interface MoveProps { userID: string; onMove: (to: string, name: string) => void }

/**
 * A menu of the folders that messages of a mailbox can be moved to, also one that is made for them;
 * of several mailboxes, the standard ones.
 */
export function MoveMenu({ userID, small, onMove }: MoveProps & { small?: boolean }) {
  const [making, setMaking] = useState(false)
  return (
    <>
      <Menu label={t('inbox.move_to')} icon="box" small={small}>
        <Targets userID={userID} onMove={onMove} />
        {userID !== '' && can('create_folder') && <Button look="ghost" small icon="plus" onClick={() => setMaking(true)}>{t('inbox.folder.make')}</Button>}
      </Menu>
      {making && <Make userID={userID} onMove={onMove} onClose={() => setMaking(false)} />}
    </>
  )
}

/** Makes a folder and moves the messages there. */
function Make({ userID, onMove, onClose }: MoveProps & { onClose: () => void }) {
  const [name, setName] = useState('')
  const submit = async () => {
    const made = await makeFolder(userID, name)
    onClose()
    onMove(made.name, made.name)
  }
  return (
    <Dialog title={t('inbox.folder.new')} onClose={onClose}>
      <Form submit={t('inbox.folder.add_move')} onSubmit={submit} disabled={name.trim() === ''}>
        <TextField label={t('inbox.name')} name="name" value={name} onInput={setName} maxLength={255} hint={t('inbox.folder.hint')} autoFocus />
      </Form>
    </Dialog>
  )
}

function Targets({ userID, onMove }: MoveProps) {
  const { folders } = useFolders(userID)
  return (
    <>
      {standard.filter(([role]) => role !== folderInView() && role !== 'drafts' && role !== 'sent').map(([role, , , icon]) => <Button key={role} look="ghost" small icon={icon} onClick={() => onMove(role, nameOfFolder(role))}>{nameOfFolder(role)}</Button>)}
      {folders.filter((f) => f.role === null && f.name !== folderInView()).map((f) => <Button key={f.id} look="ghost" small icon="box" onClick={() => onMove(f.name, f.name)}>{f.name}</Button>)}
    </>
  )
}

function Manage({ userID, own, reload, onClose }: { userID: string; own: Folder[]; reload: () => Promise<void>; onClose: () => void }) {
  const [name, setName] = useState(''), [renaming, setRenaming] = useState<Folder>()
  const create = async () => {
    await makeFolder(userID, name)
    setName('')
  }
  const remove = (f: Folder) => ask({
    title: t('inbox.folder.delete_title', { name: f.name }), action: t('inbox.delete'), text: t('inbox.folder.delete_text'),
    run: async () => {
      await call('delete_folder', { user_id: userID, folder_id: f.id })
      if (folderInView() === f.name) setFilter({ folder: undefined })
      await reload()
      told(t('inbox.folder.deleted'))
    },
  })
  if (renaming) return <Rename userID={userID} of={renaming} onClose={async () => { setRenaming(undefined); await reload() }} />
  return (
    <Dialog title={t('inbox.folders')} onClose={onClose}>
      <div class="stack">
        {own.length === 0 ? <p class="muted">{t('inbox.folder.none')}</p> : (
          <ul class="inbox-folders">
            {own.map((f) => (
              <li key={f.id} class="row-between">
                <span class="truncate grow">{theirs(f.name)} <span class="muted small">{tn('inbox.messages', f.messages)}</span></span>
                <span class="row nowrap">
                  <IconButton look="ghost" small icon="pencil" label={t('inbox.folder.rename', { name: f.name })} onClick={() => setRenaming(f)} />
                  <IconButton look="ghost" small icon="trash" label={t('inbox.folder.delete', { name: f.name })} onClick={() => remove(f)} />
                </span>
              </li>
            ))}
          </ul>
        )}
        <Form submit={t('inbox.folder.add')} cancel={false} onSubmit={create} disabled={name.trim() === ''}>
          <TextField label={t('inbox.folder.new')} name="name" value={name} onInput={setName} maxLength={255} hint={t('inbox.folder.hint')} autoFocus />
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
    <Dialog title={t('inbox.folder.rename', { name: f.name })} onClose={onClose}>
      <Form submit={t('inbox.rename')} onSubmit={submit} disabled={name.trim() === '' || name === f.name}>
        <TextField label={t('inbox.name')} name="name" value={name} onInput={setName} maxLength={255} autoFocus />
      </Form>
    </Dialog>
  )
}

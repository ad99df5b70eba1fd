// What stands above the list: which mailbox, the search, the filters, and what is done to the selected.
import { useState } from 'preact/hooks'
import { call, can, person, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { params, useTyped } from '../../router'
import { ask, Button, count, Icon, IconButton, Notice, TextField, told } from '../../ui'
import { clearFilters, hiddenFilters, isFiltered, setFilter, type FilterName } from './filters'
import { FolderPicker, folderInView, MoveMenu, nameOfFolder } from './folders'
import { MailboxPicker } from './picker'

export function Head({ onCompose }: { onCompose: () => void }) {
  const mailbox = params.value.get('mailbox') ?? ''
  return (
    <>
      <div class="inbox-head-line">
        <h1 tabIndex={-1} class="visually-hidden">{nameOfFolder(folderInView())}</h1>
        <FolderPicker />
        <span class="inbox-head-actions">
          <Refresh mailbox={mailbox} />
          {can('send_email') && <Button look="primary" small icon="pencil" onClick={onCompose}>Compose</Button>}
        </span>
      </div>
      {!person() && <MailboxPicker label="Mailbox" value={mailbox} all="All mailboxes" onPick={(m) => setFilter({ mailbox: m?.email, folder: undefined })} />}
      <Search />
      <Toggles />
    </>
  )
}

function Refresh({ mailbox }: { mailbox: string }) {
  const account = useQuery('get_account', {}, { when: !person() })
  const off = account.data?.universal_inbox_enabled === false
  const refresh = async () => {
    if (person()) {
      told((await call('refresh_email_user_inbox', { user_id: session.value!.user.id })).message)
    } else if (mailbox) {
      const { data } = await call('list_email_users', { q: mailbox, limit: 100 })
      const found = data.find((m) => m.email === mailbox)
      if (found) told((await call('refresh_email_user_inbox', { user_id: found.user_id })).message)
    } else if (off) {
      askForUniversal()
    } else {
      told((await call('refresh_inbox')).message)
    }
  }
  return <IconButton look="ghost" small icon="refresh" label="Fetch new mail" onClick={refresh} />
}

const universal = 'Mail for your own domains appears as soon as it arrives. External mailboxes are fetched in the background only while the universal inbox is on.'

function askForUniversal() {
  if (!can('set_universal_inbox')) {
    told('Mail for your own domains is up to date. To fetch external mailboxes too, ask an owner or admin to turn on the universal inbox.')
    return
  }
  ask({
    title: 'The universal inbox is off', text: universal, action: 'Turn on', danger: false,
    run: async () => told((await call('set_universal_inbox', { enabled: true })).message),
  })
}

/** Says so if mail of external mailboxes is not fetched. Only accounts that have an external domain can have any. */
export function UniversalNotice() {
  const account = useQuery('get_account', {}, { when: !person() })
  const off = account.data?.universal_inbox_enabled === false
  const external = useQuery('list_domains', { dns_provider: 'external', limit: 1 }, { when: off })
  if (!off || !external.data?.data.length) return null
  return (
    <div class="inbox-universal">
      <Notice tone="warn">
        The universal inbox is off, so external mailboxes are not fetched automatically.{' '}
        {can('set_universal_inbox') && <button type="button" class="inbox-link" onClick={askForUniversal}>Turn it on</button>}
      </Notice>
    </div>
  )
}

function Search() {
  const [typed, setTyped] = useTyped('q')
  const [more, setMore] = useState(hiddenFilters() > 0)
  const n = hiddenFilters()
  return (
    <>
      <div class="inbox-search" role="search">
        <Icon name="search" />
        <input id="inbox-search" class="input" type="text" inputMode="search" enterkeyhint="search" aria-label="Search messages" placeholder="Search" value={typed} spellcheck={false} maxLength={200} autocapitalize="off"
          title={'All words must match. Use "quotes" for an exact phrase, or @example.com for a domain.'}
          onInput={(e) => setTyped(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key !== 'Escape') return
            if (typed) setTyped('')
            else e.currentTarget.blur()
          }} />
        {typed ? <IconButton look="ghost" small icon="x" label="Clear search" onClick={() => { setTyped(''); document.getElementById('inbox-search')?.focus() }} /> : <kbd class="inbox-only-wide" aria-hidden="true">/</kbd>}
        <Button look="ghost" small icon="filter" aria-label={'Sender and dates' + (n > 0 ? `, ${n} set` : '')} title="Sender and dates" aria-expanded={more} aria-controls="inbox-more" onClick={() => setMore(!more)}>{n > 0 ? n : undefined}</Button>
      </div>
      {more && <More />}
    </>
  )
}

function More() {
  const p = params.value
  const [from, setFrom] = useTyped('from')
  return (
    <div class="inbox-more" id="inbox-more">
      <TextField label="From" value={from} onInput={setFrom} placeholder="Name or address" maxLength={200} />
      <TextField label="Since" type="date" value={p.get('date_from') ?? ''} onInput={(v) => setFilter({ date_from: v })} />
      <TextField label="Until" type="date" value={p.get('date_to') ?? ''} onInput={(v) => setFilter({ date_to: v })} hint="Dates are in UTC." />
    </div>
  )
}

const toggles: [FilterName, string, string][] = [
  ['is_read', 'false', 'Unread'], ['is_flagged', 'true', 'Starred'], ['has_attachments', 'true', 'Attachments'], ['exclude_warmup', 'true', 'Hide warm-up'],
]

function Toggles() {
  return (
    <div class="inbox-toggles" role="group" aria-label="Filters">
      {toggles.filter(([name]) => name !== 'exclude_warmup' || !person()).map(([name, value, text]) => {
        const on = params.value.get(name) === value
        return <button key={name} type="button" class="inbox-toggle" aria-pressed={on} onClick={() => setFilter({ [name]: on ? undefined : value })}>{on && <Icon name="check" />}{text}</button>
      })}
      {isFiltered() && <button type="button" class="inbox-link" onClick={clearFilters}>Clear</button>}
    </div>
  )
}

interface BulkProps {
  selected: number
  loaded: number
  onAll: () => void
  onNone: () => void
  onMark: (read: boolean) => unknown
  starred: boolean
  onStar: () => unknown
  onDelete: () => void
  /** The mailbox of the selected; '' where they are of several. */
  userID: string
  onMove: (to: string, name: string) => void
}

/** Takes the place of the filters while messages are selected. */
export function Bulk({ selected, loaded, onAll, onNone, onMark, starred, onStar, onDelete, userID, onMove }: BulkProps) {
  return (
    <div class="inbox-bulk" role="toolbar" aria-label="Selected messages">
      <IconButton look="ghost" small icon="x" label="Clear selection" onClick={onNone} />
      <span class="grow" role="status">
        <strong>{selected}</strong> selected
        {selected < loaded && <> · <button type="button" class="inbox-link" onClick={onAll}>Select all {count(loaded)} loaded</button></>}
      </span>
      {can('mark_message') && <IconButton look="ghost" small icon="mail-open" label="Mark as read" onClick={() => onMark(true)} />}
      {can('mark_message') && <IconButton look="ghost" small icon="mail" label="Mark as unread" onClick={() => onMark(false)} />}
      {can('mark_message') && <span class="inbox-only-wide"><IconButton look="ghost" small icon={starred ? 'star-on' : 'star'} label={starred ? 'Unstar' : 'Star'} onClick={onStar} /></span>}
      {can('bulk_move_messages') && <MoveMenu small userID={userID} onMove={onMove} />}
      {can('bulk_delete_messages') && <IconButton look="ghost" small icon="trash" label="Delete" onClick={onDelete} />}
    </div>
  )
}

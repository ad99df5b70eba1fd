// What stands above the list: which mailbox, the search, the filters, and what is done to the selected.
import { useState } from 'preact/hooks'
import { call, can, person, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { compact, turnDensity } from '../../density'
import { params, useTyped } from '../../router'
import { ask, Button, count, Icon, IconButton, Menu, Notice, TextField, told } from '../../ui'
import { rich, t, type Key } from '../../words'
import { clearFilters, hiddenFilters, isFiltered, setFilter, type FilterName } from './filters'
import { FolderPicker, folderInView, MoveMenu, nameOfFolder } from './folders'
import { canNotify, notifies, turnNotifications } from './notify'
import { MailboxPicker } from './picker'
import { Search } from './search'

/** What is known of the account, which is read after the first page of the list; nothing for a person. */
type Account = Schemas['Account'] | undefined

/** onDown goes from the search field into the list. */
export function Head({ account, onCompose, onHelp, onDown }: { account: Account; onCompose: () => void; onHelp: () => void; onDown: () => void }) {
  const mailbox = params.value.get('mailbox') ?? ''
  const [more, setMore] = useState(hiddenFilters() > 0)
  return (
    <>
      <div class="inbox-head-line">
        <h1 tabIndex={-1} class="truncate" dir="auto">{nameOfFolder(folderInView())}</h1>
        <FolderPicker />
        <span class="inbox-head-actions">
          <Refresh mailbox={mailbox} account={account} />
          <Options onHelp={onHelp} />
          {can('send_email') && <Button look="primary" small icon="pencil" aria-label={t('inbox.compose')} onClick={onCompose}><span class="inbox-compose-name">{t('inbox.compose')}</span></Button>}
        </span>
      </div>
      {!person() && <MailboxPicker label={t('inbox.mailbox')} value={mailbox} all={t('inbox.all_mailboxes')} onPick={(m) => setFilter({ mailbox: m?.email, folder: undefined })} />}
      <Search onDown={onDown} more={more} onMore={() => setMore(!more)} />
      {more && <More />}
      <Toggles account={account} />
    </>
  )
}

function Options({ onHelp }: { onHelp: () => void }) {
  const on = notifies.value
  const turn = async () => {
    await turnNotifications(!on)
    told(on ? t('inbox.notify.is_off') : t('inbox.notify.is_on'))
  }
  return (
    <Menu label={t('inbox.options')} small>
      {canNotify && <Button look="ghost" small icon="bell" aria-pressed={on} onClick={turn}>{on ? t('inbox.notify.off') : t('inbox.notify.on')}</Button>}
      <Button look="ghost" small icon={compact.value ? 'rows' : 'rows-dense'} onClick={turnDensity}>{compact.value ? t('ui.comfortable') : t('ui.compact')}</Button>
      <Button look="ghost" small icon="keyboard" onClick={onHelp}>{t('inbox.keys')}</Button>
    </Menu>
  )
}

function Refresh({ mailbox, account }: { mailbox: string; account: Account }) {
  const refresh = async () => {
    if (person()) {
      await call('refresh_email_user_inbox', { user_id: session.value!.user.id })
      told(t('inbox.fetched'))
    } else if (mailbox) {
      const { data } = await call('list_email_users', { q: mailbox, limit: 100 })
      const found = data.find((m) => m.email === mailbox)
      if (found) told((await call('refresh_email_user_inbox', { user_id: found.user_id })).message)
    } else if (account?.universal_inbox_enabled === false) {
      askForUniversal()
    } else {
      told((await call('refresh_inbox')).message)
    }
  }
  return <IconButton look="ghost" small icon="refresh" label={t('inbox.fetch')} onClick={refresh} />
}

function askForUniversal() {
  if (!can('set_universal_inbox')) {
    told(t('inbox.universal.ask'))
    return
  }
  ask({
    title: t('inbox.universal.title'), text: t('inbox.universal.text'), action: t('inbox.universal.action'), danger: false,
    run: async () => told((await call('set_universal_inbox', { enabled: true })).message),
  })
}

/** Says so if mail of external mailboxes is not fetched. Only accounts that have an external domain can have any. */
export function UniversalNotice({ account }: { account: Account }) {
  const off = account?.universal_inbox_enabled === false
  const external = useQuery('list_domains', { dns_provider: 'external', limit: 1 }, { when: off })
  if (!off || !external.data?.data.length) return null
  return (
    <div class="inbox-universal">
      <Notice tone="warn">
        {t('inbox.universal.off')}{' '}
        {can('set_universal_inbox') && <button type="button" class="inbox-link" onClick={askForUniversal}>{t('inbox.universal.turn_on')}</button>}
      </Notice>
    </div>
  )
}

function More() {
  const p = params.value
  const [from, setFrom] = useTyped('from')
  return (
    <div class="inbox-more" id="inbox-more">
      <TextField label={t('inbox.filter.from')} value={from} onInput={setFrom} placeholder={t('inbox.filter.from_hint')} maxLength={200} />
      <TextField label={t('inbox.filter.since')} type="date" value={p.get('date_from') ?? ''} onInput={(v) => setFilter({ date_from: v })} />
      <TextField label={t('inbox.filter.until')} type="date" value={p.get('date_to') ?? ''} onInput={(v) => setFilter({ date_to: v })} hint={t('inbox.filter.utc')} />
    </div>
  )
}

const toggles: [FilterName, string, Key][] = [
  ['is_read', 'false', 'inbox.filter.unread'], ['is_flagged', 'true', 'inbox.filter.starred'], ['has_attachments', 'true', 'inbox.filter.attachments'], ['exclude_warmup', 'true', 'inbox.filter.warmup'],
]

function Toggles({ account }: { account: Account }) {
  const warmup = params.value.has('exclude_warmup') || account !== undefined && account.warmup_phrases.length + account.warmup_headers.length > 0
  return (
    <div class="inbox-toggles" role="group" aria-label={t('inbox.filter')}>
      {toggles.filter(([name]) => name !== 'exclude_warmup' || warmup).map(([name, value, text]) => {
        const on = params.value.get(name) === value
        return <button key={name} type="button" class="inbox-toggle" aria-pressed={on} onClick={() => setFilter({ [name]: on ? undefined : value })}>{on && <Icon name="check" />}{t(text)}</button>
      })}
      {isFiltered() && <button type="button" class="inbox-link" onClick={clearFilters}>{t('inbox.filter.clear')}</button>}
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
    <div class="inbox-bulk" role="toolbar" aria-label={t('inbox.selected')}>
      <IconButton look="ghost" small icon="x" label={t('inbox.select.none')} onClick={onNone} />
      <span class="grow" role="status">
        {rich('inbox.select.count', { n: <strong>{count(selected)}</strong> })}
        {selected < loaded && <><span class="inbox-only-wide"> · </span><button type="button" class="inbox-link" onClick={onAll}>{t('inbox.select.all', { n: count(loaded) })}</button></>}
      </span>
      {can('mark_message') && <IconButton look="ghost" small icon="mail-open" label={t('inbox.mark_read')} onClick={() => onMark(true)} />}
      {can('mark_message') && <IconButton look="ghost" small icon="mail" label={t('inbox.mark_unread')} onClick={() => onMark(false)} />}
      {can('mark_message') && <span class="inbox-only-wide"><IconButton look="ghost" small icon={starred ? 'star-on' : 'star'} label={starred ? t('inbox.unstar') : t('inbox.star')} onClick={onStar} /></span>}
      {can('bulk_move_messages') && <MoveMenu small userID={userID} onMove={onMove} />}
      {can('bulk_delete_messages') && <IconButton look="ghost" small icon="trash" label={t('inbox.delete')} onClick={onDelete} />}
    </div>
  )
}

import { useState } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import { readAhead, usePages, useQuery } from '../../api/query'
import { param, params, setParams } from '../../router'
import { ask, Badge, Button, bytes, Card, count, Empty, ListBar, LongList, Page, plural, SearchField, Select, theirs, Time, told, totalOf, useDrawn, type Column } from '../../ui'
import { Create } from './create'
import { Export } from './export'
import { TemporaryInbox } from './temporary'
import { MailboxTabs, StatusBadge, statuses, type MailboxOut, type Status } from './words'

const mostAtOnce = 100 // of mailboxes that one request deletes

type Sort = '-created_at' | 'created_at' | 'email' | '-email'

const orders: [Sort, string][] = [['-created_at', 'Newest first'], ['created_at', 'Oldest first'], ['email', 'Address, A to Z'], ['-email', 'Address, Z to A']]

const columns: Column[] = [
  { name: 'Address', sorts: ['email', '-email'] }, { name: 'Name' }, { name: 'Status' }, { name: 'Unread', number: true }, { name: 'Used', number: true }, { name: 'Created', sorts: ['-created_at', 'created_at'] },
]

/** What the list reads, by the parameters of the address. */
function listOf(p: URLSearchParams) {
  const sort: Sort = orders.find(([order]) => order === p.get('sort'))?.[0] ?? '-created_at'
  return { limit: 50, q: param(p, 'q'), domain: param(p, 'domain'), status: param(p, 'status') as Status | undefined, sort }
}

/** Reads what the list begins with, before it is opened. */
export const readMailboxesAhead = () => readAhead('list_email_users', listOf(new URLSearchParams()))

export function Mailboxes() {
  const list = listOf(params.value), { q = '', domain = '', status = '', sort } = list
  const pages = usePages('list_email_users', list, (u) => u.id)
  const [picked, setPicked] = useState(new Set<string>())
  const [dialog, setDialog] = useState<'create' | 'export' | 'temporary'>()
  const pick = (id: string, on: boolean) => setPicked((before) => {
    const next = new Set(before)
    if (on) next.add(id)
    else next.delete(id)
    return next
  })
  const filtered = q || domain || status
  const read = useDrawn(pages)
  const account = useQuery('get_account', {}, { when: read && !filtered && !session.value!.limited })
  const picks = can('delete_email_users_bulk_post')
  const table = { columns: picks ? [{ name: 'Select', bare: true }, ...columns] : columns, class: 'mailboxes-line' + (picks ? ' picks' : ''), sort, onSort: (sort: string) => setParams({ sort }) }
  return (
    <Page title="Mailboxes" tabs={<MailboxTabs current="list" />}
      actions={
        <>
          {can('create_export') && <Button icon="download" onClick={() => setDialog('export')}>Export</Button>}
          {can('create_inbox') && <Button icon="clock" onClick={() => setDialog('temporary')}>Temporary inbox</Button>}
          {can('create_email_user') && <Button look="primary" icon="plus" onClick={() => setDialog('create')}>Create mailbox</Button>}
        </>
      }>
      <ListBar total={totalOf(pages, 'mailbox', 'mailboxes', filtered ? undefined : account.data?.email_users_used)} table={table} orders={orders}>
        <SearchField label="Search by address or name" eager />
        <Select label="Status" hideLabel value={status} onChange={(status) => setParams({ status })} options={statuses} />
        {domain && <Button icon="x" small onClick={() => setParams({ domain: '' })}>{domain.startsWith('dom_') ? 'One domain' : domain}</Button>}
      </ListBar>
      <Card flush>
        <LongList pages={pages} idOf={(u) => u.id} height={46} compactHeight={30} narrowHeight={66} narrowCompactHeight={54} label="Mailboxes" table={table}
          row={(u) => <Row of={u} picked={picked.has(u.id)} onPick={picks ? (on) => pick(u.id, on) : undefined} />}
          empty={filtered ? <Empty icon="search" title="No mailboxes match" action={<Button onClick={() => setParams({ q: '', domain: '', status: '' })}>Clear filters</Button>} />
            : <Empty icon="mail" title="No mailboxes yet">A mailbox receives, stores and sends mail for one address. It needs a domain.</Empty>} />
      </Card>
      {picked.size > 0 && <Picked ids={picked} onDone={() => setPicked(new Set())} onExport={() => setDialog('export')} />}
      {dialog === 'create' && <Create domain={domain} onClose={() => setDialog(undefined)} />}
      {dialog === 'temporary' && <TemporaryInbox domain={domain.startsWith('dom_') ? '' : domain} onClose={() => setDialog(undefined)} />}
      {dialog === 'export' && <Export ids={[...picked]} onClose={() => setDialog(undefined)} />}
    </Page>
  )
}

function Row({ of: u, picked, onPick }: { of: MailboxOut; picked: boolean; onPick?: (on: boolean) => void }) {
  return (
    <>
      {onPick && <span role="cell" class="row-above mailboxes-pick"><input type="checkbox" class="mailboxes-tick" aria-label={`Select ${u.email}`} checked={picked} onChange={(e) => onPick(e.currentTarget.checked)} /></span>}
      <span role="cell" class="mailboxes-address"><a class="row-link truncate" href={`/mailboxes/${u.id}`}>{u.email}</a>{u.type === 'external' && <Badge plain tone="info">external</Badge>}</span>
      <span role="cell" class="mailboxes-name muted truncate">{u.expires_at && <>Expires <Time of={u.expires_at} />{u.name && ' · '}</>}{theirs(u.name)}</span>
      <span role="cell" class="mailboxes-state"><StatusBadge status={u.status} /></span>
      <span role="cell" class="mailboxes-unread muted number">{u.unread_count > 0 ? count(u.unread_count) : ''}<span class="mailboxes-word">{u.unread_count > 0 ? ' unread' : ''}</span></span>
      <span role="cell" class="mailboxes-used muted number">{bytes(u.used_bytes)}</span>
      <span role="cell" class="mailboxes-created muted small nowrap"><Time of={u.created_at} form="date" /></span>
    </>
  )
}

function Picked({ ids, onDone, onExport }: { ids: Set<string>; onDone: () => void; onExport: () => void }) {
  const remove = () => ask({
    title: `Delete ${plural(ids.size, 'mailbox', 'mailboxes')}?`, action: 'Delete', typed: String(ids.size),
    text: 'All of their mail is deleted too. This can’t be undone.',
    run: async () => {
      const all = [...ids]
      let failed = 0
      for (let i = 0; i < all.length; i += mostAtOnce) failed += (await call('delete_email_users_bulk_post', { user_ids: all.slice(i, i + mostAtOnce) })).failed
      onDone()
      told(failed > 0 ? `${plural(failed, 'mailbox', 'mailboxes')} could not be deleted.` : 'The mailboxes are being deleted.')
    },
  })
  return (
    <div class="mailboxes-picked" role="region" aria-label="Selected mailboxes">
      <strong>{ids.size} selected</strong>
      {can('create_export') && <Button small icon="download" onClick={onExport}>Export</Button>}
      <Button small look="danger" icon="trash" onClick={remove}>Delete</Button>
      <Button small look="ghost" onClick={onDone}>Clear selection</Button>
    </div>
  )
}

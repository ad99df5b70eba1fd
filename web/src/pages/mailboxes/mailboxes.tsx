import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { usePages } from '../../api/query'
import { params, setParams, useTyped } from '../../router'
import { ask, Badge, Button, bytes, Card, Empty, Icon, LongList, Page, plural, Select, TextField, Time, told } from '../../ui'
import { Create } from './create'
import { Export } from './export'
import { TemporaryInbox } from './temporary'
import { MailboxTabs, StatusBadge, statuses, type MailboxOut, type Status } from './words'

const mostAtOnce = 100 // of mailboxes that one request deletes

export function Mailboxes() {
  const q = params.value.get('q') ?? '', domain = params.value.get('domain') ?? '', status = (params.value.get('status') ?? '') as Status | ''
  const pages = usePages('list_email_users', { limit: 100, q: q || undefined, domain: domain || undefined, status: status || undefined }, (u) => u.id)
  const [picked, setPicked] = useState(new Set<string>())
  const [dialog, setDialog] = useState<'create' | 'export' | 'temporary'>()
  const pick = (id: string, on: boolean) => setPicked((before) => {
    const next = new Set(before)
    if (on) next.add(id)
    else next.delete(id)
    return next
  })
  const filtered = q || domain || status
  return (
    <Page title="Mailboxes" tabs={<MailboxTabs current="list" />}
      actions={
        <>
          {can('create_export') && <Button icon="download" onClick={() => setDialog('export')}>Export</Button>}
          {can('create_inbox') && <Button icon="clock" onClick={() => setDialog('temporary')}>Temporary inbox</Button>}
          {can('create_email_user') && <Button look="primary" icon="plus" onClick={() => setDialog('create')}>Create mailbox</Button>}
        </>
      }>
      <div class="mailboxes-filters">
        <Search />
        <Select label="Status" hideLabel value={status} onChange={(status) => setParams({ status })} options={statuses} />
        {domain && <Button icon="x" small onClick={() => setParams({ domain: '' })}>{domain.startsWith('dom_') ? 'One domain' : domain}</Button>}
      </div>
      <Card flush>
        <LongList pages={pages} idOf={(u) => u.id} height={58} label="Mailboxes" row={(u) => <Row of={u} picked={picked.has(u.id)} onPick={(on) => pick(u.id, on)} />}
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

function Search() {
  const [text, setText] = useTyped('q')
  return <div class="search"><Icon name="search" /><TextField label="Search by address or name" hideLabel type="search" value={text} onInput={setText} placeholder="Search by address or name" /></div>
}

function Row({ of: u, picked, onPick }: { of: MailboxOut; picked: boolean; onPick: (on: boolean) => void }) {
  return (
    <div class="line mailboxes-row">
      {can('delete_email_users_bulk_post') && <input type="checkbox" class="mailboxes-tick" aria-label={`Select ${u.email}`} checked={picked} onChange={(e) => onPick(e.currentTarget.checked)} />}
      <a class="grow" href={`/mailboxes/${u.id}`}><div class="truncate"><strong>{u.email}</strong></div><div class="muted small truncate">{u.expires_at && <>Expires <Time of={u.expires_at} />{u.name && ' · '}</>}{u.name || ' '}</div></a>
      {u.type === 'external' && <Badge plain tone="info">external</Badge>}
      <span class="mailboxes-unread muted small">{u.unread_count > 0 ? `${u.unread_count} unread` : ''}</span>
      <span class="mailboxes-used muted small">{bytes(u.used_bytes)}</span>
      <span class="mailboxes-state"><StatusBadge status={u.status} /></span>
    </div>
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
      <strong class="grow">{ids.size} selected</strong>
      {can('create_export') && <Button small icon="download" onClick={onExport}>Export</Button>}
      <Button small look="danger" icon="trash" onClick={remove}>Delete</Button>
      <Button small look="ghost" onClick={onDone}>Clear selection</Button>
    </div>
  )
}

// The mailboxes of a domain.
import { useState } from 'preact/hooks'
import { can, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { Card, Empty, LinkButton, LongList, Icon, TextField, Time } from '../../ui'
import { StatusBadge } from '../mailboxes/words'
import type { TabProps } from './types'
import { MakeMailbox } from './make'

type Mailbox = Schemas['EmailUser']

export function DomainMailboxes({ domain: d }: TabProps) {
  const [q, setQ] = useState('')
  const pages = usePages('list_domain_email_users', { domain_id: d.id, limit: 50, q: q || undefined }, (m) => m.id)
  const there = '/mailboxes?domain=' + d.domain
  const make = can('create_email_user') && d.status !== 'deleting' && (
    <>
      {d.dns_provider !== 'external' && <LinkButton small href={'/mailboxes/bulk?domain=' + d.domain}>Bulk create</LinkButton>}
      <MakeMailbox domain={d} small />
    </>
  )
  const bare = q === '' && pages.items.length === 0
  return (
    <Card flush title="Mailboxes" actions={!bare && <><a href={there}>Open in Mailboxes</a>{make}</>}>
      {!bare && <div class="domains-in"><TextField label="Search mailboxes" hideLabel type="search" value={q} onInput={setQ} placeholder="Search mailboxes" /></div>}
      <LongList pages={pages} idOf={(m) => m.id} height={60} narrowHeight={72} label="Mailboxes of this domain" row={(m) => <Row mailbox={m} />}
        empty={q ? <Empty icon="search" title="No mailboxes match" /> : <Empty icon="mail" title="No mailboxes yet" action={make && <div class="row">{make}</div>}>Create a mailbox to send and receive mail as, for example, hello@{d.domain_unicode}.</Empty>} />
    </Card>
  )
}

function Row({ mailbox: m }: { mailbox: Mailbox }) {
  return (
    <a class="line" href={'/mailboxes/' + m.id}>
      <span class="grow truncate"><strong>{m.email}</strong>{(m.name || m.expires_at) && <><br /><span class="muted small">{m.expires_at && <>Expires <Time of={m.expires_at} />{m.name && ' · '}</>}{m.name}</span></>}</span>
      {m.status !== 'active' && <StatusBadge status={m.status} />}
      {m.unread_count > 0 && <span class="small nowrap">{m.unread_count} unread</span>}
      <span class="muted small nowrap domains-wide">{m.last_login_at ? <>last login <Time of={m.last_login_at} /></> : 'never logged in'}</span>
      <Icon name="next" />
    </a>
  )
}

// Credentials with which Mailstead makes records at DNS providers.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Button, Card, Empty, IconButton, Notice, Page, Show, TableWrap, theirs, Time, told } from '../../ui'
import { useFleet } from '../domains/fleet'
import type { Domain } from '../domains/words'
import { CredentialDialog } from './dns-credential'
import { dnsProviders, type DNSCredential } from './dns-providers'
import { AccountTabs } from './tabs'

export function DNSCredentials() {
  const list = useQuery('list_dns_credentials', {}, { kinds: ['domain'] })
  const fleet = useFleet()
  const [adding, setAdding] = useState(false)
  const [editing, setEditing] = useState<DNSCredential>()
  const add = can('create_dns_credential') && <Button look="primary" icon="plus" onClick={() => setAdding(true)}>Add credential</Button>
  return (
    <Page title="DNS credentials" back={{ href: '/account', label: 'Account' }} intro="Mailstead creates DNS records at your DNS provider with these." actions={list.data && list.data.data.length > 0 && add} tabs={<AccountTabs current="dns" />}>
      <Card flush>
        <Show of={list}>
          {({ data }) => data.length === 0
            ? <Empty icon="key" title="No DNS credentials yet" action={add}>With a credential for your DNS provider, domains keep their DNS there, and Mailstead manages the mail records.</Empty>
            : <Table of={data} domains={fleet.data} onEdit={setEditing} onDeleted={list.reload} />}
        </Show>
      </Card>
      {adding && <CredentialDialog onDone={list.reload} onClose={() => setAdding(false)} />}
      {editing && <CredentialDialog of={editing} onDone={list.reload} onClose={() => setEditing(undefined)} />}
    </Page>
  )
}

function Table({ of, domains, onEdit, onDeleted }: { of: DNSCredential[]; domains?: Domain[]; onEdit: (c: DNSCredential) => void; onDeleted: () => Promise<void> }) {
  return (
    <TableWrap label="DNS credentials">
      <table class="table folds pairs">
        <thead><tr><th>Name</th><th>Provider</th><th>Zones</th><th>Used by</th><th>Last used</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
        <tbody>
          {of.map((c) => (
            <tr key={c.id}>
              <td class="breaks"><strong>{theirs(c.name)}</strong>{c.error && <Notice tone="bad" title="Refused by the provider.">{can('update_dns_credential') && 'Edit it and enter a new key. '}<span class="muted">The answer: {theirs(c.error)}</span></Notice>}</td>
              <td data-label="Provider">{dnsProviders[c.provider].name}</td>
              <td data-label="Zones" class="breaks">{c.zones.length > 0 ? c.zones.join(', ') : <span class="muted">All of the provider</span>}</td>
              <td data-label="Used by" class="breaks"><UsedBy of={domains?.filter((d) => d.dns_credential_id === c.id)} /></td>
              <td data-label="Last used" class="nowrap"><Time of={c.last_used_at} /></td>
              <td>
                <span class="domains-actions">
                  {can('update_dns_credential') && <IconButton look="ghost" small icon="pencil" label={`Edit ${c.name}`} onClick={() => onEdit(c)} />}
                  {can('delete_dns_credential') && <IconButton look="ghost" small icon="trash" label={`Delete ${c.name}`} onClick={() => remove(c, onDeleted)} />}
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  )
}

const mostNamed = 3

function UsedBy({ of }: { of: Domain[] | undefined }) {
  if (!of) return <span class="muted">…</span>
  if (of.length === 0) return <span class="muted">No domains</span>
  return <>{of.slice(0, mostNamed).map((d, i) => <>{i > 0 && ', '}<a key={d.id} href={'/domains/' + d.id}>{d.domain_unicode}</a></>)}{of.length > mostNamed && ` and ${of.length - mostNamed} more`}</>
}

function remove(c: DNSCredential, onDeleted: () => Promise<void>) {
  ask({
    title: `Delete ${c.name}?`, action: 'Delete', text: 'Mailstead forgets the key. Delete it at the provider too if nothing else uses it.',
    run: async () => {
      await call('delete_dns_credential', { credential_id: c.id })
      await onDeleted()
      told('Credential deleted.')
    },
  })
}

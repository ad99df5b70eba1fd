// The records that a domain's owner adds to those that Mailstead keeps.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, CopyButton, Dialog, Empty, Form, IconButton, LinkButton, Select, Show, TableWrap, TextArea, TextField, told } from '../../ui'
import type { TabProps } from './types'
import type { Domain } from './words'

type OwnRecord = Schemas['CustomDNSRecord']
type Type = OwnRecord['type']

const tones = { active: 'ok', pending: 'info', error: 'bad' } as const
const stateNames = { active: 'Published', pending: 'Pending', error: 'Failed' } as const

export function OwnRecords({ domain: d }: TabProps) {
  if (d.dns_provider === 'manual') {
    return (
      <Card>
        <Empty icon="globe" title="Managed at your DNS provider" action={<LinkButton href={`/domains/${d.id}/dns`}>See required records</LinkButton>}>
          You manage the DNS of {d.domain_unicode}. Add custom records at your DNS provider.
        </Empty>
      </Card>
    )
  }
  return <RecordList domain={d} />
}

function RecordList({ domain: d }: { domain: Domain }) {
  const list = useQuery('list_custom_dns_records', { domain_id: d.id }, { kinds: ['record', 'domain'] })
  const [edited, setEdited] = useState<OwnRecord | 'new'>()
  const close = () => setEdited(undefined)
  const add = can('create_custom_dns_record') && d.status !== 'deleting' && <Button look="primary" small icon="plus" onClick={() => setEdited('new')}>Add record</Button>
  return (
    <>
      <Card flush title="Custom records" note="DNS records for a website or to verify the domain with another service. Mailstead manages the records for mail." actions={list.data && list.data.records.length > 0 && add}>
        <Show of={list}>
          {({ records }) => records.length === 0
            ? <Empty icon="globe" title="No custom records yet" action={add}>Mail works without them. Add a record when another service asks for one, such as a TXT record for verification.</Empty>
            : <RecordTable records={records} domain={d} onEdit={setEdited} reload={list.reload} />}
        </Show>
      </Card>
      {edited && <RecordDialog domain={d} record={edited === 'new' ? undefined : edited} onClose={close} onDone={async () => { close(); await list.reload() }} />}
    </>
  )
}

function RecordTable({ records, domain: d, onEdit, reload }: { records: OwnRecord[]; domain: Domain; onEdit: (r: OwnRecord) => void; reload: () => Promise<void> }) {
  return (
    <TableWrap label="Custom records">
      <table class="table folds domains-middle">
        <thead><tr><th>Name</th><th>Type</th><th>Value</th><th>TTL</th><th>Status</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
        <tbody>
          {records.map((r) => (
            <tr key={r.id}>
              <td data-label="Name" class="breaks"><code title={r.fqdn}>{r.name}</code></td>
              <td data-label="Type" class="mono">{r.type}</td>
              <td data-label="Value" class="breaks"><code>{r.value}</code> <CopyButton text={r.value} label={`Copy value of ${r.fqdn}`} /></td>
              <td data-label="TTL" class="nowrap">{seconds(r.ttl)}</td>
              <td data-label="Status"><Badge tone={tones[r.status]}>{stateNames[r.status]}</Badge>{r.error && <p class="small">{r.error}</p>}</td>
              <td><div class="domains-actions">
                {can('update_custom_dns_record') && <IconButton look="ghost" small icon="pencil" label={`Edit ${r.type} ${r.name}`} onClick={() => onEdit(r)} />}
                {can('delete_custom_dns_record') && <IconButton look="ghost" small icon="trash" label={`Delete ${r.type} ${r.name}`} onClick={() => remove(r, d, reload)} />}
              </div></td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  )
}

function seconds(n: number): string {
  if (n % 3600 === 0) return `${n / 3600} h`
  return n % 60 === 0 ? `${n / 60} min` : `${n} s`
}

function remove(r: OwnRecord, d: Domain, reload: () => Promise<void>) {
  ask({
    title: `Delete the ${r.type} record ${r.fqdn}?`, action: 'Delete record',
    text: <p>Services that use it stop working within {seconds(r.ttl)}. You can add it again later.</p>,
    run: async () => {
      await call('delete_custom_dns_record', { domain_id: d.id, record_id: r.id })
      told('Record deleted.')
      await reload()
    },
  })
}

const types: [Type, string][] = [['TXT', 'TXT: text'], ['CNAME', 'CNAME: alias of another hostname'], ['A', 'A: IPv4 address'], ['AAAA', 'AAAA: IPv6 address']]
const hints: { [T in Type]: [string, string] } = {
  TXT: ['google-site-verification=…', 'Enter the text without quotation marks.'],
  CNAME: ['sites.example.net', 'The target hostname. No other record can have the same name.'],
  A: ['192.0.2.10', 'An IPv4 address.'],
  AAAA: ['2001:db8::10', 'An IPv6 address.'],
}
const lifetimes: [string, string][] = [['60', '1 minute'], ['300', '5 minutes'], ['3600', '1 hour'], ['14400', '4 hours'], ['86400', '1 day']]

/** What is plainly wrong with a value, before the server is asked. */
function wrongWith(type: Type, value: string): string | undefined {
  const v = value.trim()
  if (v === '') return
  if (type === 'A' && !(/^\d{1,3}(\.\d{1,3}){3}$/.test(v) && v.split('.').every((n) => Number(n) <= 255))) return 'This is not an IPv4 address. Example: 192.0.2.10'
  if (type === 'AAAA' && !/^[0-9a-f:.]*:[0-9a-f:.]*$/i.test(v)) return 'This is not an IPv6 address. Example: 2001:db8::10'
  if (type === 'CNAME' && (/^https?:/i.test(v) || /[\s/]/.test(v))) return 'Enter a hostname only, without https:// or a path.'
}

function RecordDialog({ domain: d, record: r, onClose, onDone }: { domain: Domain; record?: OwnRecord; onClose: () => void; onDone: () => Promise<void> }) {
  const [type, setType] = useState<Type>(r?.type ?? 'TXT')
  const [name, setName] = useState(r?.name === '@' ? '' : r?.name ?? '')
  const [value, setValue] = useState(r?.value ?? '')
  const [ttl, setTtl] = useState(String(r?.ttl ?? 300))
  const wrong = wrongWith(type, value)
  const submit = async () => {
    const fields = { name: name.trim() || '@', type, value: value.trim(), ttl: Number(ttl) }
    if (r) await call('update_custom_dns_record', { domain_id: d.id, record_id: r.id, ...fields })
    else await call('create_custom_dns_record', { domain_id: d.id, ...fields })
    told(r ? 'Record updated.' : 'Record added.')
    await onDone()
  }
  const options = lifetimes.some(([v]) => v === ttl) ? lifetimes : [...lifetimes, [ttl, seconds(Number(ttl))] as [string, string]]
  return (
    <Dialog title={r ? 'Edit record' : 'Add record'} onClose={onClose}>
      <Form onSubmit={submit} submit={r ? 'Save' : 'Add record'} disabled={value.trim() === '' || wrong !== undefined} actions={<Button onClick={onClose}>Cancel</Button>}>
        <Select label="Type" name="type" value={type} onChange={setType} options={types} />
        <TextField label="Name" name="name" value={name} onInput={setName} after={'.' + d.domain} placeholder="@" mono autoFocus hint={`Leave empty for ${d.domain_unicode}.`} />
        {type === 'TXT'
          ? <TextArea label="Value" name="value" value={value} onInput={setValue} rows={3} placeholder={hints.TXT[0]} hint={hints.TXT[1]} mono />
          : <TextField label="Value" name="value" value={value} onInput={setValue} placeholder={hints[type][0]} hint={hints[type][1]} error={wrong} mono />}
        <Select label="TTL" name="ttl" value={ttl} onChange={setTtl} options={options} hint="How long resolvers cache the record. Use a short TTL while you test." />
      </Form>
    </Dialog>
  )
}

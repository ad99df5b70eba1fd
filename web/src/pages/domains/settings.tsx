// What a domain is filed under, its registration, setting it up again, and its end.
import { can } from '../../api/client'
import { Badge, Button, Card, Check, Copyable, Facts, IconButton, Notice, TextArea, TextField, Time } from '../../ui'
import type { DomainDrafts } from './draft'
import { useFleet } from './fleet'
import { DnsProvider } from './provider'
import { deleteDomain, setUpAgain } from './repair'
import type { FieldsProps, TabProps } from './types'
import { providerNames, type Domain } from './words'

export function Settings(props: FieldsProps) {
  const { domain: d } = props
  const mayChange = can('update_domain') && d.status !== 'deleting'
  return (
    <>
      <div class="grid-2">
        {mayChange ? <Tags {...props} /> : d.tags.length > 0 && <Card title="Tags"><div class="row">{d.tags.map((t) => <Badge key={t} plain>{t}</Badge>)}</div></Card>}
        {mayChange ? <Notes {...props} /> : d.notes && <Card title="Notes"><p class="domains-notes">{d.notes}</p></Card>}
      </div>
      <Registration {...props} mayChange={mayChange} />
      {mayChange && d.dns_provider !== 'external' && <DnsProvider {...props} />}
      {mayChange && <Ends {...props} />}
    </>
  )
}

function Tags({ domain: d, drafts: { settings: { values: f, set } } }: FieldsProps) {
  const { tags: known } = useFleet()
  return (
    <Card title="Tags" note="Use tags to group and filter domains.">
      <div class="stack">
        {f.tags.length > 0 && (
          <ul class="domains-tags">
            {f.tags.map((t) => <li key={t}>{t} <IconButton look="ghost" small icon="x" label={`Remove tag ${t}`} onClick={() => set({ tags: f.tags.filter((other) => other !== t) })} /></li>)}
          </ul>
        )}
        <TextField label="New tags" name="tags" value={f.more} onInput={(more) => set({ more })} list={known.filter((t) => !d.tags.includes(t))} placeholder="client-a, newsletter" hint="Separate tags with commas." />
      </div>
    </Card>
  )
}

function Notes({ drafts: { settings: { values: f, set } } }: FieldsProps) {
  return (
    <Card title="Notes" note="Only your team sees these.">
      <TextArea label="Notes" hideLabel name="notes" value={f.notes} onInput={(notes) => set({ notes })} rows={5} />
    </Card>
  )
}

function Registration({ domain: d, drafts, mayChange }: FieldsProps & { mayChange: boolean }) {
  return (
    <Card title="Registration">
      <div class="stack">
        <Facts of={[
          ['Source', d.source === 'registered' ? 'Bought here' : 'Connected'],
          ['Registrar', d.registrar],
          ['Expires', d.expires_at && <Time of={d.expires_at} form="date" />],
          ['DNS provider', !mayChange && providerNames[d.dns_provider]],
          ['Created', <Time of={d.created_at} form="at" />],
          ['Updated', <Time of={d.updated_at} form="at" />],
          ['ID', <Copyable text={d.id} label="Copy ID" />],
        ]} />
        {d.source === 'registered' ? <Renewal domain={d} mayChange={mayChange} draft={drafts.settings} /> : <p class="muted small">This domain was not bought here. Renew it at your registrar.</p>}
      </div>
    </Card>
  )
}

function Renewal({ domain: d, mayChange, draft: { values: f, set } }: { domain: Domain; mayChange: boolean; draft: DomainDrafts['settings'] }) {
  if (!can('update_domain')) return <p class="muted small">Auto-renew is {d.auto_renew ? 'on' : 'off'}. The account’s owner or an admin can change this.</p>
  return (
    <Check name="auto_renew" checked={f.renew} disabled={!mayChange} onChange={(renew) => set({ renew })} label="Auto-renew"
      hint={`${d.registrar ?? 'The registrar'} charges for another year before the domain expires. If this is off, the domain expires.`} />
  )
}

function Ends({ domain: d, reload }: TabProps) {
  return (
    <Card title="Danger zone">
      <div class="stack">
        {can('setup_domain') && d.dns_provider !== 'external' && (
          <div class="row-between">
            <div><strong>Set up again</strong><p class="muted small">Recreates anything missing: keys, DNS records, certificates. Existing ones are kept.</p></div>
            <Button icon="refresh" onClick={() => setUpAgain(d, reload)}>Set up again</Button>
          </div>
        )}
        {can('delete_domain') && (
          <div class="row-between">
            <div><strong>Delete domain</strong><p class="muted small">Permanently deletes the domain, its mailboxes and all their mail.</p></div>
            <Button look="danger" icon="trash" onClick={() => deleteDomain(d)}>Delete domain</Button>
          </div>
        )}
        {d.status === 'deleting' && <Notice>This domain is being deleted.</Notice>}
      </div>
    </Card>
  )
}

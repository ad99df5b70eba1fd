// What a domain is filed under, its registration, setting it up again, and its end.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { Badge, Button, Card, Check, Copyable, failed, Facts, Form, IconButton, Notice, TextArea, TextField, Time, told } from '../../ui'
import type { TabProps } from './types'
import { useFleet } from './fleet'
import { DnsProvider } from './provider'
import { deleteDomain, setUpAgain } from './repair'
import { providerNames, type Domain } from './words'

export function Settings(props: TabProps) {
  const { domain: d } = props
  const mayChange = can('update_domain') && d.status !== 'deleting'
  return (
    <>
      <div class="grid-2">
        {mayChange ? <Tags {...props} /> : d.tags.length > 0 && <Card title="Tags"><div class="row">{d.tags.map((t) => <Badge key={t} plain>{t}</Badge>)}</div></Card>}
        {mayChange ? <Notes key={d.notes} {...props} /> : d.notes && <Card title="Notes"><p class="domains-notes">{d.notes}</p></Card>}
      </div>
      <Registration {...props} mayChange={mayChange} />
      {mayChange && d.dns_provider !== 'external' && <DnsProvider {...props} />}
      {mayChange && <Ends {...props} />}
    </>
  )
}

function Tags({ domain: d, reload }: TabProps) {
  const { tags: known } = useFleet()
  const [tag, setTag] = useState('')
  const save = async (tags: string[]) => {
    await call('update_domain', { domain_id: d.id, tags })
    await reload()
  }
  const add = async () => {
    await save([...d.tags, ...tag.split(',').map((t) => t.trim()).filter(Boolean)])
    setTag('')
  }
  return (
    <Card title="Tags" note="Use tags to group and filter domains.">
      <div class="stack">
        {d.tags.length > 0 && (
          <ul class="domains-tags">
            {d.tags.map((t) => <li key={t}>{t} <IconButton look="ghost" small icon="x" label={`Remove tag ${t}`} onClick={() => save(d.tags.filter((other) => other !== t))} /></li>)}
          </ul>
        )}
        <Form onSubmit={add} submit="Add" disabled={tag.trim() === ''}>
          <TextField label="New tag" name="tags" value={tag} onInput={setTag} maxLength={50} list={known.filter((t) => !d.tags.includes(t))} placeholder="client-a" />
        </Form>
      </div>
    </Card>
  )
}

function Notes({ domain: d, reload }: TabProps) {
  const [notes, setNotes] = useState(d.notes ?? '')
  const save = async () => {
    await call('update_domain', { domain_id: d.id, notes: notes.trim() || null })
    told('Saved.')
    await reload()
  }
  return (
    <Card title="Notes" note="Only your team sees these.">
      <Form onSubmit={save} submit="Save" disabled={notes.trim() === (d.notes ?? '')}>
        <TextArea label="Notes" hideLabel name="notes" value={notes} onInput={setNotes} rows={5} />
      </Form>
    </Card>
  )
}

function Registration({ domain: d, reload, mayChange }: TabProps & { mayChange: boolean }) {
  const renew = async (auto_renew: boolean) => {
    await call('update_domain', { domain_id: d.id, auto_renew })
    told(auto_renew ? 'Auto-renew turned on.' : 'Auto-renew turned off.')
    await reload()
  }
  return (
    <Card title="Registration">
      <div class="stack">
        <Facts of={[
          ['Added by', d.source === 'registered' ? 'purchase' : 'connection'],
          ['Registrar', d.registrar],
          ['Expires', d.expires_at && <Time of={d.expires_at} form="date" />],
          ['DNS provider', !mayChange && providerNames[d.dns_provider]],
          ['Created', <Time of={d.created_at} form="at" />],
          ['Updated', <Time of={d.updated_at} form="at" />],
          ['ID', <Copyable text={d.id} label="Copy ID" />],
        ]} />
        {d.source === 'registered' ? <Renewal domain={d} mayChange={mayChange} onTurn={renew} /> : <p class="muted small">This domain was not bought here. Renew it at your registrar.</p>}
      </div>
    </Card>
  )
}

function Renewal({ domain: d, mayChange, onTurn }: { domain: Domain; mayChange: boolean; onTurn: (on: boolean) => Promise<void> }) {
  if (!can('update_domain')) return <p class="muted small">Auto-renew is {d.auto_renew ? 'on' : 'off'}. The account’s owner or an admin can change this.</p>
  return (
    <Check checked={d.auto_renew} disabled={!mayChange} onChange={(on) => void onTurn(on).catch(failed)} label="Auto-renew"
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

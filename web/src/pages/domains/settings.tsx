// What a domain is filed under, its registration, setting it up again, and its end.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { Badge, Button, Card, Check, Copyable, failed, Facts, Form, IconButton, Notice, TextArea, TextField, Time, told } from '../../ui'
import type { TabProps } from './types'
import { useFleet } from './fleet'
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
    <Card title="Tags" note="To find domains that belong together.">
      <div class="stack">
        {d.tags.length > 0 && (
          <ul class="domains-tags">
            {d.tags.map((t) => <li key={t}>{t} <IconButton look="ghost" small icon="x" label={`Remove the tag ${t}`} onClick={() => save(d.tags.filter((other) => other !== t))} /></li>)}
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
    told('Saved')
    await reload()
  }
  return (
    <Card title="Notes" note="For your team. Nobody else sees them.">
      <Form onSubmit={save} submit="Save" disabled={notes.trim() === (d.notes ?? '')}>
        <TextArea label="Notes" hideLabel name="notes" value={notes} onInput={setNotes} rows={5} />
      </Form>
    </Card>
  )
}

function Registration({ domain: d, reload, mayChange }: TabProps & { mayChange: boolean }) {
  const renew = async (auto_renew: boolean) => {
    await call('update_domain', { domain_id: d.id, auto_renew })
    told(auto_renew ? 'It is renewed by itself.' : 'It is no longer renewed by itself.')
    await reload()
  }
  return (
    <Card title="Registration">
      <div class="stack">
        <Facts of={[
          ['Came here', d.source === 'registered' ? 'bought here' : 'connected'],
          ['Registered at', d.registrar],
          ['Paid until', d.expires_at && <Time of={d.expires_at} form="date" />],
          ['DNS', providerNames[d.dns_provider]],
          ['Added', <Time of={d.created_at} form="at" />],
          ['Changed', <Time of={d.updated_at} form="at" />],
          ['Number', <Copyable text={d.id} label="Copy the number" />],
        ]} />
        {d.source === 'registered' ? <Renewal domain={d} mayChange={mayChange} onTurn={renew} /> : <p class="muted small">It was not bought here: whoever you registered it with renews it.</p>}
      </div>
    </Card>
  )
}

function Renewal({ domain: d, mayChange, onTurn }: { domain: Domain; mayChange: boolean; onTurn: (on: boolean) => Promise<void> }) {
  if (!can('update_domain')) return <p class="muted small">{d.auto_renew ? 'It is renewed by itself.' : 'It is not renewed by itself.'} The account’s owner or an admin can change this.</p>
  return (
    <Check checked={d.auto_renew} disabled={!mayChange} onChange={(on) => void onTurn(on).catch(failed)} label="Renew it by itself"
      hint={`${d.registrar ?? 'The registrar'} charges for another year before it expires. Without it the name is lost then.`} />
  )
}

function Ends({ domain: d, reload }: TabProps) {
  return (
    <Card title="Start anew, or end">
      <div class="stack">
        {can('setup_domain') && d.dns_provider !== 'external' && (
          <div class="row-between">
            <div><strong>Set up again</strong><p class="muted small">Makes anew whatever is missing: keys, records, certificates. What is there stays.</p></div>
            <Button icon="refresh" onClick={() => setUpAgain(d, reload)}>Set up again</Button>
          </div>
        )}
        {can('delete_domain') && (
          <div class="row-between">
            <div><strong>Delete</strong><p class="muted small">Takes the domain, its mailboxes and all their mail away, for good.</p></div>
            <Button look="danger" icon="trash" onClick={() => deleteDomain(d)}>Delete the domain</Button>
          </div>
        )}
        {d.status === 'deleting' && <Notice>It is being deleted.</Notice>}
      </div>
    </Card>
  )
}

import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { Button, Card, Dialog, Empty, Form, Page, Secret, Show, TextField, Time } from '../../ui'
import { FilterFields, type Filters } from './filters'
import { HeaderFields, sentHeaders, twice, type Header } from './headers'
import { WebhookTabs } from './tabs'
import { EventChoice, saidEvents, WebhookBadge, type Webhook } from './types'

export function Webhooks() {
  const webhooks = useQuery('list_webhooks', {})
  const [adding, setAdding] = useState(false)
  const full = webhooks.data && webhooks.data.count >= webhooks.data.limit
  const add = can('create_webhook') && <Button look="primary" icon="plus" disabled={!!full} onClick={() => setAdding(true)}>Add webhook</Button>
  return (
    <Page title="Webhooks" intro="Get an HTTP request for every event, signed and retried." tabs={<WebhookTabs current="endpoints" />} actions={add}>
      <Card flush>
        <Show of={webhooks}>
          {({ data }) => data.length === 0
            ? <Empty icon="hook" title="No webhooks yet" action={add}>{can('create_webhook') ? 'Enter an endpoint URL and choose the events to send to it.' : 'Ask the account’s owner or an admin to add one.'}</Empty>
            : <div class="rows">{data.map((w) => <Line key={w.id} of={w} />)}</div>}
        </Show>
      </Card>
      {adding && <Add onClose={() => setAdding(false)} />}
    </Page>
  )
}

function Line({ of: w }: { of: Webhook }) {
  return (
    <a class="line" href={`/webhooks/${w.id}`}>
      <span class="grow truncate"><strong class="mono">{w.url}</strong><br /><span class="muted small truncate">{w.description ? w.description + ' · ' : ''}{saidEvents(w).join(', ')}</span></span>
      <span class="muted small nowrap webhooks-told">{w.last_delivery_at ? <>last delivery <Time of={w.last_delivery_at} /></> : 'no deliveries yet'}</span>
      <WebhookBadge webhook={w} />
    </a>
  )
}

function Add({ onClose }: { onClose: () => void }) {
  const [url, setUrl] = useState(''), [description, setDescription] = useState('')
  const [events, setEvents] = useState<string[]>(['email.received'])
  const [headers, setHeaders] = useState<Header[]>([]), [filters, setFilters] = useState<Filters>(null)
  const [made, setMade] = useState<{ id: string; secret: string }>()
  if (made) {
    return (
      <Dialog title="Webhook added" onClose={() => { onClose(); go(`/webhooks/${made.id}`) }}>
        <div class="stack">
          <Secret name="signing secret" text={made.secret} again="Owners and admins can show it again on the webhook’s page." />
          <p class="muted">Your app uses it to verify that a request comes from Mailstead.</p>
          <div class="form-actions"><Button look="primary" onClick={() => { onClose(); go(`/webhooks/${made.id}`) }}>Continue</Button></div>
        </div>
      </Dialog>
    )
  }
  return (
    <Dialog title="Add webhook" wide onClose={onClose}>
      <Form submit="Add webhook" of={[url, description, events, headers, filters]} disabled={url.trim() === '' || events.length === 0 || twice(headers) !== undefined}
        onSubmit={async () => setMade(await call('create_webhook', { url, events, description: description || undefined, headers: sentHeaders(headers), filters: filters ?? undefined }))}>
        <TextField label="Endpoint URL" name="url" type="url" value={url} onInput={setUrl} placeholder="https://app.example.com/hooks/mail" autoFocus mono />
        <TextField label="Description" name="description" value={description} onInput={setDescription} hint="Optional. Only your team sees it." />
        <EventChoice chosen={events} onChange={setEvents} />
        <FilterFields value={filters} onChange={setFilters} />
        <HeaderFields rows={headers} onChange={setHeaders} />
      </Form>
    </Dialog>
  )
}

// One webhook: how it does, its secret, its attempts, and how to verify them.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { ask, Badge, Button, Card, Dialog, Done, Facts, Form, Hidden, Menu, Notice, Page, Secret, Show, TextField, Time, told } from '../../ui'
import { Attempts } from './attempts'
import { FilterFields, saidFilters } from './filters'
import { HeaderFields, headersOf, sentHeaders, twice } from './headers'
import { disabledReasons, EventChoice, saidEvents, WebhookBadge, type Webhook } from './types'
import { Verify } from './verify'

export function Endpoint({ id }: { id: string }) {
  const webhook = useQuery('get_webhook', { id }, { only: (c) => c.id === id })
  const [editing, setEditing] = useState(false)
  const w = webhook.data
  return (
    <Page title={w ? w.description || new URL(w.url).host : 'Webhook'} back={{ href: '/webhooks', label: 'Webhooks' }} intro={w && <span class="mono">{w.url}</span>}
      actions={w && <Actions of={w} onEdit={() => setEditing(true)} />}>
      <Show of={webhook}>
        {(w) => (
          <>
            {w.status === 'disabled' && w.disabled_reason !== 'manual' && (
              <Notice tone="bad" title="This webhook was disabled.">{w.disabled_reason === 'gone' ? 'The endpoint returned HTTP 410 (Gone).' : 'Too many deliveries in a row failed.'} {can('update_webhook') ? 'Fix the endpoint, send a test, then turn the webhook on.' : 'Once the endpoint is fixed, the account’s owner or an admin can turn the webhook on.'}</Notice>
            )}
            <div class="grid-2"><About of={w} /><Verify /></div>
            <Attempts webhook={w} />
            {editing && <Edit of={w} onClose={() => setEditing(false)} />}
          </>
        )}
      </Show>
    </Page>
  )
}

function Actions({ of: w, onEdit }: { of: Webhook; onEdit: () => void }) {
  const on = w.status === 'enabled'
  const turn = async () => {
    await call('update_webhook', { id: w.id, status: on ? 'disabled' : 'enabled' })
    told(on ? 'Webhook disabled.' : 'Webhook enabled.')
  }
  const test = async () => {
    await call('test_webhook', { id: w.id })
    told('Test event queued. See the result under Deliveries.')
  }
  const remove = () => ask({
    title: 'Delete this webhook?', action: 'Delete', text: `Mailstead stops sending events to ${w.url}. Pending deliveries are dropped.`,
    run: async () => {
      go('/webhooks') // first, since this page reads the webhook again when the stream tells of its deletion
      await call('delete_webhook', { id: w.id })
      told('Webhook deleted.')
    },
  })
  return (
    <>
      {can('test_webhook') && <Button icon="bolt" onClick={test}>Send test</Button>}
      {can('update_webhook') && (
        <Menu label="More actions">
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Edit</Button>
          <Button look="ghost" small icon={on ? 'pause' : 'play'} onClick={turn}>{on ? 'Turn off' : 'Turn on'}</Button>
          <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
        </Menu>
      )}
    </>
  )
}

function About({ of: w }: { of: Webhook }) {
  const [secret, setSecret] = useState<string>()
  const rotate = () => ask({
    title: 'Rotate the signing secret?', action: 'Rotate secret', danger: false, text: 'For 24 hours, requests are signed with both the old and the new secret, so that you can switch without downtime.',
    run: async () => setSecret((await call('rotate_webhook_secret', { id: w.id })).secret),
  })
  return (
    <Card title="Details">
      <div class="stack">
        <Facts of={[
          ['Status', <WebhookBadge webhook={w} />],
          ['Events', <span class="chips">{saidEvents(w).map((e) => <Badge plain key={e}>{e}</Badge>)}</span>],
          ['Mailboxes and domains', saidFilters(w.filters)],
          ['Headers', Object.keys(w.headers).length > 0 && <span class="chips">{headersOf(w.headers).map((h) => <Badge plain key={h.name}>{h.name}: {h.value}</Badge>)}</span>],
          ['Signing secret', can('get_webhook_secret') ? <Hidden hint={`whsec_…${w.secret_hint}`} read={async () => (await call('get_webhook_secret', { id: w.id })).secret} /> : `…${w.secret_hint}`],
          ['Last delivery', <Time of={w.last_delivery_at} />],
          ['Last successful delivery', <Time of={w.last_success_at} />],
          ['Consecutive failures', w.consecutive_failures || undefined],
          ['Disabled', w.disabled_at && <><Time of={w.disabled_at} />{w.disabled_reason && ': ' + disabledReasons[w.disabled_reason]}</>],
          ['Created', <Time of={w.created_at} form="date" />],
          ['API version', w.api_version],
        ]} />
        {can('rotate_webhook_secret') && <div class="form-actions"><Button icon="refresh" onClick={rotate}>Rotate secret</Button></div>}
      </div>
      {secret && <Dialog title="New signing secret" onClose={() => setSecret(undefined)}><div class="stack"><Secret name="signing secret" text={secret} again="You can show it again on this page at any time." /><Done /></div></Dialog>}
    </Card>
  )
}

/** Where a URL leads, without its path; the URL itself while it is none. */
function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin : url
}

function Edit({ of: w, onClose }: { of: Webhook; onClose: () => void }) {
  const [was] = useState(w) // a delivery in the meantime changes the webhook, but nothing of this
  const [url, setUrl] = useState(w.url), [description, setDescription] = useState(w.description ?? ''), [events, setEvents] = useState(w.events)
  const [headers, setHeaders] = useState(headersOf(w.headers)), [filters, setFilters] = useState(w.filters)
  const moved = URL.canParse(url) && originOf(url) !== originOf(was.url)
  const differs = (a: unknown, b: unknown) => JSON.stringify(a) !== JSON.stringify(b)
  const newHeaders = differs(headers, headersOf(was.headers))
  const submit = async () => {
    await call('update_webhook', {
      id: w.id, url, events, description: description || null,
      ...(newHeaders || moved ? { headers: sentHeaders(headers) } : {}), ...(differs(filters, was.filters) ? { filters } : {}),
    })
    told(moved ? 'Saved. The webhook has a new signing secret.' : 'Saved.')
    onClose()
  }
  return (
    <Dialog title="Edit webhook" wide onClose={onClose}>
      <Form submit="Save" of={[url, description, events, headers, filters]} disabled={events.length === 0 || twice(headers) !== undefined || (moved && headers.some((h) => h.value.startsWith('…')))} onSubmit={submit}>
        <TextField label="Endpoint URL" name="url" type="url" value={url} onInput={setUrl} mono hint={moved ? 'Another host or port gets a new signing secret.' : undefined} />
        <TextField label="Description" name="description" value={description} onInput={setDescription} />
        <EventChoice chosen={events} onChange={setEvents} />
        <FilterFields value={filters} onChange={setFilters} />
        <HeaderFields rows={headers} onChange={setHeaders} moved={moved} />
      </Form>
    </Dialog>
  )
}

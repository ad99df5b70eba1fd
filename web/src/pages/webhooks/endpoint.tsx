// One webhook: how it does, its secret, its attempts, and how to verify them.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { ask, Badge, Button, Card, Dialog, Facts, Form, Hidden, Menu, Notice, Page, Secret, Show, TextField, Time, told, words } from '../../ui'
import { Attempts } from './attempts'
import { EventChoice, WebhookBadge, type Webhook } from './types'
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
              <Notice tone="bad" title="It was switched off.">{w.disabled_reason === 'gone' ? 'Your program answered 410, which says that it wants no more.' : 'Too many events in a row could not be delivered.'} {can('update_webhook') ? 'Mend it, send a test, and switch it on.' : 'Once it is mended, the account’s owner or an admin can switch it on.'}</Notice>
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
    told(on ? 'It is off.' : 'It is on.')
  }
  const remove = () => ask({
    title: 'Delete this webhook?', action: 'Delete', text: `${w.url} is not called any more. What was not delivered yet never will be.`,
    run: async () => {
      await call('delete_webhook', { id: w.id })
      go('/webhooks')
      told('The webhook was deleted.')
    },
  })
  return (
    <>
      {can('test_webhook') && <Button icon="bolt" onClick={async () => told((await call('test_webhook', { id: w.id })).message)}>Send a test</Button>}
      {can('update_webhook') && (
        <Menu label="More actions">
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Change</Button>
          <Button look="ghost" small icon={on ? 'pause' : 'play'} onClick={turn}>{on ? 'Switch off' : 'Switch on'}</Button>
          <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
        </Menu>
      )}
    </>
  )
}

function About({ of: w }: { of: Webhook }) {
  const [secret, setSecret] = useState<string>()
  const rotate = () => ask({
    title: 'Make a new secret?', action: 'Make it', danger: false, text: 'Calls are signed with both secrets for a while, so that your program can change over.',
    run: async () => setSecret((await call('rotate_webhook_secret', { id: w.id })).secret),
  })
  return (
    <Card title="About it">
      <div class="stack">
        <Facts of={[
          ['State', <WebhookBadge webhook={w} />],
          ['Told of', <span class="webhooks-chips">{w.events.map((e) => <Badge plain key={e}>{e}</Badge>)}</span>],
          ['Secret', can('get_webhook_secret') ? <Hidden hint={`whsec_…${w.secret_hint}`} read={async () => (await call('get_webhook_secret', { id: w.id })).secret} /> : `…${w.secret_hint}`],
          ['Last called', <Time of={w.last_delivery_at} />],
          ['Last success', <Time of={w.last_success_at} />],
          ['Failed in a row', w.consecutive_failures || undefined],
          ['Switched off', w.disabled_at && <><Time of={w.disabled_at} />, {words(w.disabled_reason ?? '').toLowerCase()}</>],
          ['Since', <Time of={w.created_at} form="date" />],
          ['Version', w.api_version],
        ]} />
        {can('rotate_webhook_secret') && <div class="form-actions"><Button icon="refresh" onClick={rotate}>Make a new secret</Button></div>}
      </div>
      {secret && <Dialog title="The new secret" onClose={() => setSecret(undefined)}><Secret name="signing secret" text={secret} again="You can show it again on this page at any time." /></Dialog>}
    </Card>
  )
}

function Edit({ of: w, onClose }: { of: Webhook; onClose: () => void }) {
  const [url, setUrl] = useState(w.url), [description, setDescription] = useState(w.description ?? ''), [events, setEvents] = useState(w.events)
  const submit = async () => {
    await call('update_webhook', { id: w.id, url, events, description: description || null })
    told('Saved.')
    onClose()
  }
  return (
    <Dialog title="Change the webhook" wide onClose={onClose}>
      <Form submit="Save" disabled={events.length === 0} onSubmit={submit}>
        <TextField label="Endpoint URL" name="url" type="url" value={url} onInput={setUrl} mono />
        <TextField label="Description" name="description" value={description} onInput={setDescription} />
        <EventChoice chosen={events} onChange={setEvents} />
      </Form>
    </Dialog>
  )
}

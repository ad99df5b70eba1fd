// The attempts to tell a webhook of events, each with what was said and what came back.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { usePages, useQuery } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, Button, Card, Code, Copyable, Dialog, Empty, Facts, LongList, Select, Show, theirs, Time, told, type Tone } from '../../ui'
import { eventTypes, type Webhook } from './types'

type Delivery = Schemas['Delivery']
type Outcome = Delivery['outcome'] | ''

const tones: Record<Delivery['outcome'], Tone> = { success: 'ok', failed: 'bad', pending: 'none' }
const outcomes: [Outcome, string][] = [['', 'Any outcome'], ['success', 'Delivered'], ['failed', 'Failed'], ['pending', 'Pending']]

const outcomeNames: Record<Delivery['outcome'], string> = { success: 'delivered', failed: 'failed', pending: 'pending' }
const triggers: Record<Delivery['trigger'], string> = { event: 'Event', retry: 'Automatic retry', test: 'Test', redeliver: 'Redelivery' }
const errors: Record<NonNullable<Delivery['error_code']>, string> = {
  timeout: 'Timeout', dns: 'DNS lookup failed', connect: 'Connection failed', tls: 'TLS error', http_status: 'Unsuccessful HTTP status', blocked_address: 'IP address not allowed',
}

function OutcomeBadge({ outcome }: { outcome: Delivery['outcome'] }) {
  return <Badge tone={tones[outcome]}>{outcomeNames[outcome]}</Badge>
}

export function Attempts({ webhook: w }: { webhook: Webhook }) {
  const outcome = (params.value.get('outcome') ?? '') as Outcome, type = params.value.get('type') ?? ''
  const pages = usePages('list_webhook_deliveries', { id: w.id, limit: 50, outcome: outcome || undefined, event_type: type || undefined }, (d) => d.id)
  const [open, setOpen] = useState<Delivery>()
  return (
    <Card title="Deliveries" flush actions={
      <>
        <Select label="Outcome" hideLabel value={outcome} onChange={(outcome) => setParams({ outcome })} options={outcomes} />
        <Select label="Event" hideLabel value={type} onChange={(type) => setParams({ type })} options={[['', 'Any event'], ...eventTypes.map(([t]) => [t, t] as const), ['test.ping', 'test.ping']]} />
      </>
    }>
      <LongList pages={pages} idOf={(d) => d.id} height={48} label="Deliveries" row={(d) => <Line of={d} onOpen={() => setOpen(d)} />}
        empty={<Empty icon="hook" title={outcome || type ? 'No deliveries match' : 'No deliveries yet'}>{outcome || type || !can('test_webhook') ? undefined : 'Send a test event to check that your endpoint works.'}</Empty>} />
      {open && <Attempt of={open} webhook={w} onClose={() => setOpen(undefined)} />}
    </Card>
  )
}

function answered(d: Delivery): string {
  if (d.http_status !== null) return `HTTP ${d.http_status} in ${d.duration_ms} ms`
  return d.error ?? (d.outcome === 'pending' ? 'not sent yet' : '')
}

function Line({ of: d, onOpen }: { of: Delivery; onOpen: () => void }) {
  return (
    <button type="button" class="line webhooks-row" onClick={onOpen}>
      <span class="webhooks-state"><OutcomeBadge outcome={d.outcome} /></span>
      <code class="webhooks-type truncate">{d.event_type}</code>
      <span class="grow truncate muted webhooks-answer">{theirs(answered(d))}{d.attempt > 1 && `, attempt ${d.attempt}`}{d.trigger === 'redeliver' && ', redelivery'}</span>
      <span class="webhooks-when muted small"><Time of={d.attempted_at} form="short" /></span>
    </button>
  )
}

function Attempt({ of: d, webhook: w, onClose }: { of: Delivery; webhook: Webhook; onClose: () => void }) {
  const event = useQuery('list_events', { event_id: d.event_id })
  const redeliver = async () => {
    await call('redeliver_event', { id: w.id, event_id: d.event_id })
    told('Redelivery queued.')
    onClose()
  }
  return (
    <Dialog title={d.event_type} wide onClose={onClose}>
      <div class="stack">
        <Facts of={[
          ['Outcome', <OutcomeBadge outcome={d.outcome} />],
          ['Response', answered(d)],
          ['Error', d.error_code && errors[d.error_code]],
          ['Attempt', `${d.attempt} of 7`],
          ['Trigger', triggers[d.trigger]],
          ['Sent', <Time of={d.attempted_at} form="at" />],
          ['Next attempt', d.next_attempt_at && <Time of={d.next_attempt_at} />],
          ['Endpoint URL', d.url],
          ['Event ID', <Copyable text={d.event_id} />],
        ]} />
        <div class="stack-tight">
          <h3>Request body</h3>
          <Show of={event} lines={3}>
            {({ data: [e] }) => e ? <Code label="Request" text={JSON.stringify(e, null, 2)} wraps /> : <p class="muted">Not available. Events are kept for 30 days.</p>}
          </Show>
        </div>
        {d.response_excerpt && <div class="stack-tight"><h3>Response body</h3><Code label="Response" text={d.response_excerpt} wraps /></div>}
        {can('redeliver_event') && <div class="form-actions"><Button icon="refresh" onClick={redeliver}>Redeliver</Button></div>}
      </div>
    </Dialog>
  )
}

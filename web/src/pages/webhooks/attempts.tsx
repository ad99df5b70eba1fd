// The attempts to tell a webhook of events, each with what was said and what came back.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { usePages, useQuery } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, Button, Card, Code, Copyable, Dialog, Empty, Facts, LongList, Select, Show, Time, told, words, type Tone } from '../../ui'
import { eventTypes, type Webhook } from './types'

type Delivery = Schemas['Delivery']
type Outcome = Delivery['outcome'] | ''

const tones: Record<Delivery['outcome'], Tone> = { success: 'ok', failed: 'bad', pending: 'none' }
const outcomes: [Outcome, string][] = [['', 'Any outcome'], ['success', 'Delivered'], ['failed', 'Failed'], ['pending', 'Waiting']]

export function Attempts({ webhook: w }: { webhook: Webhook }) {
  const outcome = (params.value.get('outcome') ?? '') as Outcome, type = params.value.get('type') ?? ''
  const pages = usePages('list_webhook_deliveries', { id: w.id, limit: 50, outcome: outcome || undefined, event_type: type || undefined }, (d) => d.id)
  const [open, setOpen] = useState<Delivery>()
  return (
    <Card title="Attempts" flush actions={
      <>
        <Select label="Outcome" hideLabel value={outcome} onChange={(outcome) => setParams({ outcome })} options={outcomes} />
        <Select label="Event" hideLabel value={type} onChange={(type) => setParams({ type })} options={[['', 'Any event'], ...eventTypes.map(([t]) => [t, t] as const), ['test.ping', 'test.ping']]} />
      </>
    }>
      <LongList pages={pages} idOf={(d) => d.id} height={48} label="Attempts" row={(d) => <Line of={d} onOpen={() => setOpen(d)} />}
        empty={<Empty icon="hook" title={outcome || type ? 'No attempt fits' : 'No attempt yet'}>{outcome || type || !can('test_webhook') ? undefined : 'Send a test to see how your program answers.'}</Empty>} />
      {open && <Attempt of={open} webhook={w} onClose={() => setOpen(undefined)} />}
    </Card>
  )
}

function answered(d: Delivery): string {
  if (d.http_status !== null) return `answered ${d.http_status} in ${d.duration_ms} ms`
  return d.error ?? (d.outcome === 'pending' ? 'not tried yet' : '')
}

function Line({ of: d, onOpen }: { of: Delivery; onOpen: () => void }) {
  return (
    <button type="button" class="line webhooks-row" onClick={onOpen}>
      <span class="webhooks-state"><Badge tone={tones[d.outcome]}>{d.outcome}</Badge></span>
      <code class="webhooks-type truncate">{d.event_type}</code>
      <span class="grow truncate muted webhooks-answer">{answered(d)}{d.attempt > 1 && `, attempt ${d.attempt}`}{d.trigger === 'redeliver' && ', by hand'}</span>
      <span class="webhooks-when muted small"><Time of={d.attempted_at} form="short" /></span>
    </button>
  )
}

function Attempt({ of: d, webhook: w, onClose }: { of: Delivery; webhook: Webhook; onClose: () => void }) {
  const event = useQuery('list_events', { event_id: d.event_id })
  const redeliver = async () => {
    told((await call('redeliver_event', { id: w.id, event_id: d.event_id })).message)
    onClose()
  }
  return (
    <Dialog title={d.event_type} wide onClose={onClose}>
      <div class="stack">
        <Facts of={[
          ['Outcome', <Badge tone={tones[d.outcome]}>{d.outcome}</Badge>],
          ['Answer', answered(d)],
          ['Fault', d.error_code && words(d.error_code)],
          ['Attempt', `${d.attempt} of 7, by ${d.trigger}`],
          ['When', <Time of={d.attempted_at} form="at" />],
          ['Next attempt', d.next_attempt_at && <Time of={d.next_attempt_at} />],
          ['Address', d.url],
          ['Event', <Copyable text={d.event_id} />],
        ]} />
        <div class="stack-tight">
          <h3>What was sent</h3>
          <Show of={event} lines={3}>
            {({ data: [e] }) => e ? <Code label="Request" text={JSON.stringify(e, null, 2)} /> : <p class="muted">{d.event_type === 'test.ping' ? 'A test: it says that the webhook works, and no more.' : 'The event is older than 30 days.'}</p>}
          </Show>
        </div>
        {d.response_excerpt && <div class="stack-tight"><h3>What came back</h3><Code label="Answer" text={d.response_excerpt} /></div>}
        {can('redeliver_event') && <div class="form-actions"><Button icon="refresh" onClick={redeliver}>Send it again</Button></div>}
      </div>
    </Dialog>
  )
}

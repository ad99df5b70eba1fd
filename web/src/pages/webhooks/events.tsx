// Everything that happened, whether or not a webhook was told of it.
import { useState } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { params, setParams } from '../../router'
import { Card, Code, Dialog, Empty, LongList, Page, Select, Time } from '../../ui'
import { WebhookTabs } from './tabs'
import { eventTypes } from './types'

type Event = Schemas['EventEnvelope']

export function Events() {
  const type = params.value.get('type') ?? ''
  const pages = usePages('list_events', { limit: 50, type: type || undefined }, (e) => e.id)
  const [open, setOpen] = useState<Event>()
  return (
    <Page title="Events" heading="Webhooks" intro="All events of the last 30 days, whether or not they were sent to a webhook." tabs={<WebhookTabs current="events" />}>
      <div class="webhooks-choice"><Select label="Event" value={type} onChange={(type) => setParams({ type })} options={[['', 'Any event'], ...eventTypes.map(([t]) => [t, t] as const)]} /></div>
      <Card flush>
        <LongList pages={pages} idOf={(e) => e.id} height={48} narrowHeight={64} label="Events" row={(e) => <Line of={e} onOpen={() => setOpen(e)} />} empty={<Empty icon="bolt" title={type ? 'No events match' : 'No events yet'} />} />
      </Card>
      {open && <Dialog title={open.type} wide onClose={() => setOpen(undefined)}><Code label="Event" text={JSON.stringify(open, null, 2)} wraps /></Dialog>}
    </Page>
  )
}

function Line({ of: e, onOpen }: { of: Event; onOpen: () => void }) {
  return (
    <button type="button" class="line webhooks-row" onClick={onOpen}>
      <span class="webhooks-what"><code class="webhooks-type truncate">{e.type}</code><span class="grow truncate muted" dir="auto">{about(e.data)}</span></span>
      <span class="webhooks-when muted small"><Time of={e.created} form="short" /></span>
    </button>
  )
}

/** What an event is about, in the words of its data. */
function about(data: unknown): string {
  const d = (data ?? {}) as Record<string, unknown>
  return [d.email ?? d.mailbox ?? d.recipient ?? d.domain, d.subject].filter((v) => typeof v === 'string').join(' · ')
}

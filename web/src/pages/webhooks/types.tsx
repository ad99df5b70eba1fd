// The events that a webhook can be told of.
import type { Schemas } from '../../api/client'
import { Badge, Check } from '../../ui'
import meanings from './events.json'

export type Webhook = Schemas['Webhook']

/** The types with what each means, as many as the server has (wording_test.go compares them). */
export const eventTypes: [type: string, means: string][] = Object.entries(meanings)

const all = '*' // in place of a list of types

/** The events of a webhook, as they are shown. */
export function saidEvents(w: Webhook): string[] {
  return w.events.includes(all) ? ['all events'] : w.events
}

export function EventChoice({ chosen, onChange }: { chosen: string[]; onChange: (types: string[]) => void }) {
  const every = chosen.includes(all)
  return (
    <fieldset class="webhooks-events">
      <legend>Events</legend>
      <Check label="All events" hint="Also those that later versions add." checked={every} onChange={(on) => onChange(on ? [all] : [])} />
      {eventTypes.map(([type, means]) => (
        <Check key={type} label={<code>{type}</code>} hint={means} checked={every || chosen.includes(type)} disabled={every} onChange={(on) => onChange(on ? [...chosen, type] : chosen.filter((t) => t !== type))} />
      ))}
    </fieldset>
  )
}

export const disabledReasons = { manual: 'by your team', consecutive_failures: 'too many failed deliveries', gone: 'the endpoint returned HTTP 410 (Gone)' } as const

export function WebhookBadge({ webhook: w }: { webhook: Webhook }) {
  if (w.status === 'disabled') return <Badge tone={w.disabled_reason === 'manual' ? 'none' : 'bad'}>disabled</Badge>
  if (w.consecutive_failures > 0 || w.last_delivery_at !== w.last_success_at) return <Badge tone="warn">failing</Badge>
  return <Badge tone="ok">enabled</Badge>
}

// The events that a webhook can be told of.
import type { Schemas } from '../../api/client'
import { Badge, Check, PartError } from '../../ui'
import meanings from './events.json'

export type Webhook = Schemas['Webhook']

/** The types with what each means, as many as the server has (wording_test.go compares them). */
export const eventTypes: [type: string, means: string][] = Object.entries(meanings)

const all = '*' // in place of a list of types

/** The events of a webhook, as they are shown. */
export function saidEvents(w: Webhook): string[] {
  return w.events.includes(all) ? ['all events'] : w.events
}

const groups: [name: string, has: (type: string) => boolean][] = [
  ['Incoming mail', (type) => ['email.received', 'email.rule_matched'].includes(type)],
  ['Approvals', (type) => ['email.held', 'email.approved', 'email.rejected'].includes(type)],
  ['Mailboxes', (type) => type.startsWith('email_user.')],
  ['Domains', (type) => /^(domain|zone)\./.test(type)],
  ['Server', (type) => type.startsWith('host.')],
  ['Outgoing mail', () => true],
]

/** The types of each group, in the order in which they are shown. */
const grouped = groups.map(([name]) => ({ name, types: eventTypes.filter(([type]) => groups.find(([, has]) => has(type))![0] === name) }))
grouped.splice(1, 0, grouped.pop()!) // what goes out stands beside what comes in

export function EventChoice({ chosen, onChange }: { chosen: string[]; onChange: (types: string[]) => void }) {
  const every = chosen.includes(all)
  return (
    <fieldset class="webhooks-events">
      <legend>Events</legend>
      <PartError name="events" />
      <Check label={<>All events <code>{all}</code></>} hint="Also those that later versions add." checked={every} onChange={(on) => onChange(on ? [all] : [])} />
      {grouped.map(({ name, types }) => (
        <fieldset key={name}>
          <legend>{name}</legend>
          {types.map(([type, means]) => (
            <Check key={type} label={<code>{type}</code>} hint={means} checked={every || chosen.includes(type)} disabled={every} onChange={(on) => onChange(on ? [...chosen, type] : chosen.filter((t) => t !== type))} />
          ))}
        </fieldset>
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

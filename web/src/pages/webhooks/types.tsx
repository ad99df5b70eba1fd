// The events that a webhook can be told of.
import type { Schemas } from '../../api/client'
import { Badge, Check } from '../../ui'

export type Webhook = Schemas['Webhook']

export const eventTypes: [type: string, means: string][] = [
  ['email.received', 'A message arrived in a mailbox.'],
  ['message.relayed', 'A relay accepted a message and gave it a new Message-ID.'],
  ['email.delivered', 'A recipient’s mail server accepted a message. Not for mail through a relay.'],
  ['email.delayed', 'A recipient’s mail server did not accept a message yet.'],
  ['email.bounced', 'A sent message bounced.'],
  ['email.complained', 'A recipient reported a message as spam.'],
  ['sending.alert', 'Sending is near a limit, much of it bounces, or a receiver blocks this server.'],
  ['email_user.paused', 'A mailbox or domain can no longer send, because too much of its mail bounced or was reported as spam.'],
  ['domain.created', 'A domain was added.'],
  ['domain.ready', 'A domain is ready for mail.'],
  ['domain.dns_failed', 'A domain’s DNS records are missing or wrong.'],
  ['host.alert', 'Something about this server needs attention, or is resolved. Only for its operator.'],
  ['email_user.created', 'A mailbox was created.'],
  ['email_user.deleted', 'A mailbox was deleted.'],
]

export function EventChoice({ chosen, onChange }: { chosen: string[]; onChange: (types: string[]) => void }) {
  return (
    <fieldset class="webhooks-events">
      <legend>Events</legend>
      {eventTypes.map(([type, means]) => (
        <Check key={type} label={<code>{type}</code>} hint={means} checked={chosen.includes(type)} onChange={(on) => onChange(on ? [...chosen, type] : chosen.filter((t) => t !== type))} />
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

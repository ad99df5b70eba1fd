// What an owner or admin sets for a mailbox, in the tabs of its page.
import { call, type Input } from '../../api/client'
import { Badge, Button, Card, Check, TextArea, TextField, told, type Draft } from '../../ui'
import { named, SendFields } from '../policies/policy'
import { fromMiB, toMiB, type MailboxOut } from './words'

/** The settings of a mailbox as their fields have them. */
export interface MailboxForm {
  name: string; quota: string; daily: string; forward: string; keep: boolean; relay: string; footer: string
  send: MailboxOut['send_policy']['send']; allowed: string; aliases: string; recovery: string
}

export function formOf(u: MailboxOut): MailboxForm {
  return {
    name: u.name, quota: toMiB(u.quota_bytes), daily: u.daily_send_limit?.toString() ?? '', forward: u.forward_to ?? '', keep: u.forward_keep_copy, relay: u.relay ?? '', footer: u.footer ?? '',
    send: u.send_policy.send, allowed: u.send_policy.allowed_recipients.join('\n'), aliases: u.aliases.join('\n'), recovery: u.recovery_email ?? '',
  }
}

/** What was changed, as the API takes it: somebody else may have changed the rest meanwhile. */
export function changeOf(changes: Partial<MailboxForm>, f: MailboxForm): Omit<Input<'update_email_user'>, 'user_id'> {
  const has = (...names: (keyof MailboxForm)[]) => names.some((name) => name in changes)
  return {
    ...(has('name') && { name: f.name }),
    ...(has('quota') && { quota_bytes: fromMiB(f.quota) ?? null }),
    ...(has('daily') && { daily_send_limit: f.daily === '' ? null : Number(f.daily) }),
    ...(has('forward') && { forward_to: f.forward.trim() || null }),
    ...(has('keep') && { forward_keep_copy: f.keep }),
    ...(has('relay') && { relay: f.relay.trim() || null }),
    ...(has('footer') && { footer: f.footer || null }),
    ...(has('send', 'allowed') && { send_policy: { send: f.send, allowed_recipients: f.send === 'allow' || f.send === 'deny' ? [] : named(f.allowed) } }), // elsewhere they have no effect
    ...(has('aliases') && { aliases: f.aliases.split(/[\s,]+/).filter(Boolean) }),
    ...(has('recovery') && { recovery_email: f.recovery.trim() || null }),
  }
}

interface FieldsProps { of: MailboxOut; draft: Draft<MailboxForm> }

export function Settings({ of: u, draft: { values: f, set } }: FieldsProps) {
  return (
    <Card title="Settings">
      <div class="form">
        <TextField label="Display name" name="name" value={f.name} onInput={(name) => set({ name })} />
        <div class="grid-2">
          {u.type === 'hosted' && <TextField label="Quota" name="quota_bytes" type="number" min={1} value={f.quota} onInput={(quota) => set({ quota })} after="MiB" hint="Leave empty for no limit." />}
          <TextField label="Daily send limit" name="daily_send_limit" type="number" min={0} value={f.daily} onInput={(daily) => set({ daily })} hint="Recipients per day: a message to three people counts as three. Leave empty for no limit." />
        </div>
        {u.type === 'hosted' && <TextField label="Forward to" name="forward_to" type="email" value={f.forward} onInput={(forward) => set({ forward })} hint="Leave empty to turn off forwarding." />}
        {u.type === 'hosted' && f.forward.trim() !== '' && <Check label="Keep a copy here" checked={f.keep} onChange={(keep) => set({ keep })} />}
        <TextField label="Relay" name="relay" value={f.relay} onInput={(relay) => set({ relay })} hint="Name of the relay that sends this mailbox’s mail. Leave empty to use the domain’s route." />
        <TextArea label="Footer" name="footer" value={f.footer} onInput={(footer) => set({ footer })} rows={3} hint="Added to every message sent from this mailbox." />
      </div>
    </Card>
  )
}

/** What may be sent from a mailbox, whoever sends it. */
export function SendingPolicy({ draft: { values: f, set } }: FieldsProps) {
  return (
    <Card title="Sending policy" note="Applies to mail clients, API tokens, assistants and rules. What an owner or admin sends while signed in here is not limited.">
      <div class="form"><SendFields name="send_policy" send={f.send} allowed={f.allowed} onChange={set} /></div>
    </Card>
  )
}

export function Aliases({ of: u, draft: { values: f, set } }: FieldsProps) {
  return (
    <Card title="Aliases" note="Other addresses of this mailbox: it receives their mail, and can send from them.">
      <TextArea label="Addresses" name="aliases" value={f.aliases} onInput={(aliases) => set({ aliases })} rows={4} placeholder={`sales@${u.domain}`} hint="One per line." />
    </Card>
  )
}

export function RecoveryAddress({ of: u, draft: { values: f, changes, set } }: FieldsProps) {
  const confirm = async () => {
    await call('update_email_user', { user_id: u.id, recovery_email: u.recovery_email })
    told('A mail with a link is on its way.')
  }
  return (
    <Card title="Recovery address" note="Where a link goes when the password is forgotten." actions={u.recovery_email && <Badge tone={u.recovery_confirmed ? 'ok' : 'warn'}>{u.recovery_confirmed ? 'Confirmed' : 'Not confirmed'}</Badge>}>
      <div class="form">
        <TextField label="Email" name="recovery_email" type="email" value={f.recovery} onInput={(recovery) => set({ recovery })} hint="An address that can be read without this mailbox’s password. It gets a link to confirm it." />
        {u.recovery_email && !u.recovery_confirmed && !('recovery' in changes) && <div class="row"><Button small onClick={confirm}>Send the link again</Button></div>}
      </div>
    </Card>
  )
}

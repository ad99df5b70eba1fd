// What may be sent with a token or a password, or from a mailbox, and what changes once strangers'
// mail was read.
import { session, type Schemas } from '../../api/client'
import { Check, Facts, Select, TextArea } from '../../ui'
import { locale, t, type Key } from '../../words'

type Policy = Schemas['Policy']
type Send = Policy['send']

const sends: Send[] = ['allow', 'reply_only', 'approval', 'deny']

const meanings: Record<Send, Key> = { allow: 'policy.means.allow', reply_only: 'policy.means.reply_only', approval: 'policy.means.approval', deny: 'policy.means.deny' }

/** What the allowed recipients are, and what they are while the holder is tainted too. */
const forAllowed: Record<Exclude<Send, 'deny'>, [now: Key, tainted: Key]> = {
  allow: ['policy.allowed.allow', 'policy.allowed.allow.tainted'], reply_only: ['policy.allowed.reply_only', 'policy.allowed.reply_only.tainted'],
  approval: ['policy.allowed.approval', 'policy.allowed.approval.tainted'],
}

const lasts = [3600, 86_400, 604_800] // seconds that are offered; the server takes none below the first

/** When a taint ends. seconds is what a policy has, as text; '' is never by itself. */
function endOf(seconds: string): string {
  return seconds === '' ? t('policy.ends.cleared') : t('policy.ends.after', { span: spanOf(Number(seconds)) })
}

/** A policy as a form has it. */
export interface PolicyForm { send: Send; allowed: string; taint: boolean; seconds: string; trusted: string }

export const noPolicy: PolicyForm = { send: 'allow', allowed: '', taint: false, seconds: '', trusted: '' }

/** A policy as it is, for a form that begins with it. */
export function formOf(p: Policy): PolicyForm {
  return { send: p.send, allowed: p.allowed_recipients.join('\n'), taint: p.taint, seconds: String(p.taint_seconds ?? ''), trusted: p.trusted_senders.join('\n') }
}

/** The addresses and domains of a field. */
export function named(text: string): string[] {
  return text.split(/[\s,;]+/).filter(Boolean)
}

/** Whether allowed recipients have an effect. */
function allows(send: Send, taint: boolean): boolean {
  return send !== 'deny' && (send !== 'allow' || taint)
}

/** Whether a taint may end by itself: else everything could be sent once the time has passed. */
function ends(send: Send): boolean {
  return send !== 'allow'
}

/** A form as the API takes it; nothing for one that limits nothing. */
export function policyOf(f: PolicyForm): Schemas['PolicyInput'] | undefined {
  if (f.send === 'allow' && !f.taint) return undefined
  return {
    send: f.send, taint: f.taint, allowed_recipients: allows(f.send, f.taint) ? named(f.allowed) : [],
    ...(f.taint && { trusted_senders: named(f.trusted), ...(ends(f.send) && f.seconds && { taint_seconds: Number(f.seconds) }) }),
  }
}

/** What a taint is: of what reads, or of what does nothing but send. */
export function saidTaint(sends = false): string {
  return `${t('policy.careful.hint')} ${sends ? sendsOnly : t('policy.careful.reads')}`
}

const sendsOnly = 'The credential is tainted as soon as a careful password or token of one of the domain’s mailboxes is: then it can write only to the allowed recipients, and to people who are in every message they have read.'

/** The fields of a policy. only: its holder does nothing but send, or but read. */
export function PolicyFields({ of: f, set, only }: { of: PolicyForm; set: (to: PolicyForm) => void; only?: 'send' | 'read' }) {
  const lives = [...new Set(['', ...lasts.map(String), f.seconds])].map((seconds) => [seconds, endOf(seconds)] as const)
  return (
    <>
      {only !== 'read' && <SendFields name="policy" send={f.send} allowed={f.allowed} taint={f.taint} onChange={(change) => set({ ...f, ...change })} />}
      <Check label={t('policy.careful')} checked={f.taint} onChange={(taint) => set({ ...f, taint })}
        hint={saidTaint(only === 'send')} />
      {f.taint && ends(f.send) && <Select label={t('policy.ends')} name="policy.taint_seconds" value={f.seconds} onChange={(seconds) => set({ ...f, seconds })} options={lives} />}
      {f.taint && <TextArea label={t('policy.trusted')} name="policy.trusted_senders" value={f.trusted} onInput={(trusted) => set({ ...f, trusted })} rows={2} hint={`${t('policy.trusted.hint')} ${t('policy.one_each')}`} />}
    </>
  )
}

interface SendProps { name: string; send: Send; allowed: string; taint?: boolean; onChange: (change: { send?: Send; allowed?: string }) => void }

/** The fields of what may be sent, and to whom. name is that of the policy in the API. */
export function SendFields({ name, send, allowed, taint = false, onChange }: SendProps) {
  return (
    <>
      <Select label={t('policy.may_send')} name={name + '.send'} value={send} onChange={(send) => onChange({ send })} options={sends.map((s) => [s, t(`policy.send.${s}`)] as const)} hint={t(meanings[send])} />
      {send !== 'deny' && allows(send, taint) && <TextArea label={t('policy.allowed')} name={name + '.allowed_recipients'} value={allowed} onInput={(allowed) => onChange({ allowed })} rows={2} hint={`${t(forAllowed[send][taint ? 1 : 0])} ${t('policy.one_each')}`} />}
    </>
  )
}

/** Lets what is sent with a token or credential count as the account's own words. Only an owner or admin may. */
export function OwnWords({ checked, onChange }: { checked: boolean; onChange: (own: boolean) => void }) {
  if (!['owner', 'admin'].includes(session.value!.user.role)) return null
  return (
    <Check label="Its mail speaks for your account" checked={checked} onChange={onChange}
      hint="Mail sent with it taints no program that reads it. Leave this off for anything that passes on what strangers wrote, such as a web form." />
  )
}

/** What may be sent, in a word or two. */
export function saidSend({ send }: { send: Send }): string {
  return t(`policy.send.${send}`)
}

/** That what is sent with a token or credential counts as own words, and its policy in a line that opens to the whole of it; nothing for one that limits nothing. */
export function PolicyNote({ of: p, own }: { of: Policy; own?: boolean }) {
  return <>{own && <div class="small">Speaks for your account</div>}<Limits of={p} /></>
}

function Limits({ of: p }: { of: Policy }) {
  if (p.send === 'allow' && !p.taint && p.taint_seconds === null && p.allowed_recipients.length + p.trusted_senders.length === 0) return null
  return (
    <details class="small policies-note">
      <summary>{t(`policy.note.${p.send}`)}{p.taint && `. ${t('policy.note.careful')}`}</summary>
      <Facts of={[
        [t('policy.may_send'), t(meanings[p.send])], [t('policy.allowed'), allows(p.send, p.taint) && p.allowed_recipients.join(', ')],
        [t('policy.trusted'), p.taint && p.trusted_senders.join(', ')], [t('policy.ends'), p.taint && endOf(String(p.taint_seconds ?? ''))],
      ]} />
    </details>
  )
}

const units = [[86_400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']] as const

/** Seconds in the largest unit that has no remainder. */
function spanOf(seconds: number): string {
  const [size, unit] = units.find(([size]) => seconds % size === 0)!
  return new Intl.NumberFormat(locale.value, { style: 'unit', unit, unitDisplay: 'long' }).format(seconds / size)
}

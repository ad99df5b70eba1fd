// What may be sent with a token or a password, or from a mailbox, and what changes once strangers'
// mail was read.
import { session, type Schemas } from '../../api/client'
import { Check, Facts, Select, TextArea } from '../../ui'

type Policy = Schemas['Policy']
type Send = Policy['send']

const sends: [Send, string][] = [['allow', 'Everything'], ['reply_only', 'Answers only'], ['approval', 'After approval'], ['deny', 'Nothing']]

const meanings: Record<Send, string> = {
  allow: 'Mail to anyone, within the sending limits.',
  reply_only: 'Only answers to mail that arrived in the mailbox, and only to the people in that mail.',
  approval: 'Each message waits until an owner or admin approves it.',
  deny: 'No mail can be sent.',
}

const forAllowed: Record<Send, string> = { allow: 'These can get mail', reply_only: 'These can be added to an answer', approval: 'Mail to these alone needs no approval', deny: '' }

const oneEach = 'One on each line: an address, or @example.com for a whole domain.'

const lasts = [3600, 86_400, 604_800] // seconds that are offered; the server takes none below the first

/** When a taint ends. seconds is what a policy has, as text; '' is never by itself. */
function endOf(seconds: string): string {
  return seconds === '' ? 'When an owner or admin clears it' : `${spanOf(Number(seconds))} after it last read a stranger’s message`
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

const reads = 'Once the program has read one, it is tainted: it can write to the allowed recipients, and to people who are in every message it has read. It can read, mark and file mail, and do little else. What another program with this setting has read in the same mailbox counts too.'
const sendsOnly = 'The credential is tainted as soon as a careful password or token of one of the domain’s mailboxes is: then it can write only to the allowed recipients, and to people who are in every message they have read.'

/** The fields of a policy. only: its holder does nothing but send, or but read. */
export function PolicyFields({ of: f, set, only }: { of: PolicyForm; set: (to: PolicyForm) => void; only?: 'send' | 'read' }) {
  const lives = [...new Set(['', ...lasts.map(String), f.seconds])].map((seconds) => [seconds, endOf(seconds)] as const)
  return (
    <>
      {only !== 'read' && <SendFields name="policy" send={f.send} allowed={f.allowed} taint={f.taint} onChange={(change) => set({ ...f, ...change })} />}
      <Check label="Be careful after reading strangers’ mail" checked={f.taint} onChange={(taint) => set({ ...f, taint })}
        hint={`A stranger’s message can tell a program what to do. ${only === 'send' ? sendsOnly : reads}`} />
      {f.taint && ends(f.send) && <Select label="Taint ends" name="policy.taint_seconds" value={f.seconds} onChange={(seconds) => set({ ...f, seconds })} options={lives} />}
      {f.taint && <TextArea label="Trusted senders" name="policy.trusted_senders" value={f.trusted} onInput={(trusted) => set({ ...f, trusted })} rows={2} hint={`Their mail does not taint if DMARC proves that it is theirs. Nor does what your own people write here. ${oneEach}`} />}
    </>
  )
}

interface SendProps { name: string; send: Send; allowed: string; taint?: boolean; onChange: (change: { send?: Send; allowed?: string }) => void }

/** The fields of what may be sent, and to whom. name is that of the policy in the API. */
export function SendFields({ name, send, allowed, taint = false, onChange }: SendProps) {
  return (
    <>
      <Select label="May send" name={name + '.send'} value={send} onChange={(send) => onChange({ send })} options={sends} hint={meanings[send]} />
      {allows(send, taint) && <TextArea label="Allowed recipients" name={name + '.allowed_recipients'} value={allowed} onInput={(allowed) => onChange({ allowed })} rows={2} hint={`${forAllowed[send]}${taint ? ', even while tainted' : ''}. ${oneEach}`} />}
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
  return sends.find(([id]) => id === send)![1]
}

/** That what is sent with a token or credential counts as own words, and its policy in a line that opens to the whole of it; nothing for one that limits nothing. */
export function PolicyNote({ of: p, own }: { of: Policy; own?: boolean }) {
  return <>{own && <div class="small">Speaks for your account</div>}<Limits of={p} /></>
}

function Limits({ of: p }: { of: Policy }) {
  if (p.send === 'allow' && !p.taint && p.taint_seconds === null && p.allowed_recipients.length + p.trusted_senders.length === 0) return null
  return (
    <details class="small policies-note">
      <summary>May send: {saidSend(p).toLowerCase()}{p.taint && '. Careful after strangers’ mail'}</summary>
      <Facts of={[
        ['May send', meanings[p.send]], ['Allowed recipients', allows(p.send, p.taint) && p.allowed_recipients.join(', ')],
        ['Trusted senders', p.taint && p.trusted_senders.join(', ')], ['Taint ends', p.taint && endOf(String(p.taint_seconds ?? ''))],
      ]} />
    </details>
  )
}

const units: [number, string][] = [[86_400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']]

/** Seconds in the largest unit that has no remainder. */
function spanOf(seconds: number): string {
  const [size, unit] = units.find(([size]) => seconds % size === 0)!
  const n = seconds / size
  return `${n} ${unit}${n === 1 ? '' : 's'}`
}

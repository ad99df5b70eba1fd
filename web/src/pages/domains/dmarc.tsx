// The DMARC policy: what others are to do with mail that only pretends to be from a domain.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, Copyable, Form, Notice, Select, Show, TextArea, TextField, Time, told } from '../../ui'
import type { TabProps } from './types'
import { ReportAddresses } from './report-address'
import { dmarcText, dmarcTags, type Policy, withTag } from './dmarc-text'
import type { Domain } from './words'

const policies: { id: Policy; name: string; about: string }[] = [
  { id: 'reject', name: 'Reject', about: 'Others refuse fakes. The strongest protection; right once all that sends for you is set up here.' },
  { id: 'quarantine', name: 'Quarantine', about: 'Others put fakes into the spam folder.' },
  { id: 'none', name: 'None, only report', about: 'Others deliver fakes as if nothing were wrong, and report. To find out who sends in your name.' },
]

export function Dmarc({ domain: d, reload }: TabProps) {
  const account = useQuery('get_account', {})
  return (
    <Show of={account}>
      {(a) => (
        <>
          <Current domain={d} standard={a.default_dmarc} reload={reload} />
          {d.dns_provider === 'manual' && <Notice>The DNS of this domain is in your hands: to change the policy, change the TXT record <code>_dmarc</code> at your DNS provider. The builder below writes it for you.</Notice>}
          {d.dns_provider === 'manual' || can('set_dmarc') ? <Builder key={d.dmarc_override?.value} domain={d} standard={a.default_dmarc} reload={reload} /> : <Notice>The account’s owner or an admin can publish another policy.</Notice>}
        </>
      )}
    </Show>
  )
}

function Current({ domain: d, standard, reload }: { domain: Domain; standard: string; reload: () => Promise<void> }) {
  const reset = () => ask({
    title: 'Go back to Mailstead’s policy', action: 'Use Mailstead’s policy', danger: false,
    text: <p>It is <code>{standard}</code>. Your own is forgotten.</p>,
    run: async () => {
      await call('reset_dmarc', { domain_id: d.id })
      told('Mailstead’s policy is published again.')
      await reload()
    },
  })
  return (
    <Card title={<span class="row">What is published <Badge tone={d.dmarc_override ? 'info' : 'none'} plain>{d.dmarc_override ? 'Your own' : 'Mailstead’s'}</Badge></span>}
      note={d.dmarc_override ? <>Since <Time of={d.dmarc_override.updated_at} />.</> : 'The policy that every domain gets.'}
      actions={d.dmarc_override && can('reset_dmarc') && <Button small onClick={reset}>Use Mailstead’s policy</Button>}>
      <Copyable text={d.dmarc_override?.value ?? standard} label="Copy the policy" />
    </Card>
  )
}

function Builder({ domain: d, standard, reload }: { domain: Domain; standard: string; reload: () => Promise<void> }) {
  const [value, setValue] = useState(d.dmarc_override?.value ?? standard)
  const tags = dmarcTags(value)
  const set = (tag: string, text: string) => setValue(withTag(value, tag, text))
  const byHand = d.dns_provider === 'manual'
  const submit = async () => {
    await call('set_dmarc', { domain_id: d.id, value: value.trim() })
    told('The policy is published.')
    await reload()
  }
  const same = value.trim() === (d.dmarc_override?.value ?? standard)
  const fields = (
    <>
      <PolicyChoice value={tags.p as Policy} onChange={(p) => set('p', p)} />
      <div class="grid-2">
        <TextField label="Send reports to" type="email" value={addressOf(tags.rua)} onInput={(a) => set('rua', a && 'mailto:' + a.replace(/\s*,\s*/g, ',mailto:'))} placeholder={`dmarc@${d.domain}`}
          hint="Use a mailbox on this server: its reports then show as a chart under Reports." />
        <TextField label="Percentage" type="number" min={0} max={100} value={tags.pct ?? '100'} onInput={(n) => set('pct', n === '100' ? '' : n)} after="%" hint="Begin with few if you are not sure yet." />
      </div>
      <ReportAddresses rua={tags.rua ?? ''} />
      <details>
        <summary>Advanced</summary>
        <div class="grid-2">
          <Select label="Names below the domain" value={tags.sp ?? ''} onChange={(v) => set('sp', v)} options={[['', 'As the domain itself'], ['none', 'None'], ['quarantine', 'Quarantine'], ['reject', 'Reject']]} />
          <Select label="Signature must be of" value={tags.adkim ?? 'r'} onChange={(v) => set('adkim', v === 'r' ? '' : v)} options={[['r', 'The domain or one below it'], ['s', 'Exactly the domain']]} />
          <Select label="Sender must be of" value={tags.aspf ?? 'r'} onChange={(v) => set('aspf', v === 'r' ? '' : v)} options={[['r', 'The domain or one below it'], ['s', 'Exactly the domain']]} />
        </div>
      </details>
      <TextArea label="The record" name="value" value={value} onInput={setValue} rows={2} mono hint="You may change it by hand, too. It begins with v=DMARC1." />
    </>
  )
  return (
    <Card title="Your own policy" note="What should others do with mail that pretends to be from you?">
      {byHand ? <div class="form">{fields}<Copyable text={dmarcText(tags)} label="Copy the policy" /></div> : <Form onSubmit={submit} submit="Publish the policy" disabled={same}>{fields}</Form>}
    </Card>
  )
}

function addressOf(rua: string | undefined): string {
  return (rua ?? '').split(',').map((a) => a.trim().replace(/^mailto:/i, '')).join(', ')
}

function PolicyChoice({ value, onChange }: { value: Policy | undefined; onChange: (p: Policy) => void }) {
  return (
    <fieldset class="domains-choice">
      <legend>Policy for unauthenticated mail</legend>
      {policies.map((p) => (
        <label key={p.id} class={'domains-option' + (p.id === value ? ' chosen' : '')}>
          <input type="radio" name="policy" checked={p.id === value} onChange={() => onChange(p.id)} />
          <span><strong>{p.name}</strong><br /><span class="muted small">{p.about}</span></span>
        </label>
      ))}
    </fieldset>
  )
}

// The DMARC policy: what others are to do with mail that only pretends to be from a domain.
import { call, can } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, Copyable, Notice, Select, Show, TextArea, TextField, Time, told } from '../../ui'
import type { DomainDrafts } from './draft'
import type { FieldsProps } from './types'
import { ReportAddresses } from './report-address'
import { dmarcTags, dmarcText, obsoleteTags, type Policy, withoutObsolete, withTag } from './dmarc-text'
import type { Domain } from './words'

const policies: { id: Policy; name: string; about: string }[] = [
  { id: 'reject', name: 'Reject', about: 'Receivers refuse the message. The strongest protection. Use it once every service that sends for you is set up.' },
  { id: 'quarantine', name: 'Quarantine', about: 'Receivers move the message to the spam folder.' },
  { id: 'none', name: 'None (monitor only)', about: 'Receivers deliver the message and send you reports. Use it to find out who sends as your domain.' },
]

export function Dmarc({ domain: d, reload, drafts }: FieldsProps) {
  const account = useQuery('get_account', {})
  return (
    <Show of={account}>
      {(a) => (
        <>
          <Current domain={d} standard={a.default_dmarc} reload={reload} />
          {d.dns_provider === 'manual' && <Notice>You manage this domain’s DNS. To change the policy, edit the TXT record <code>_dmarc</code> at your DNS provider. The form below builds its value.</Notice>}
          {d.dns_provider === 'manual' || can('set_dmarc') ? <Builder domain={d} standard={a.default_dmarc} draft={drafts.dmarc} /> : <Notice>The account’s owner or an admin can edit the policy.</Notice>}
        </>
      )}
    </Show>
  )
}

function Current({ domain: d, standard, reload }: { domain: Domain; standard: string; reload: () => Promise<void> }) {
  const reset = () => ask({
    title: 'Reset to the default policy?', action: 'Reset to default', danger: false,
    text: <p>The default is <code>{standard}</code>. Your custom policy is deleted.</p>,
    run: async () => {
      await call('reset_dmarc', { domain_id: d.id })
      told('Default policy published.')
      await reload()
    },
  })
  return (
    <Card title={<span class="row">Published policy <Badge tone={d.dmarc_override ? 'info' : 'none'} plain>{d.dmarc_override ? 'Custom' : 'Default'}</Badge></span>}
      note={d.dmarc_override ? <>Updated <Time of={d.dmarc_override.updated_at} />.</> : 'The default policy of every domain.'}
      actions={d.dmarc_override && can('reset_dmarc') && <Button small onClick={reset}>Reset to default</Button>}>
      <Copyable text={d.dmarc_override?.value ?? standard} label="Copy policy" />
    </Card>
  )
}

function Builder({ domain: d, standard, draft }: { domain: Domain; standard: string; draft: DomainDrafts['dmarc'] }) {
  const value = draft.values.value ?? standard
  const setValue = (text: string) => draft.set({ value: text === standard && !d.dmarc_override ? null : text })
  const tags = dmarcTags(value), obsolete = obsoleteTags(value)
  const set = (tag: string, text: string) => setValue(withTag(value, tag, text))
  const byHand = d.dns_provider === 'manual'
  return (
    <Card title="Custom policy" note="What receivers do with mail that claims to be from your domain but fails both SPF and DKIM.">
      <div class="form">
        <PolicyChoice value={tags.p as Policy} onChange={(p) => set('p', p)} />
        <TextField label="Send reports to" type="email" value={addressOf(tags.rua)} onInput={(a) => set('rua', a && 'mailto:' + a.replace(/\s*,\s*/g, ',mailto:'))} placeholder={`dmarc@${d.domain}`}
          hint="Use a mailbox on this server to see charts of the reports under Reports." />
        <ReportAddresses rua={tags.rua ?? ''} />
        <details>
          <summary>Advanced</summary>
          <div class="grid-2">
            <Select label="Subdomain policy (sp)" value={tags.sp ?? ''} onChange={(v) => set('sp', v)} options={[['', 'Same as the domain'], ['none', 'None'], ['quarantine', 'Quarantine'], ['reject', 'Reject']]} />
            <Select label="DKIM alignment (adkim)" value={tags.adkim ?? 'r'} onChange={(v) => set('adkim', v === 'r' ? '' : v)} options={[['r', 'Relaxed: domain or subdomain'], ['s', 'Strict: exact domain']]} />
            <Select label="SPF alignment (aspf)" value={tags.aspf ?? 'r'} onChange={(v) => set('aspf', v === 'r' ? '' : v)} options={[['r', 'Relaxed: domain or subdomain'], ['s', 'Strict: exact domain']]} />
          </div>
        </details>
        <TextArea label="Record" name="value" value={value} onInput={setValue} rows={2} mono hint="You can also edit the record directly. It must start with v=DMARC1." />
        {obsolete.length > 0 && <Notice tone="warn"><code>{obsolete.join('; ')}</code> has no effect: receivers that follow RFC 9989 ignore it. {byHand ? 'The value below leaves it out.' : <Button small onClick={() => setValue(withoutObsolete(value))}>Leave it out</Button>} To test a policy, use <code>t=y</code>: receivers then apply the next milder one.</Notice>}
        {byHand && <Copyable text={dmarcText(dmarcTags(withoutObsolete(value)))} label="Copy policy" />}
      </div>
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

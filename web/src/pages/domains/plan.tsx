// Choosing a DNS credential, and what Mailstead would change at that provider.
import { useState } from 'preact/hooks'
import { can, type Schemas } from '../../api/client'
import { useQuery, type Query } from '../../api/query'
import { Badge, Button, Check, Loading, Notice, plural, Select, Show, TableWrap, theirs, Wrong, type Tone } from '../../ui'
import { CredentialDialog } from '../account/dns-credential'
import { dnsProviders, type DNSCredential, type DNSProvider } from '../account/dns-providers'

type Plan = Schemas['DNSPlan']

/** Tells whether a credential is for a domain, as far as its zones say. */
function serves(c: DNSCredential, domain: string): boolean {
  return c.zones.length === 0 || c.zones.some((zone) => domain === zone || domain.endsWith('.' + zone))
}

/** The credentials that fit a domain, those of its present provider first. */
export function useCredentials(domain: string, guess?: DNSProvider, when = true) {
  const list = useQuery('list_dns_credentials', {}, { when: when && can('list_dns_credentials') })
  const fitting = list.data?.data.filter((c) => serves(c, domain)).sort((a, b) => Number(b.provider === guess) - Number(a.provider === guess))
  const [adding, setAdding] = useState(false)
  return { list, fitting, adding, setAdding }
}

type Credentials = ReturnType<typeof useCredentials>

export function CredentialChoice({ of: { list, fitting, setAdding }, value, onChange }: { of: Credentials; value: string; onChange: (id: string) => void }) {
  return (
    <div class="stack">
      <Show of={{ ...list, data: fitting }} lines={1}>
        {(all) => all.length === 0
          ? <p class="muted">No DNS credential fits this domain yet.</p>
          : <Select label="Credential" name="dns_credential_id" value={value} onChange={onChange} options={all.map((c) => [c.id, `${c.name} (${dnsProviders[c.provider].name})${c.error ? ', refused' : ''}`] as const)} />}
      </Show>
      {can('create_dns_credential') && <div class="row"><Button small icon="plus" onClick={() => setAdding(true)}>Add credential</Button></div>}
    </div>
  )
}

/** Where a credential is added while one is chosen. It is a form of its own, so it must not be inside of another. */
export function AddCredential({ of: { list, adding, setAdding }, guess, onAdded }: { of: Credentials; guess?: DNSProvider; onAdded: (id: string) => void }) {
  const added = async (c: DNSCredential) => {
    await list.reload()
    onAdded(c.id)
  }
  return adding ? <CredentialDialog provider={guess} onDone={added} onClose={() => setAdding(false)} /> : null
}

/** What connecting a domain with a credential would change. mx says where its mail goes; by default as it is, or here. */
export function usePlan(domain: string, credential: string, replace: boolean, when = true, mx?: 'here' | 'elsewhere'): Query<Plan> {
  return useQuery('preview_dns_plan', { domain, dns_credential_id: credential, replace: replace || undefined, ...(mx && { mx }) }, { kinds: [], when: when && credential !== '' })
}

const actions: Record<Plan['changes'][number]['action'], [Tone, string]> = {
  create: ['ok', 'Added'], update: ['warn', 'Changed'], delete: ['bad', 'Removed'], keep: ['none', 'Stays'],
}

interface PlanProps {
  of: Query<Plan>
  replace: boolean
  /** Without it, records of others cannot be replaced here. */
  onReplace?: (replace: boolean) => void
}

export function PlanPreview({ of, replace, onReplace }: PlanProps) {
  if (of.error) return <Notice tone="bad" alert><Wrong of={of.error} /></Notice>
  if (!of.data) return <Loading lines={4} />
  const { changes, foreign_conflicts: conflicts } = of.data
  const changed = changes.filter((c) => c.action !== 'keep'), kept = changes.filter((c) => c.action === 'keep')
  return (
    <div class="stack">
      {conflicts.length > 0 && (
        <Notice tone="warn" title={`${plural(conflicts.length, 'existing record')} in the way.`}>
          <ul class="domains-list">{conflicts.map((c) => <li key={c.name + c.type + c.value}>{c.type} of {c.name}: <code>{theirs(c.value)}</code>. Needed: <code>{c.wanted}</code></li>)}</ul>
          {onReplace && conflicts.some((c) => c.type === 'MX') && <p>Keep the mail at its present servers for now, or replace the records.</p>}
        </Notice>
      )}
      {onReplace && (conflicts.length > 0 || replace) && (
        <Check label="Replace existing mail records" checked={replace} onChange={onReplace}
          hint="MX records of other servers are replaced, and their SPF record is combined with Mailstead’s. Mail then arrives here. You can put the old records back later." />
      )}
      {changed.length > 0 ? <div class="domains-boxed"><ChangeTable label="Planned changes" of={changed.map((c) => ({ ...c, now: c.before, result: actions[c.action] }))} /></div> : <p>{conflicts.length > 0 ? 'Nothing else changes.' : 'Nothing changes: your DNS provider has all of Mailstead’s records.'}</p>}
      {kept.length > 0 && <details><summary>Show {plural(kept.length, 'record')} that {kept.length === 1 ? 'stays' : 'stay'}</summary><Kept of={kept} /></details>}
    </div>
  )
}

/** What becomes of the records of one name and type. */
export interface Change {
  name: string
  type: string
  now: string[] | null
  /** A text stands for values that are not known. */
  after: string[] | string | null
  result: [Tone, string]
  reason?: string
}

export function ChangeTable({ of, label }: { of: Change[]; label: string }) {
  return (
    <TableWrap label={label}>
      <table class="table folds">
        <thead><tr><th>Record</th><th>Now</th><th>After</th><th>Result</th></tr></thead>
        <tbody>
          {of.map((c) => (
            <tr key={c.name + c.type + c.result[1]}>
              <td class="breaks"><strong>{c.type}</strong> <code>{theirs(c.name)}</code>{c.reason && <><br /><span class="muted small">{c.reason}</span></>}</td>
              <td data-label="Now" class="breaks"><Values of={c.now} /></td>
              <td data-label="After" class="breaks">{typeof c.after === 'string' ? <span class="muted">{c.after}</span> : <Values of={c.after} />}</td>
              <td data-label="Result" class="domains-result"><Badge tone={c.result[0]} plain>{c.result[1]}</Badge></td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  )
}

function Kept({ of }: { of: Plan['changes'] }) {
  return (
    <div class="domains-boxed"><TableWrap label="Records that stay">
      <table class="table folds">
        <thead><tr><th>Record</th><th>Value</th></tr></thead>
        <tbody>{of.map((c) => <tr key={c.name + c.type}><td class="breaks"><strong>{c.type}</strong> <code>{c.name}</code></td><td data-label="Value" class="breaks"><Values of={c.before} /></td></tr>)}</tbody>
      </table>
    </TableWrap></div>
  )
}

/** Values of a record, one under the other. */
export function Values({ of }: { of: string[] | null }) {
  if (!of || of.length === 0) return <span class="muted">none</span>
  return <>{of.map((value) => <div key={value}><code>{theirs(value)}</code></div>)}</>
}

// Where visitors of a domain go: its own web server, or this server, which can redirect them.
import { Card, Notice, Select, TextField } from '../../ui'
import { placed } from './draft'
import type { FieldsProps } from './types'
import { byApi, type Domain } from './words'

/** Tells whether the records of a domain's website are made here, so that its addresses can be set. */
function hasAddresses(d: Domain): boolean {
  return d.dns_provider === 'builtin' || byApi(d.dns_provider)
}

export function Website({ domain: d, drafts: { settings: { values: f, set } } }: FieldsProps) {
  const undecided = d.apex!.mode === 'undecided'
  return (
    <Card title="Website" note={`Where visitors of ${d.domain_unicode} go.`}>
      <div class="form">
        {undecided && <Notice tone="warn">The present nameservers do not answer, so it is not known whether there is a website.</Notice>}
        <Select label="Website of the domain" name="apex.mode" value={f.apex} onChange={(apex) => set({ apex })} options={[...(undecided ? [['undecided', 'Not known yet'] as const] : []), ['elsewhere', 'Stays at its own server'], ['here', 'Visitors come to this server']]}
          hint={f.apex === 'here' ? 'For a web redirect. Visitors of the domain itself come here.' : 'Mail does not need the website’s address.'} />
        {f.apex !== 'here' && hasAddresses(d) && <TextField label="Address of the website" name={'alias' in placed(f.place) && placed(f.place).alias ? 'apex.alias' : 'apex.addresses'} value={f.place} onInput={(place) => set({ place })} mono placeholder="192.0.2.7" hint="IP addresses, or a hostname whose addresses are used. Leave empty if there is no website." />}
      </div>
    </Card>
  )
}

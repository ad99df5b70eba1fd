// Where visitors of a domain go: its own web server, or this server, which can redirect them.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { Card, Form, Notice, Select, TextField, told } from '../../ui'
import type { TabProps } from './types'
import { byApi, type Domain } from './words'

type Mode = 'here' | 'elsewhere'

/** Tells whether the records of a domain's website are made here, so that its addresses can be set. */
function hasAddresses(d: Domain): boolean {
  return d.dns_provider === 'builtin' || byApi(d.dns_provider)
}

/** What is typed, as the API takes it: addresses, or the name of a host whose addresses are used. */
function placed(text: string) {
  const words = text.split(/[\s,;]+/).filter(Boolean)
  return words.length === 1 && !/^[\d.]+$|:/.test(words[0]!) ? { alias: words[0]! } : { addresses: words, alias: null }
}

export function Website({ domain: d, reload }: TabProps) {
  const apex = d.apex!
  const had = apex.alias ?? apex.addresses.join(', ')
  const [mode, setMode] = useState<Mode>(apex.mode === 'here' ? 'here' : 'elsewhere')
  const [place, setPlace] = useState(had)
  const save = async () => {
    await call('update_domain', { domain_id: d.id, apex: mode === 'here' ? { mode } : { mode, ...(place === had ? {} : placed(place)) } })
    told('Saved.')
    await reload()
  }
  return (
    <Card title="Website" note={`Where visitors of ${d.domain_unicode} go.`}>
      <Form onSubmit={save} submit="Save" disabled={mode === apex.mode && (mode === 'here' || place === had)}>
        {apex.mode === 'undecided' && <Notice tone="warn">The present nameservers do not answer, so it is not known whether there is a website.</Notice>}
        <Select label="Website of the domain" name="apex.mode" value={mode} onChange={setMode} options={[['elsewhere', 'Stays at its own server'], ['here', 'Visitors come to this server']]}
          hint={mode === 'here' ? 'For a web redirect. Visitors of the domain itself come here.' : 'Mail does not need the website’s address.'} />
        {mode === 'elsewhere' && hasAddresses(d) && <TextField label="Address of the website" name="apex.addresses" value={place} onInput={setPlace} mono placeholder="192.0.2.7" hint="IP addresses, or a hostname whose addresses are used. Leave empty if there is no website." />}
      </Form>
    </Card>
  )
}

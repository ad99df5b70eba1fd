// What the owner of a domain adds to its SPF record.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { Button, Copyable, Dialog, Form, Select, TextArea, told } from '../../ui'
import type { Domain } from './words'
import { shown, type RecordSet } from './zone-values'

type All = NonNullable<Domain['spf']>['all']

export function SPFDialog({ domain: d, record, onClose, onDone }: { domain: Domain; record?: RecordSet; onClose: () => void; onDone: () => Promise<void> }) {
  const now = d.spf
  const [extra, setExtra] = useState(now?.extra.join('\n') ?? '')
  const [all, setAll] = useState<All>(now?.all ?? '~')
  const terms = extra.split(/\s+/).filter(Boolean)
  const isSet = now !== null && (now.extra.length > 0 || now.all !== '~')
  const save = async () => {
    await call('set_spf', { domain_id: d.id, extra: terms, all })
    told('SPF record published.')
    await onDone()
  }
  const reset = async () => {
    await call('reset_spf', { domain_id: d.id })
    told('SPF record reset.')
    await onDone()
  }
  const value = record?.values.find((v) => v.startsWith('"v=spf1'))
  return (
    <Dialog title="SPF record" onClose={onClose}>
      <div class="stack">
        <p class="muted">SPF lists the servers that may send mail of {d.domain_unicode}. Mailstead’s terms come first; add those of other services that send for you.</p>
        {value && <Copyable text={shown('TXT', value)} label="Copy SPF record" />}
        <Form onSubmit={save} submit="Save" of={[terms, all]} actions={isSet && can('reset_spf') && <Button onClick={reset}>Reset to default</Button>}>
          <TextArea label="Additional terms" name="extra" value={extra} onInput={setExtra} rows={4} placeholder={'include:_spf.example.net\nip4:192.0.2.0/24'} mono autoFocus hint="One per line. Receivers make at most 10 DNS lookups for all terms together." />
          <Select label="All other servers" name="all" value={all} onChange={setAll} options={[['~', 'Softfail (~all): accept, but treat as suspicious'], ['-', 'Fail (-all): reject']]} />
        </Form>
      </div>
    </Dialog>
  )
}

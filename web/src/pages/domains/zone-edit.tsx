// Adding and editing a record set: one name and type, and its values.
import { useState } from 'preact/hooks'
import { ApiError, call } from '../../api/client'
import { capital } from '../../api/wording'
import { Button, Dialog, Form, IconButton, Notice, plural, Select, TextArea, TextField, told } from '../../ui'
import type { Domain } from './words'
import { emptyValue, fieldsOf, fqdn, isEmpty, kindOf, relative, seconds, types, valueOf, wrongIn, type RecordSet, type Type } from './zone-values'

const mostValues = 50
const lifetimes: [string, string][] = [['60', '1 minute'], ['300', '5 minutes'], ['3600', '1 hour'], ['14400', '4 hours'], ['86400', '1 day']]

interface Props { domain: Domain; set?: RecordSet; fault?: string | null; others: RecordSet[]; onClose: () => void; onDone: () => Promise<void> }

export function SetDialog({ domain: d, set, fault, others, onClose, onDone }: Props) {
  const [type, setType] = useState<Type>(set?.type as Type ?? 'TXT')
  const [name, setName] = useState('')
  const [rows, setRows] = useState(() => set?.values.map((v) => fieldsOf(type, v)) ?? [emptyValue(type)])
  const [ttl, setTtl] = useState(String(set?.ttl ?? 300))
  const kind = kindOf(type)
  const there = set ? undefined : others.find((r) => r.type === type && r.name === relative(name, d.domain))
  const filled = rows.filter((fields) => !isEmpty(type, fields))
  const bad = filled.length === 0 || filled.some((fields) => fields.some((f, i) => f.trim() === '' || wrongIn(type, kind.parts[i]!, f)))
  const change = (row: number, part: number, text: string) => setRows(rows.map((fields, r) => (r === row ? fields.map((f, i) => (i === part ? text : f)) : fields)))
  const choose = (type: Type) => {
    setType(type)
    setRows([emptyValue(type)])
  }
  const submit = async () => {
    setRows(filled) // the server counts the values that it gets
    const values = filled.map((fields) => valueOf(type, fields))
    try {
      await call('set_zone_records', { domain_id: d.id, name: set?.name ?? relative(name, d.domain), type, ttl: Number(ttl), values: [...values, ...there?.values ?? []] })
    } catch (error) {
      if (error instanceof ApiError) for (const d of error.details) if (d.field === 'value' || d.field === 'values') d.field = 'values.0' // what is said of all of them stands at the first
      throw error
    }
    told(set ? 'Record updated.' : 'Record added.')
    await onDone()
  }
  const options = lifetimes.some(([v]) => v === ttl) ? lifetimes : [...lifetimes, [ttl, seconds(Number(ttl))] as [string, string]]
  return (
    <Dialog title={set ? `Edit ${set.type} ${set.name}` : 'Add record'} onClose={onClose}>
      <Form onSubmit={submit} submit={set ? 'Save' : 'Add record'} of={[name, rows, ttl]} disabled={bad}>
        {fault && <Notice tone="bad" title="The DNS provider refused this record.">{fault}</Notice>}
        {set ? <p class="muted">{capital(kind.about)}, for <code>{fqdn(set.name, d.domain)}</code></p> : (
          <>
            <Select label="Type" name="type" value={type} onChange={choose} options={types.map((t) => [t, `${t}: ${kindOf(t).about}`] as const)} />
            <TextField label="Name" name="name" value={name} onInput={setName} after={'.' + d.domain} placeholder={kind.name} mono autoFocus hint={`Leave empty for ${d.domain_unicode}.`} />
            {there && <Notice>{fqdn(there.name, d.domain)} already has {plural(there.values.length, `${type} record`)}. {kind.single ? 'Edit that one instead.' : 'The new values are added, and the TTL applies to all of them.'}</Notice>}
          </>
        )}
        <div class="zone-values">
          {rows.map((fields, r) => <Value key={r} type={type} fields={fields} row={r} rows={rows.length} onInput={(part, text) => change(r, part, text)} onRemove={() => setRows(rows.filter((_, i) => i !== r))} />)}
          {!kind.single && rows.length < mostValues && <div><Button small icon="plus" onClick={() => setRows([...rows, emptyValue(type)])}>Add value</Button></div>}
        </div>
        <Select label="TTL" name="ttl" value={ttl} onChange={setTtl} options={options} hint="How long resolvers cache the records. Use a short TTL while you test." />
      </Form>
    </Dialog>
  )
}

interface ValueProps { type: Type; fields: string[]; row: number; rows: number; onInput: (part: number, text: string) => void; onRemove: () => void }

/** One value, in the fields of its type. What the server finds wrong with it stands below the last of them. */
function Value({ type, fields, row, rows, onInput, onRemove }: ValueProps) {
  const { parts } = kindOf(type)
  const last = parts.length - 1
  return (
    <div class={`zone-fields of-${parts.length}`} role={rows > 1 ? 'group' : undefined} aria-label={rows > 1 ? `Value ${row + 1}` : undefined}>
      {parts.map((p, i) => {
        const shared = {
          label: p.label, value: fields[i]!, onInput: (text: string) => onInput(i, text), placeholder: p.placeholder, mono: true, name: i === last ? `values.${row}` : undefined,
          hint: row === rows - 1 ? p.hint : undefined, error: wrongIn(type, p, fields[i]!), hideLabel: row > 0 && parts.length === 1,
        }
        return type === 'TXT' ? <TextArea key={i} {...shared} rows={3} /> : <TextField key={i} {...shared} list={p.list} inputMode={p.most === undefined ? undefined : 'numeric'} />
      })}
      {rows > 1 && <IconButton look="ghost" small icon="x" label={`Remove value ${row + 1}`} onClick={onRemove} />}
    </div>
  )
}

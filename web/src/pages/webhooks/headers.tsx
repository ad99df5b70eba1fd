// The header fields that are sent with each delivery. Their values are never shown again: what
// stands for one keeps it.
import { useState } from 'preact/hooks'
import { Button, IconButton, PartError, TextField } from '../../ui'

export interface Header { name: string; value: string }

const most = 10

export function headersOf(of: Record<string, string>): Header[] {
  return Object.entries(of).map(([name, value]) => ({ name, value }))
}

/** As the server takes them: rows without a name and a value are none. */
export function sentHeaders(rows: Header[]): Record<string, string> {
  return Object.fromEntries(rows.filter((h) => h.name.trim() || h.value.trim()).map((h) => [h.name.trim(), h.value.trim()]))
}

/** Whether two rows have one name, of which only one would be sent. */
export function twice(rows: Header[]): string | undefined {
  const names = rows.map((h) => h.name.trim().toLowerCase()).filter(Boolean)
  return names.find((name, i) => names.indexOf(name) !== i)
}

export function HeaderFields({ rows, onChange, moved }: { rows: Header[]; onChange: (rows: Header[]) => void; moved?: boolean }) {
  const set = (at: number, change: Partial<Header>) => onChange(rows.map((h, i) => i === at ? { ...h, ...change } : h))
  const double = twice(rows)
  const [added, setAdded] = useState(-1)
  const add = () => {
    setAdded(rows.length)
    onChange([...rows, { name: '', value: '' }])
  }
  return (
    <fieldset class="webhooks-headers">
      <legend>Headers</legend>
      <span class="hint">Sent with each delivery, for example an API key that your endpoint expects. Values are stored encrypted and not shown again.</span>
      {rows.map((h, i) => (
        <div class="webhooks-header" key={i}>
          <TextField label={`Name of header ${i + 1}`} hideLabel value={h.name} onInput={(name) => set(i, { name })} placeholder="X-Api-Key" mono autoFocus={i === added}
            error={double !== undefined && h.name.trim().toLowerCase() === double ? 'Each name can be used once.' : undefined} />
          <TextField label={`Value of header ${i + 1}`} hideLabel value={h.value} onInput={(value) => set(i, { value })} placeholder="Value" mono autoComplete="off"
            error={moved && h.value.startsWith('…') ? 'Enter the value again: the endpoint has another host.' : undefined} />
          <IconButton look="ghost" small icon="x" label={`Remove header ${h.name || i + 1}`} onClick={() => onChange(rows.filter((_, at) => at !== i))} />
        </div>
      ))}
      <PartError name="headers" />
      {rows.length < most && <div><Button small icon="plus" onClick={add}>Add header</Button></div>}
    </fieldset>
  )
}

// Pieces that several tabs of a domain are made of.
import type { ComponentChildren } from 'preact'
import { CopyButton } from '../../ui'
import type { DnsRecord, Domain } from './words'

/** Names and values that are to be entered somewhere else, each with a button that copies it. */
export function CopyFields({ of }: { of: [name: string, value: string, note?: ComponentChildren][] }) {
  return (
    <dl class="domains-copy">
      {of.map(([name, value, note]) => (
        <div key={name + value}>
          <dt>{name}</dt>
          <dd><code>{value}</code>{note && <span class="muted small">{note}</span>}</dd>
          <dd><CopyButton text={value} label={`Copy ${name.toLowerCase()}`} /></dd>
        </div>
      ))}
    </dl>
  )
}

/** Around a text area that mostly holds one line: the Enter key submits the form, unless there are several. */
export function EnterSubmits({ children }: { children: ComponentChildren }) {
  const press = (e: KeyboardEvent) => {
    const area = e.target
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing || !(area instanceof HTMLTextAreaElement) || area.value.includes('\n')) return
    e.preventDefault()
    area.form?.requestSubmit()
  }
  return <div onKeyDown={press}>{children}</div>
}

/** Of an MX, values begin with the priority, which most providers ask for in a field of its own. */
function split(r: DnsRecord): [priority: string | undefined, value: string] {
  const at = r.expected.indexOf(' ')
  return r.type === 'MX' && at > 0 ? [r.expected.slice(0, at), r.expected.slice(at + 1)] : [undefined, r.expected]
}

/** A record as it is entered at a DNS provider. */
export function RecordFields({ record: r, domain: d, found }: { record: DnsRecord; domain: Domain; found?: boolean }) {
  const [priority, value] = split(r)
  const rows: [string, string, ComponentChildren?][] = [
    ['Type', r.type],
    ['Name', r.host, r.host === '@' ? `the domain itself, ${d.domain_unicode}` : `some providers need ${r.host}.${d.domain}`],
  ]
  if (priority) rows.push(['Priority', priority])
  rows.push(['Value', value])
  return (
    <>
      <CopyFields of={rows} />
      {found && <p class="small"><span class="muted">Current value:</span> {r.actual === null ? 'none' : <code class="domains-wrong">{r.actual}</code>}</p>}
    </>
  )
}

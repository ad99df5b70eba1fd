// Who may answer for a domain in the DNS, for people who have never had to do with it.
import type { Schemas } from '../../api/client'
import { Badge } from '../../ui'

export type Way = 'builtin' | 'manual' | 'cloudflare' | 'external'

const ways: { id: Way; name: string; effort: string; about: string }[] = [
  { id: 'builtin', name: 'Mailstead', effort: 'Least work', about: 'You set two nameservers, once, where you registered the domain. Mailstead then keeps all records right by itself, for good. Does a website use the domain? Then you enter its records here.' },
  { id: 'manual', name: 'My present provider', effort: 'About ten records by hand', about: 'Nothing moves: your website and all else stay as they are. We show you each record to copy there, and check it at once.' },
  { id: 'cloudflare', name: 'Cloudflare', effort: 'One token', about: 'The domain is at Cloudflare. You give us a key (an API token), and Mailstead makes the records there. All others stay.' },
  { id: 'external', name: 'Nobody here: its mail is hosted elsewhere', effort: 'No DNS work', about: 'Your mailboxes stay with Google, Microsoft or another host. Mailstead signs in to them, so that you read and send from here.' },
]

/** The way that fits what is known of a domain. */
export function proposed(provider: Schemas['DomainProvider'] | undefined): Way {
  const at = provider?.nameservers ?? []
  if (provider?.is_edge || at.some((ns) => ns.toLowerCase().replace(/\.$/, '').endsWith('.ns.cloudflare.com'))) return 'cloudflare'
  return 'builtin'
}

export function Ways({ value, proposal, onChange, nameservers }: { value: Way; proposal: Way; onChange: (way: Way) => void; nameservers: string[] }) {
  return (
    <fieldset class="domains-choice">
      <legend class="visually-hidden">Who is to answer for it in the DNS?</legend>
      {ways.map((w) => (
        <label key={w.id} class={'domains-option' + (w.id === value ? ' chosen' : '')}>
          <input type="radio" name="way" value={w.id} checked={w.id === value} onChange={() => onChange(w.id)} />
          <span class="stack-tight">
            <span class="row"><strong>{w.name}</strong> <span class="muted small">{w.effort}</span>{w.id === proposal && <Badge tone="ok" plain>Fits best</Badge>}</span>
            <span class="muted small">{w.about}</span>
            {w.id === 'builtin' && w.id === value && <span class="small muted">The nameservers will be {nameservers.map((ns, i) => <>{i > 0 && ' and '}<code key={ns}>{ns}</code></>)}; you can copy them on the next page.</span>}
          </span>
        </label>
      ))}
    </fieldset>
  )
}

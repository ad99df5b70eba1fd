// Who may answer for a domain in the DNS, for people who have never had to do with it.
import type { Schemas } from '../../api/client'
import { Badge } from '../../ui'
import { byApi } from './words'

export type Way = 'builtin' | 'credential' | 'manual' | 'external'

const ways: { id: Way; name: string; effort: string; about: string }[] = [
  { id: 'builtin', name: 'Mailstead', effort: 'Least work', about: 'You set two nameservers at your registrar, once. Mailstead then manages all DNS records automatically. Before you change them, it reads the records that the domain has now, and you import those.' },
  { id: 'credential', name: 'DNS provider with an API', effort: 'One API key', about: 'DNS stays at Cloudflare, Route 53, Hetzner, deSEC or your own nameserver. Mailstead creates its records there. Your other records stay as they are.' },
  { id: 'manual', name: 'My current DNS provider', effort: 'About ten records to add manually', about: 'Your website and other services stay as they are. Mailstead shows each record to add, and checks it.' },
  { id: 'external', name: 'Mail is hosted elsewhere', effort: 'No DNS changes', about: 'Your mailboxes stay with Google, Microsoft or another provider. Mailstead logs in to them, so that you can read and send mail here.' },
]

/** The way that fits what is known of a domain. */
export function proposed(provider: Schemas['DomainProvider'] | undefined): Way {
  const guess = provider?.dns_provider_guess
  return provider?.is_edge || (guess && byApi(guess)) ? 'credential' : 'builtin'
}

export function Ways({ value, proposal, onChange, nameservers }: { value?: Way; proposal?: Way; onChange: (way: Way) => void; nameservers: string[] }) {
  return (
    <fieldset class="domains-choice">
      <legend class="visually-hidden">DNS provider</legend>
      {ways.map((w) => (
        <label key={w.id} class={'domains-option' + (w.id === value ? ' chosen' : '')}>
          <input type="radio" name="way" value={w.id} checked={w.id === value} onChange={() => onChange(w.id)} />
          <span class="stack-tight">
            <span class="row"><strong>{w.name}</strong> <span class="muted small">{w.effort}</span>{w.id === proposal && <Badge tone="ok" plain>Recommended</Badge>}</span>
            <span class="muted small">{w.about}</span>
            {w.id === 'builtin' && w.id === value && <span class="small muted">The nameservers will be {nameservers.map((ns, i) => <>{i > 0 && ' and '}<code key={ns}>{ns}</code></>)}. You can copy them on the next page.</span>}
          </span>
        </label>
      ))}
    </fieldset>
  )
}

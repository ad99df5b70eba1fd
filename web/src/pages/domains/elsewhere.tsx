// Hosts that send mail of a domain beside this server, whose mail is the account's own.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { Button, Card, Dialog, Form, IconButton, TextField, told } from '../../ui'
import type { TabProps } from './types'
import type { Domain } from './words'

type Place = Domain['sends_elsewhere'][number]

const most = 20

export function said(p: Place): string {
  return `${p.host ?? p.network}, selector ${p.selector}`
}

/** What is typed, as the API takes it: a network has a slash, and a bare address is a network of its own. */
function placed(from: string, selector: string) {
  const of = from.trim()
  if (of.includes('/')) return { network: of, selector: selector.trim() }
  if (of.includes(':')) return { network: of + '/128', selector: selector.trim() }
  return /^\d+(\.\d+){3}$/.test(of) ? { network: of + '/32', selector: selector.trim() } : { host: of, selector: selector.trim() }
}

export function Elsewhere({ domain: d, reload }: TabProps) {
  const [adding, setAdding] = useState(false)
  const kept = d.sends_elsewhere.map((p) => (p.host ? { host: p.host, selector: p.selector } : { network: p.network!, selector: p.selector }))
  const save = async (places: ReturnType<typeof placed>[]) => {
    await call('update_domain', { domain_id: d.id, sends_elsewhere: places })
    told('Saved.')
    await reload()
  }
  return (
    <Card title="Other senders" note="Servers and services that also send mail of this domain. Their mail counts as your own, not as a stranger’s, if SPF passes and their DKIM key signs all of it."
      actions={d.sends_elsewhere.length < most && <Button small icon="plus" onClick={() => setAdding(true)}>Add sender</Button>}>
      {d.sends_elsewhere.length === 0 ? <p class="muted">No other senders yet.</p> : (
        <ul class="domains-senders">
          {d.sends_elsewhere.map((p, i) => (
            <li key={said(p)} class="row-between">
              <span class="grow"><code>{p.host ?? p.network}</code> <span class="muted small">DKIM selector <code>{p.selector}</code></span></span>
              <IconButton look="ghost" small icon="trash" label={`Remove ${said(p)}`} onClick={() => save(kept.filter((_, n) => n !== i))} />
            </li>
          ))}
        </ul>
      )}
      {adding && <Add save={(place) => save([...kept, place])} onClose={() => setAdding(false)} />}
    </Card>
  )
}

function Add({ save, onClose }: { save: (place: ReturnType<typeof placed>) => Promise<void>; onClose: () => void }) {
  const [from, setFrom] = useState(''), [selector, setSelector] = useState('')
  const submit = async () => {
    await save(placed(from, selector))
    onClose()
  }
  return (
    <Dialog title="Add sender" onClose={onClose}>
      <Form submit="Add" onSubmit={submit} of={[from, selector]} disabled={from.trim() === '' || selector.trim() === ''}>
        <TextField label="Host or network" name="sends_elsewhere" value={from} onInput={setFrom} placeholder="192.0.2.0/24" hint="A hostname, or the network its mail comes from." mono autoFocus />
        <TextField label="DKIM selector" value={selector} onInput={setSelector} placeholder="s1" hint="Of the key it signs with, not of this server’s." mono />
      </Form>
    </Dialog>
  )
}

// Buying a domain: what it costs, and the two confirmations.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { Button, Check, Dialog, Facts, Form, money, Notice, plural, Select, Show, TextField, told } from '../../ui'
import type { Offer } from './types'
import { emptyExtras, usersOf, type ExtrasForm } from './extras'

interface Order { years: string; renew: boolean; registrar: string; token: string; manual: boolean; extras: ExtrasForm }

/** Asks anew for the price, takes the order, shows it once more, and buys. */
export function Purchase({ offer: first, registrars, onClose }: { offer: Offer; registrars: string[]; onClose: () => void }) {
  const quote = useQuery('search_domain', { q: first.domain }, { kinds: [] })
  const [untouched] = useState<Order>({ years: '1', renew: true, registrar: first.registrar ?? registrars[0] ?? '', token: '', manual: false, extras: emptyExtras })
  const [order, setOrder] = useState(untouched)
  const [sure, setSure] = useState(false)
  return (
    <Dialog title={sure ? 'Review order' : `Buy ${first.domain}`} unsaved={order !== untouched} onClose={onClose}>
      <Show of={quote} lines={4}>
        {(offer) => {
          if (!offer.purchasable || offer.price === null) return <Notice tone="bad">{offer.error ?? `${offer.domain} is no longer available. Choose another name.`}</Notice>
          return sure ? <Confirm offer={offer} order={order} onBack={() => setSure(false)} /> : <OrderForm offer={offer} order={order} onChange={setOrder} registrars={registrars} onReady={() => setSure(true)} />
        }}
      </Show>
    </Dialog>
  )
}

function totalOf(offer: Offer, order: Order): number {
  return offer.price! + (Number(order.years) - 1) * (offer.renewal_price ?? offer.price!)
}

/** The most that a year may cost: the price is one for each year, and later years may cost more than the first. */
function limitOf(offer: Offer, order: Order): number {
  return Math.max(offer.price!, Math.ceil((100 * totalOf(offer, order)) / Number(order.years) - 1e-6) / 100)
}

const terms: [string, string][] = Array.from({ length: 10 }, (_, i) => [String(i + 1), plural(i + 1, 'year')])

function OrderForm({ offer, order, onChange, registrars, onReady }: { offer: Offer; order: Order; onChange: (o: Order) => void; registrars: string[]; onReady: () => void }) {
  const set = (change: Partial<Order>) => onChange({ ...order, ...change })
  const fixed = order.registrar === 'cloudflare'
  return (
    <Form onSubmit={async () => onReady()} submit="Review order" disabled={fixed && !order.manual && order.token.trim() === ''}>
      <Price offer={offer} order={order} />
      <div class="grid-2">
        <Select label="Registration period" value={order.years} onChange={(years) => set({ years })} options={terms} />
        {registrars.length > 1 && <Select label="Registrar" value={order.registrar} onChange={(registrar) => set({ registrar })} options={registrars.map((r) => [r, r] as const)} />}
      </div>
      <Check checked={order.renew} onChange={(renew) => set({ renew })} label="Auto-renew" hint={`Renews every year for ${money(offer.renewal_price ?? offer.price, offer.currency)} at today’s price. If this is off, the domain expires at the end of the period.`} />
      {fixed && (
        <>
          <Check checked={order.manual} onChange={(manual) => set({ manual })} label="Add the DNS records manually" hint="Domains registered at Cloudflare can’t use other nameservers." />
          {!order.manual && <TextField label="Cloudflare API token" type="password" autoComplete="off" mono value={order.token} onInput={(token) => set({ token })} hint="Mailstead uses it to create the DNS records. It needs Zone: Read and DNS: Edit." />}
        </>
      )}
      <TextField label="Mailboxes to create" value={order.extras.users} onInput={(users) => set({ extras: { ...order.extras, users } })} placeholder="hello, anna" hint="Usernames, separated by commas. You can also create mailboxes later." />
    </Form>
  )
}

function Price({ offer, order }: { offer: Offer; order: Order }) {
  return (
    <div class="domains-total">
      <span>{plural(Number(order.years), 'year')}</span>
      <strong>{money(totalOf(offer, order), offer.currency)}</strong>
    </div>
  )
}

function Confirm({ offer, order, onBack }: { offer: Offer; order: Order; onBack: () => void }) {
  const [agreed, setAgreed] = useState(false)
  const total = money(totalOf(offer, order), offer.currency)
  const buy = async () => {
    const job = await call('setup_domain', {
      domain: offer.domain, register: true, price: limitOf(offer, order), years: Number(order.years), auto_renew: order.renew, registrar: order.registrar || undefined,
      users: usersOf(order.extras), edge_api_token: order.token.trim() && !order.manual ? order.token.trim() : undefined, manual_dns: order.manual || undefined,
    })
    told(`Buying ${offer.domain}.`)
    go(job.resource ? '/domains/' + job.resource.id : '/jobs/' + job.job_id)
  }
  return (
    <Form onSubmit={buy} submit={`Buy for ${total}`} disabled={!agreed} actions={<Button onClick={onBack}>Back</Button>}>
      <Facts of={[
        ['Domain', <strong>{offer.domain}</strong>], ['Period', plural(Number(order.years), 'year')], ['Total', <strong>{total}</strong>],
        ['Auto-renew', order.renew ? `On, ${money(offer.renewal_price ?? offer.price, offer.currency)} per year` : 'Off'], ['Registrar', order.registrar],
        ['Mailboxes', usersOf(order.extras)?.map((u) => `${u.username}@${offer.domain}`).join(', ')],
      ]} />
      <p class="muted small">If the price has gone up in the meantime, nothing is bought.</p>
      <Check checked={agreed} onChange={setAgreed} label={`I want to buy ${offer.domain} for ${total}.`} hint="The registrar charges this server’s registrar account. A purchase can’t be refunded." />
    </Form>
  )
}

// Finding and buying a new domain.
import { useEffect, useState } from 'preact/hooks'
import { call, type Schemas } from '../../api/client'
import { params } from '../../router'
import { Badge, Button, Card, Empty, failed, Form, LinkButton, Loading, money, Notice, plural, TextArea, TextField } from '../../ui'
import { EnterSubmits } from './parts'
import { Purchase } from './purchase'
import type { Offer } from './types'
import { namesIn } from './words'

interface Found { asked: Offer[]; ideas: Offer[] }

/** Looks for names as they were typed, and for others made of the same words. */
async function find(text: string, tlds: string): Promise<Found> {
  const names = namesIn(text).filter((n) => n.includes('.'))
  if (names.length > 1) return { asked: (await call('search_domains_bulk', { domains: names.slice(0, 100) })).results, ideas: [] }
  const words = (names[0]?.split('.')[0] ?? text).replace(/[-_.]+/g, ' ').trim()
  const [asked, ideas] = await Promise.all([
    names[0] ? call('search_domain', { q: names[0] }).then((r) => [r]) : [],
    words ? call('suggest_domains', { keywords: words, tlds: tlds.trim() || undefined, limit: 12 }).then((s) => s.suggestions) : [],
  ])
  return { asked, ideas: ideas.filter((i) => i.domain !== asked[0]?.domain) }
}

export function Buy({ account }: { account: Schemas['Account'] }) {
  const [text, setText] = useState(params.value.get('name') ?? '')
  const [tlds, setTlds] = useState('')
  const [found, setFound] = useState<Found>()
  const [busy, setBusy] = useState(false)
  const [bought, setBought] = useState<Offer>()
  const shop = account.registrars.length > 0
  const search = async () => {
    setBusy(true)
    await find(text, tlds).then(setFound).finally(() => setBusy(false))
  }
  useEffect(() => {
    if (text) void search().catch(failed)
  }, [])
  return (
    <>
      {!shop && <Notice title="No registrar is set up on this server.">You can search for available names here, buy one at any registrar, and then add it as a domain you own. The server’s operator can set up a registrar.</Notice>}
      <Card title="Find a domain" note="Enter a name, some keywords, or several names, one per line.">
        <Form onSubmit={search} submit="Search" disabled={text.trim() === ''}>
          <div class="domains-search">
            <EnterSubmits><TextArea label="Name or keywords" name="q" value={text} onInput={setText} rows={text.includes('\n') ? 5 : 1} placeholder="sunny bakery" autoFocus /></EnterSubmits>
            <TextField label="TLDs" name="tlds" value={tlds} onInput={setTlds} placeholder="com, org, io" hint="For suggestions. Leave empty for common TLDs." />
          </div>
        </Form>
      </Card>
      {busy && !found && <Card><Loading lines={4} /></Card>}
      {found && <div class="stack" aria-live="polite" aria-busy={busy}>
        {found.asked.length > 0 && <Offers title={found.asked.length === 1 ? 'Your search' : plural(found.asked.length, 'name')} offers={found.asked} onBuy={setBought} shop={shop} />}
        {found.ideas.length > 0 && <Offers title={found.asked.length > 0 ? 'Other suggestions' : 'Suggestions'} offers={found.ideas} onBuy={setBought} shop={shop} />}
        {found.asked.length + found.ideas.length === 0 && <Card><Empty icon="search" title="No names found">Try other keywords or TLDs.</Empty></Card>}
      </div>}
      {bought && <Purchase offer={bought} registrars={account.registrars} onClose={() => setBought(undefined)} />}
    </>
  )
}

function Offers({ title, offers, onBuy, shop }: { title: string; offers: Offer[]; onBuy: (o: Offer) => void; shop: boolean }) {
  return (
    <Card flush title={title}>
      <div class="rows">
        {offers.map((o) => (
          <div key={o.domain} class="line domains-offer">
            <span class="grow"><strong>{o.domain}</strong>{o.error && <><br /><span class="muted small">{o.error}</span></>}</span>
            <Availability of={o} />
            {o.available && o.price !== null && (
              <span class="domains-price"><strong>{money(o.price, o.currency)}</strong><br /><span class="muted small">{o.renewal_price !== null && o.renewal_price !== o.price ? `then ${money(o.renewal_price, o.currency)} per year` : 'per year'}</span></span>
            )}
            <span class="domains-buy">
              {o.purchasable && shop ? <Button small look="primary" aria-label={`Buy ${o.domain}`} onClick={() => onBuy(o)}>Buy</Button>
                : o.available === false ? <LinkButton small href={`/domains/add?name=${encodeURIComponent(o.domain)}`}>I own it</LinkButton> : null}
            </span>
          </div>
        ))}
      </div>
    </Card>
  )
}

function Availability({ of: o }: { of: Offer }) {
  if (o.available === null) return <Badge>Unknown</Badge>
  if (!o.available) return <Badge tone="none">Taken</Badge>
  return o.premium ? <Badge tone="warn">Premium price</Badge> : <Badge tone="ok">Available</Badge>
}

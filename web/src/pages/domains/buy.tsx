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
      {!shop && <Notice title="This installation sells no domains.">You can look for free names here and buy one at any registrar; then add it as a domain that you own. The operator can configure a registrar.</Notice>}
      <Card title="Find a name" note="Type the name that you want, some words, or several names, one in each line.">
        <Form onSubmit={search} submit="Search" disabled={text.trim() === ''}>
          <div class="domains-search">
            <EnterSubmits><TextArea label="Name or words" name="q" value={text} onInput={setText} rows={text.includes('\n') ? 5 : 1} placeholder="sunny bakery" autoFocus /></EnterSubmits>
            <TextField label="Endings" name="tlds" value={tlds} onInput={setTlds} placeholder="com, org, io" hint="For ideas. Left empty, the common ones." />
          </div>
        </Form>
      </Card>
      {busy && !found && <Card><Loading lines={4} /></Card>}
      {found && <div class="stack" aria-live="polite" aria-busy={busy}>
        {found.asked.length > 0 && <Offers title={found.asked.length === 1 ? 'Your name' : plural(found.asked.length, 'name')} offers={found.asked} onBuy={setBought} shop={shop} />}
        {found.ideas.length > 0 && <Offers title={found.asked.length > 0 ? 'Or one of these' : 'Ideas'} offers={found.ideas} onBuy={setBought} shop={shop} />}
        {found.asked.length + found.ideas.length === 0 && <Card><Empty icon="search" title="No name found">Try other words or endings.</Empty></Card>}
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
              <span class="domains-price"><strong>{money(o.price, o.currency)}</strong><br /><span class="muted small">{o.renewal_price !== null && o.renewal_price !== o.price ? `then ${money(o.renewal_price, o.currency)} a year` : 'a year'}</span></span>
            )}
            <span class="domains-buy">
              {o.purchasable && shop ? <Button small look="primary" aria-label={`Buy ${o.domain}`} onClick={() => onBuy(o)}>Buy</Button>
                : o.available === false ? <LinkButton small href={`/domains/add?name=${encodeURIComponent(o.domain)}`}>It is mine</LinkButton> : null}
            </span>
          </div>
        ))}
      </div>
    </Card>
  )
}

function Availability({ of: o }: { of: Offer }) {
  if (o.available === null) return <Badge>Not known</Badge>
  if (!o.available) return <Badge tone="none">Taken</Badge>
  return o.premium ? <Badge tone="warn">Premium price</Badge> : <Badge tone="ok">Free</Badge>
}

// Adding domains: those that one owns, in the way that fits, or a new one.
import { useState } from 'preact/hooks'
import { call, type ApiError, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { go, params } from '../../router'
import { Button, Card, Empty, Form, LinkButton, Notice, Page, plural, Show, Tabs, TextArea, TextField, Wrong } from '../../ui'
import { Connected } from './connected'
import { emptyExtras, Extras, hasExtras, usersOf, type ExtrasForm } from './extras'
import { Buy } from './buy'
import { EnterSubmits } from './parts'
import { proposed, Ways, type Way } from './ways'
import { namesIn } from './words'

type Connection = Schemas['ConnectResult']

export function Add() {
  const buying = params.value.get('way') === 'buy'
  const account = useQuery('get_account', {})
  const tabs = [{ id: 'own', name: 'Use a domain I own', href: '/domains/add' }, { id: 'buy', name: 'Buy a domain', href: '/domains/add?way=buy' }]
  return (
    <Page title="Add domain" back={{ href: '/domains', label: 'Domains' }} tabs={<Tabs label="Options" tabs={tabs} current={buying ? 'buy' : 'own'} />}>
      <Show of={account}>
        {(a) => a.domains_limit > 0 && a.domains_used >= a.domains_limit
          ? <Card><Empty icon="globe" title="Domain limit reached" action={<LinkButton href="/domains">Back to domains</LinkButton>}>This account has {plural(a.domains_used, 'domain')}, the maximum. Delete one first.</Empty></Card>
          : buying ? <Buy account={a} /> : <Own account={a} />}
      </Show>
    </Page>
  )
}

function Own({ account }: { account: Schemas['Account'] }) {
  const [text, setText] = useState(params.value.get('name') ?? '')
  const [names, setNames] = useState<string[]>(namesIn(text))
  const [done, setDone] = useState<Connection[]>()
  if (done) return <Connected of={done} onMore={() => { setDone(undefined); setNames([]); setText('') }} />
  if (names.length > 0) return <Choose account={account} names={names} onBack={() => setNames([])} onDone={setDone} />
  return (
    <Card title="Which domain?" note="The part of an email address after the @. Enter one or more domains, one per line.">
      <Form onSubmit={async () => setNames(namesIn(text))} submit="Continue" disabled={namesIn(text).length === 0}>
        <EnterSubmits><TextArea label="Domain" name="domains" value={text} onInput={setText} rows={text.includes('\n') ? 6 : 2} placeholder="example.com" autoFocus mono
          hint={namesIn(text).length > 1 ? plural(namesIn(text).length, 'domain') : 'Up to 100 domains. You can also separate them with spaces or commas.'} /></EnterSubmits>
      </Form>
    </Card>
  )
}

function Choose({ account, names, onBack, onDone }: { account: Schemas['Account']; names: string[]; onBack: () => void; onDone: (of: Connection[]) => void }) {
  const provider = useQuery('check_provider', { domain: names[0]! }, { kinds: [] })
  const proposal = proposed(provider.data)
  const [chosen, setWay] = useState<Way>()
  const [token, setToken] = useState('')
  const [extras, setExtras] = useState<ExtrasForm>(emptyExtras)
  const way = chosen ?? proposal
  const submit = async () => {
    const results = hasExtras(extras) && way !== 'external' ? await setUpAll(names, way, token, extras) : await connectAll(names, way, token, extras)
    const good = results.filter((r) => r.status !== 'error')
    if (results.length === 1 && good.length === 1) go(`/domains/${good[0]!.domain_id}`)
    else onDone(results)
  }
  return (
    <>
      <Card title={names.length === 1 ? names[0] : plural(names.length, 'domain')} actions={<Button small onClick={onBack}>Edit</Button>}>
        <div class="stack-tight">
          {names.length > 1 && <p class="domains-names">{names.slice(0, 12).join(', ')}{names.length > 12 && ` and ${names.length - 12} more`}</p>}
          <div class="domains-kept"><Kept name={names[0]!} provider={provider} /></div>
        </div>
      </Card>
      <Form onSubmit={submit} submit={names.length === 1 ? 'Add domain' : `Add ${plural(names.length, 'domain')}`} disabled={way === 'cloudflare' && token.trim() === ''}>
        <Card title={names.length === 1 ? 'Who hosts DNS for this domain?' : 'Who hosts DNS for these domains?'} note="DNS tells other servers where to deliver your mail. Choose who publishes the DNS records.">
          <Ways value={way} proposal={proposal} onChange={setWay} nameservers={account.nameservers} />
        </Card>
        {way === 'cloudflare' && (
          <Card title="Cloudflare API token">
            <TextField label="Token" name="edge_api_token" type="password" autoComplete="off" value={token} onInput={setToken} mono
              hint="In Cloudflare, open My Profile > API Tokens > Create Token, use the “Edit zone DNS” template and select this domain. The token needs Zone: Read and DNS: Edit. Mailstead stores it encrypted." />
          </Card>
        )}
        <Extras value={extras} onChange={setExtras} hosted={way !== 'external'} />
      </Form>
    </>
  )
}

function Kept({ name, provider }: { name: string; provider: { data?: Schemas['DomainProvider']; loading: boolean; error?: ApiError } }) {
  if (provider.loading) return <p class="muted small"><span class="spinner domains-inline" /> Detecting the DNS provider of {name}</p>
  const p = provider.data
  if (provider.error?.code === 'invalid_domain') return <Notice tone="bad" alert><Wrong of={provider.error} /></Notice>
  if (!p) return <p class="muted small">Couldn’t detect the DNS provider. Choose one below.</p>
  if (!p.registrar && p.nameservers.length === 0) {
    return <Notice tone="warn">{name} is not registered yet. <a href={`/domains/add?way=buy&name=${encodeURIComponent(name)}`}>Check whether you can buy it</a>.</Notice>
  }
  return <p class="small"><span class="muted">{name} is registered at</span> {p.registrar ?? 'an unknown registrar'}<span class="muted">. Nameservers:</span> {p.nameservers.slice(0, 2).join(', ') || 'none'}</p>
}

async function connectAll(names: string[], way: Way, token: string, extras: ExtrasForm): Promise<Connection[]> {
  const { domains } = await call('connect_domains', {
    domains: names, tags: extras.tags.length > 0 ? extras.tags : undefined,
    manual_dns: way === 'manual' || undefined, external: way === 'external' || undefined, edge_api_token: way === 'cloudflare' ? token.trim() : undefined,
  })
  return domains
}

/** Sets domains up with mailboxes and the like, one after the other. One that fails does not stop its neighbours. */
async function setUpAll(names: string[], way: Way, token: string, extras: ExtrasForm): Promise<Connection[]> {
  const results: Connection[] = []
  for (const domain of names) {
    const result: Connection = { domain, domain_id: null, status: 'created', dns_provider: way, nameservers: [], error: null }
    try {
      const job = await call('setup_domain', {
        domain, manual_dns: way === 'manual' || undefined, edge_api_token: way === 'cloudflare' ? token.trim() : undefined,
        users: usersOf(extras), template_id: extras.template || undefined, redirect_url: extras.redirect.trim() || undefined,
        forward_address: extras.forward.trim() || undefined, tags: extras.tags.length > 0 ? extras.tags : undefined,
      })
      result.domain_id = job.resource?.id ?? null
    } catch (error) {
      if (names.length === 1) throw error
      result.status = 'error'
      result.error = (error as Error).message
    }
    results.push(result)
  }
  return results
}

// Adding domains: those that one owns, in the way that fits, or a new one.
import { useState } from 'preact/hooks'
import { call, type ApiError, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { go, params } from '../../router'
import { Button, Card, Check, Empty, Form, LinkButton, Notice, Page, plural, Show, Tabs, TextArea, Wrong } from '../../ui'
import { Connected } from './connected'
import { emptyExtras, Extras, hasExtras, usersOf, type ExtrasForm } from './extras'
import { Buy } from './buy'
import { EnterSubmits } from './parts'
import { AddCredential, CredentialChoice, PlanPreview, useCredentials, usePlan } from './plan'
import { proposed, Ways, type Way } from './ways'
import { namesIn, providerNames } from './words'

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
      <Form onSubmit={async () => setNames(namesIn(text))} submit="Next" disabled={namesIn(text).length === 0}>
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
  const [extras, setExtras] = useState<ExtrasForm>(emptyExtras)
  const [mailStays, setMailStays] = useState(false)
  const way = chosen ?? (provider.loading ? undefined : proposal) // a choice that is shown does not change by itself
  const found = provider.data?.dns_provider_guess ?? undefined
  const guess = found === 'builtin' ? undefined : found
  const credentials = useCredentials(names[0]!, guess, way === 'credential')
  const [chosenID, setCredential] = useState(''), [replace, setReplace] = useState(false)
  const credential = credentials.fitting?.some((c) => c.id === chosenID) ? chosenID : credentials.fitting?.[0]?.id ?? ''
  const stays = way !== undefined && way !== 'external' && mailStays
  const plan = usePlan(names[0]!, credential, replace, way === 'credential', stays ? 'elsewhere' : undefined)
  const lacks = way === undefined || way === 'credential' && (credential === '' || (names.length === 1 && !(plan.data && plan.data.foreign_conflicts.length === 0)))
  const submit = async () => {
    if (way === undefined) return
    const choice: Choice = { way, credential, replace, stays }
    const results = hasExtras(extras) && way !== 'external' && !stays ? await setUpAll(names, choice, extras) : await connectAll(names, choice, extras)
    const good = results.filter((r) => r.status !== 'error')
    if (results.length === 1 && good.length === 1) go(`/domains/${good[0]!.domain_id}${way === 'manual' && !stays ? '/dns' : ''}`) // where the records to enter are
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
      <Form onSubmit={submit} submit={names.length === 1 ? 'Add domain' : `Add ${plural(names.length, 'domain')}`} disabled={lacks}>
        <Card title={names.length === 1 ? 'Who hosts DNS for this domain?' : 'Who hosts DNS for these domains?'} note="DNS tells other servers where to deliver your mail. Choose who publishes the DNS records.">
          <Ways value={way} proposal={provider.loading ? undefined : proposal} onChange={setWay} nameservers={account.nameservers} />
        </Card>
        {way !== undefined && way !== 'external' && (
          <Card title="If the domain is in use" note={inUse[way]}>
            <Check label="Keep mail at its present servers for now" checked={mailStays} onChange={setMailStays} hint="The present MX records stay until you bring the mail here. Create the mailboxes and import their mail first." />
          </Card>
        )}
        {way === 'credential' && (
          <Card title="DNS credential"><CredentialChoice of={credentials} value={credential} onChange={setCredential} /></Card>
        )}
        {way === 'credential' && credential !== '' && (
          <Card title={names.length === 1 ? 'What will change' : `What will change for ${names[0]}`} note={names.length === 1 ? 'At your DNS provider. All other records stay.' : 'At your DNS provider. The other domains are changed in the same way.'}>
            <PlanPreview of={plan} replace={replace} onReplace={setReplace} />
          </Card>
        )}
        <Extras value={extras} onChange={setExtras} hosted={way !== 'external' && !stays} />
      </Form>
      <AddCredential of={credentials} guess={guess} onAdded={setCredential} />
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
  const runBy = p.dns_provider_guess && providerNames[p.dns_provider_guess]
  return <p class="small"><span class="muted">{name} is registered at</span> {p.registrar ?? 'an unknown registrar'}<span class="muted">. Nameservers:</span> {p.nameservers.slice(0, 2).join(', ') || 'none'}{runBy && <span class="muted"> ({runBy})</span>}</p>
}

const inUse: Record<Exclude<Way, 'external'>, string> = {
  builtin: 'Adding it changes nothing yet. Mailstead reads its present records first, and shows what stays and what changes before you change the nameservers.',
  credential: 'Its website and its other records stay as they are. Only the records listed below are added or changed.',
  manual: 'Adding it changes nothing yet. Its website and its other records stay as they are.',
}

interface Choice { way: Way; credential: string; replace: boolean; stays: boolean }

/** What is chosen, as both ways to add domains take it. */
function taken({ way, credential, replace }: Choice) {
  return { manual_dns: way === 'manual' || undefined, ...(way === 'credential' ? { dns_credential_id: credential, replace: replace || undefined } : {}) }
}

async function connectAll(names: string[], choice: Choice, extras: ExtrasForm): Promise<Connection[]> {
  const { domains } = await call('connect_domains', {
    domains: names, tags: extras.tags.length > 0 ? extras.tags : undefined,
    ...taken(choice), external: choice.way === 'external' || undefined, mx: choice.stays ? 'elsewhere' : undefined,
  })
  return domains
}

/** Sets domains up with mailboxes and the like, one after the other. One that fails does not stop its neighbours. */
async function setUpAll(names: string[], choice: Choice, extras: ExtrasForm): Promise<Connection[]> {
  const results: Connection[] = []
  for (const domain of names) {
    const result: Connection = { domain, domain_id: null, status: 'created', dns_provider: choice.way, nameservers: [], error: null }
    try {
      const job = await call('setup_domain', {
        domain, ...taken(choice),
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

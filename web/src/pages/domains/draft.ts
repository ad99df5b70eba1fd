// What is changed on the tabs of a domain, and how it is saved.
import { call, can, type Input } from '../../api/client'
import { savedBy, useDraft, type Draft, type SavePart } from '../../ui'
import { withoutObsolete } from './dmarc-text'
import type { Domain } from './words'

/** The settings of a domain as their fields have them. */
export interface DomainForm {
  catchAll: string; mode: Domain['sending_mode']; relay: string; unsubscribe: boolean; strict: boolean
  /** Where the website is, and its addresses or the name of its host. */
  apex: NonNullable<Domain['apex']>['mode']; place: string
  /** more has tags that are typed beside those that are there. */
  tags: string[]; more: string; notes: string; renew: boolean
}

/** The record of a DMARC policy; null for the default one. */
interface DmarcForm { value: string | null }

interface RedirectForm { url: string; permanent: boolean; path: boolean }

export interface DomainDrafts { settings: Draft<DomainForm>; forward: Draft<{ address: string }>; redirect: Draft<RedirectForm>; dmarc: Draft<DmarcForm> }

function formOf(d: Domain): DomainForm {
  return {
    catchAll: d.catch_all ?? '', mode: d.sending_mode, relay: d.relay ?? '', unsubscribe: d.list_unsubscribe, strict: d.tls_policy === 'required',
    apex: d.apex?.mode ?? 'here', place: d.apex?.alias ?? d.apex?.addresses.join(', ') ?? '', tags: d.tags, more: '', notes: d.notes ?? '', renew: d.auto_renew,
  }
}

/**
 * The place of a website, as the API takes it: addresses, or the name of a host whose addresses
 * are used.
 */
export function placed(text: string) {
  const words = text.split(/[\s,;]+/).filter(Boolean)
  return words.length === 1 && !/^[\d.]+$|:/.test(words[0]!) ? { alias: words[0]! } : { addresses: words, alias: null }
}

/** What was changed, as the API takes it. */
function changeOf(changes: Partial<DomainForm>, f: DomainForm): Omit<Input<'update_domain'>, 'domain_id'> {
  const has = (...names: (keyof DomainForm)[]) => names.some((name) => name in changes)
  return {
    ...(has('catchAll') && { catch_all: f.catchAll.trim() || null }),
    ...(has('mode') && { sending_mode: f.mode }),
    ...(has('relay') && { relay: f.relay.trim() || null }),
    ...(has('unsubscribe') && { list_unsubscribe: f.unsubscribe }),
    ...(has('strict') && { tls_policy: f.strict ? 'required' as const : 'opportunistic' as const }),
    ...(has('apex', 'place') && { apex: f.apex === 'here' ? { mode: f.apex } : { mode: 'elsewhere' as const, ...(has('place') && placed(f.place)) } }),
    ...(has('tags', 'more') && { tags: [...f.tags, ...f.more.split(',').map((tag) => tag.trim()).filter(Boolean)] }),
    ...(has('notes') && { notes: f.notes.trim() || null }),
    ...(has('renew') && { auto_renew: f.renew }),
  }
}

/** The drafts of a domain's tabs, and the parts in the order in which they are saved. */
export function useDomainDrafts(d: Domain, reload: () => Promise<void>): { drafts: DomainDrafts; parts: SavePart[] } {
  const settings = useDraft(formOf(d)), forward = useDraft({ address: d.forward_address ?? '' })
  const redirect = useDraft<RedirectForm>({ url: d.redirect?.url ?? '', permanent: d.redirect?.permanent ?? true, path: d.redirect?.preserve_path ?? false })
  const dmarc = useDraft<DmarcForm>({ value: d.dmarc_override?.value ?? null })
  const redirected = savedBy(redirect, async (_, { url, permanent, path }) => {
    if (url.trim()) await call('set_redirect', { domain_id: d.id, redirect_url: url.trim(), permanent, preserve_path: path })
    else if (d.redirect) await call('delete_redirect', { domain_id: d.id })
    await reload()
  })
  const set = savedBy(settings, async (changes, values) => {
    await call('update_domain', { domain_id: d.id, ...changeOf(changes, values) })
    await reload()
  })
  const ends = redirect.values.url.trim() === '' // a website elsewhere and a redirect exclude each other: what is there goes first
  return {
    drafts: { settings, forward, redirect, dmarc },
    parts: [
      ...(ends ? [redirected, set] : [set, redirected]),
      savedBy(forward, async (_, { address }) => {
        if (address.trim()) await call('set_forward', { domain_id: d.id, forward_address: address.trim() })
        else await call('delete_forward', { domain_id: d.id })
        await reload()
      }),
      ...(d.dns_provider === 'manual' || !can('set_dmarc') ? [] : [savedBy(dmarc, async (_, { value }) => { // there it is only worked out
        await call('set_dmarc', { domain_id: d.id, value: withoutObsolete(value ?? '') })
        await reload()
      })]),
    ],
  }
}

/** The tabs of the fields that drafts have. */
export const tabsOfFields: Record<string, string> = {
  catch_all: 'mail', forward_address: 'mail', sending_mode: 'mail', relay: 'mail', list_unsubscribe: 'mail', tls_policy: 'mail', apex: 'mail', redirect_url: 'mail',
  tags: 'settings', notes: 'settings', auto_renew: 'settings', value: 'dmarc',
}

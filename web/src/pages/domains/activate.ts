// Domains whose records are all there are activated without being asked.
import { useEffect } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import type { Domain } from './words'

const tried = new Set<string>() // since the page was loaded

/** Verifies a domain whose records are kept by hand, once. */
async function activate(id: string) {
  if (tried.has(id) || !can('verify_dns')) return
  tried.add(id)
  await call('verify_dns', { domain_id: id }).catch(() => { /* its page has a button, and says why */ })
}

/** Activates a domain as soon as all its records are found. */
export function useActivation(d: Domain, found: boolean) {
  useEffect(() => {
    if (found && d.status === 'pending_dns_records') void activate(d.id)
  }, [d.id, d.status, found])
}

const most = 20 // of a list, at once

/**
 * In the sandbox this server answers for every domain, so there is nothing to add by hand: such
 * domains are activated.
 */
export function useSandboxActivation(domains: Domain[] | undefined) {
  const waiting = session.value?.sandbox ? (domains ?? []).filter((d) => d.dns_provider === 'manual' && d.status === 'pending_dns_records').slice(0, most) : []
  const ids = waiting.map((d) => d.id).join()
  useEffect(() => {
    for (const d of waiting) void activate(d.id)
  }, [ids])
}

// In the sandbox, domains whose records are kept by hand are activated without a wait.
import { useEffect } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import type { Domain } from './words'

const tried = new Set<string>() // since the page was loaded

/** Verifies a domain whose records are kept by hand, once. */
async function activate(id: string) {
  if (tried.has(id) || !can('verify_dns')) return
  tried.add(id)
  await call('verify_dns', { domain_id: id }).catch(() => { /* its page says why */ })
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

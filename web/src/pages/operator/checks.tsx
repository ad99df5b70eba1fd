// The checks of the server's health as pages show them, with the page where each is fixed.
import type { Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import type { Mend } from '../../api/wording'
import { plural, Time, words, type Tone } from '../../ui'

export type Health = Schemas['Health']
export type Check = Schemas['Check']

export const standings: Record<Health['status'], [Tone, string]> = { ok: ['ok', 'Healthy'], warning: ['warn', 'Warning'], error: ['bad', 'Error'] }

const names: Record<string, string> = {
  backup: 'Backups', blocklist: 'Block lists', domain_dns: 'DNS of domains', hostname_address: 'Hostname', passwords: 'Imported passwords', port25_out: 'Outgoing port 25',
  ptr: 'Reverse DNS (PTR)', relay: 'Relays', resolver: 'DNS resolver',
}

/** What a check looks at. */
export function nameOf(c: Check): string {
  return names[c.code] ?? words(c.code)
}

const backups: Mend = { href: '/backups', link: 'Open backups' }

const fixes: Record<string, Mend> = {
  backup: backups, backup_drill: backups,
  domain_dns: { href: '/domains', link: 'Open domains' },
  passwords: { href: '/mailboxes', link: 'Open mailboxes' },
  relay: { href: '/settings?q=relay', link: 'Open settings' },
  sending_limits: { href: '/settings?q=limits', link: 'Open settings' },
  settings: { href: '/settings', link: 'Open settings' },
}

/** The page where what a check finds is fixed, if the dashboard has one. */
export function fixOf(c: Check): Mend | undefined {
  return fixes[c.code]
}

/** What is wrong: errors, then warnings. */
export function problemsOf(checks: Check[]): Check[] {
  return [...checks.filter((c) => c.status === 'error'), ...checks.filter((c) => c.status === 'warning')]
}

/** The outcome of all checks in a few words. */
export function outcomeOf(checks: Check[]): string {
  const n = (status: Check['status']) => checks.filter((c) => c.status === status).length
  const bad = [n('error') > 0 && plural(n('error'), 'error'), n('warning') > 0 && plural(n('warning'), 'warning')].filter(Boolean)
  return bad.length > 0 ? bad.join(', ') : `${plural(n('ok'), 'check')} passed`
}

/**
 * The health of the server. It changes with jobs such as backups, and with what happens to mail.
 */
export function useHealth(when = true, pause = 60_000) {
  return useQuery('get_health', {}, { when, kinds: ['event', 'job'], pause })
}

/** A text of the server in which commands stand between backticks, and times are in UTC. */
export function withCode(text: string) {
  return <bdi dir="auto">{text.split('`').map((piece, i) => (i % 2 === 1 ? <code key={i}>{piece}</code> : withTimes(piece)))}</bdi>
}

function withTimes(text: string) {
  return text.split(/(\d{4}-\d\d-\d\dT[\d:.]+Z)/).map((piece, i) => (i % 2 === 1 ? <Time key={i} of={piece} form="at" /> : piece))
}

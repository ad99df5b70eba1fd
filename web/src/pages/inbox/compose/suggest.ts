// Who may be meant by what is typed in a field of recipients.
import { can } from '../../../api/client'
import { useQuery } from '../../../api/query'
import { t } from '../../../words'
import { emailOf, nameOf } from '../people'

export interface Suggestion { email: string; name: string; /** What it is, where it is no person who was written to. */ kind: string }

const most = 8

/**
 * People who were written to, then mailboxes and groups of the account. done: nothing more comes
 * for this text.
 */
export function useSuggestions(userID: string, q: string): { found: Suggestion[]; done: boolean } {
  const when = userID !== '' && q.length > 0 && q.length <= 60
  const people = useQuery('suggest_addresses', { user_id: userID, q, limit: most }, { when, kinds: [] })
  const ofAccount = when && can('list_email_users'), ofGroups = when && can('list_groups')
  const mailboxes = useQuery('list_email_users', { q, limit: most }, { when: ofAccount, kinds: [] })
  const groups = useQuery('list_groups', { q, limit: most }, { when: ofGroups, kinds: [] })
  if (!when) return { found: [], done: true }
  const all: Suggestion[] = [
    ...(people.data?.data ?? []).map((p) => ({ email: p.email, name: p.name ?? '', kind: '' })),
    ...(ofAccount ? mailboxes.data?.data ?? [] : []).filter((m) => m.status !== 'deleting').map((m) => ({ email: m.email, name: m.name, kind: t('compose.colleague') })),
    ...(ofGroups ? groups.data?.data ?? [] : []).map((g) => ({ email: g.email, name: g.name, kind: t('compose.group') })),
  ]
  const seen = new Set<string>()
  const found = all.filter(({ email }) => !seen.has(email.toLowerCase()) && seen.add(email.toLowerCase())).slice(0, most)
  return { found, done: !people.loading && !(ofAccount && mailboxes.loading) && !(ofGroups && groups.loading) }
}

/** A suggestion as it stands in a field: Name <address>, or the address. */
export function textOf({ email, name }: Suggestion): string {
  if (!name) return email
  return /^[\p{L}\p{N} .'’-]+$/u.test(name) ? `${name} <${email}>` : `"${name.replace(/[\\"]/g, '\\$&')}" <${email}>`
}

/** Whether what is typed is an address already, for which nothing else is meant. */
export function isSaid(typed: string, first: Suggestion | undefined): boolean {
  return /^[^\s@]+@[^\s@]+\.[^\s@.]{2,}$/.test(emailOf(typed)) && emailOf(typed).toLowerCase() !== first?.email.toLowerCase() || nameOf(typed) !== emailOf(typed)
}

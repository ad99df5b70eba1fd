// Places that are for those alone whose role may do what they are for.
import { can, person, type Operation } from './api/client'
import { match } from './router'

interface Gated { path: string; needs: Operation; deed: string }

const gated: Gated[] = [
  { path: '/domains/add', needs: 'connect_domains', deed: 'add domains' },
  { path: '/account/dns', needs: 'list_dns_credentials', deed: 'see DNS credentials' },
  { path: '/mailboxes/bulk', needs: 'create_email_users_bulk', deed: 'create mailboxes' },
  { path: '/approvals', needs: 'list_approvals', deed: 'see approvals' },
  { path: '/approvals/:id', needs: 'get_approval', deed: 'see approvals' },
  { path: '/webhooks', needs: 'list_webhooks', deed: 'see webhooks' },
  { path: '/webhooks/events', needs: 'list_events', deed: 'see events' },
  { path: '/webhooks/:id', needs: 'get_webhook', deed: 'see webhooks' },
  { path: '/sent/reputation', needs: 'get_reputation', deed: 'see the reputation' },
  { path: '/sent/lookup', needs: 'lookup_message', deed: 'look messages up' },
]

const own = ['/', '/inbox', '/compose', '/me', '/v1'] // of the person of a mailbox; the API says itself what they may do

/** What the signed-in user's role may not do, if an address is a place for that; nothing if they may open it. */
export function barred(href: string): string | undefined {
  const path = href.split('?')[0]!
  if (person()) return own.some((at) => path === at || path.startsWith(at + '/')) ? undefined : 'open this page'
  return gated.find((g) => match(g.path, path) && !can(g.needs))?.deed
}

// Places that are for those alone whose role may do what they are for.
import { can, person, session, type Operation } from './api/client'
import { match } from './router'

/** A place that is not for everybody: what one needs for it, and what it is for. */
interface Gated {
  path: string
  needs: Operation
  deed: string
  /** Only for those who run the server. */
  operator?: true
}

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
  { path: '/requests', needs: 'list_requests', deed: 'see requests' },
  { path: '/requests/:id', needs: 'get_request', deed: 'see requests' },
  { path: '/audit', needs: 'list_audit', deed: 'see the audit log' },
  { path: '/settings', needs: 'list_settings', deed: 'see the server’s settings', operator: true },
  { path: '/host', needs: 'get_health', deed: 'see the server’s health', operator: true },
  { path: '/backups', needs: 'list_backups', deed: 'see backups', operator: true },
  { path: '/accounts', needs: 'list_accounts', deed: 'see accounts', operator: true },
  { path: '/accounts/:id', needs: 'get_account_by_id', deed: 'see accounts', operator: true },
]

const own = ['/', '/inbox', '/compose', '/me', '/v1'] // of the person of a mailbox; the API says itself what they may do

/** What the signed-in user may not do, and whether only those who run the server may. */
export interface Bar { deed: string; operator?: true }

/** What keeps the signed-in user from an address; nothing if they may open it. */
export function barred(href: string): Bar | undefined {
  const path = href.split('?')[0]!
  if (person()) return own.some((at) => path === at || path.startsWith(at + '/')) ? undefined : { deed: 'open this page' }
  return gated.find((g) => match(g.path, path) && !(can(g.needs) && (!g.operator || session.value!.operator)))
}

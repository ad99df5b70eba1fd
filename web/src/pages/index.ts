// The places of the dashboard.
import type { ComponentType } from 'preact'
import { lazy, type Part } from './lazy'
import * as parts from './parts'
import type { Place } from './types'

/** Makes places of the pages of a part of the script. */
function placesOf<M>(of: Part<M>) {
  return (path: string, name: keyof M): Place => ({ path, page: lazy(of, (m) => m[name] as ComponentType<any>) })
}

const team = placesOf(parts.team), domains = placesOf(parts.domains), operator = placesOf(parts.operator)

const inbox = lazy(parts.mail, (m) => m.Inbox)

const mail: Place[] = [
  { path: '/inbox', page: inbox, keep: 'inbox' },
  { path: '/inbox/:user_id/:uid', page: inbox, keep: 'inbox' },
  { path: '/compose', page: lazy(parts.mail, (m) => m.ComposePage) },
]

/** Where the server asks whether a program may act for a team user; the person of a mailbox gets a page of its own there. */
const consent: Place = { path: '/oauth/authorize', page: lazy(parts.team, (m) => m.Consent) }

/**
 * Makes the places of a page with tabs: each has an address, and the page stays as the viewer goes
 * from one to the other.
 */
function tabbed(first: Place): Place[] {
  return [first, { ...first, path: first.path + '/:tab' }].map((place) => ({ ...place, keep: first.path }))
}

/** The places of a team user. */
export const places: Place[] = [
  team('/', 'Overview'),
  team('/mailboxes', 'Mailboxes'), team('/mailboxes/templates', 'Templates'), team('/mailboxes/groups', 'Groups'), team('/mailboxes/bulk', 'Bulk'), ...tabbed(team('/mailboxes/:id', 'Mailbox')),
  ...mail,
  domains('/domains', 'Domains'), domains('/domains/add', 'Add'), ...tabbed(domains('/domains/:id', 'DomainPage')),
  team('/jobs', 'Jobs'), team('/jobs/:id', 'Job'),
  team('/account', 'Account'), team('/account/dns', 'DNSCredentials'), team('/connect', 'Connect'),
  team('/team', 'Team'), team('/tokens', 'Tokens'), team('/profile', 'Profile'),
  team('/sent', 'Sent'), team('/sent/suppressions', 'Suppressions'), team('/sent/lookup', 'Lookup'),
  team('/sent/reputation', 'Reputation'), team('/sent/templates', 'MessageTemplates'), team('/sent/:id', 'Message'),
  team('/approvals', 'Approvals'), team('/approvals/:id', 'ApprovalPage'),
  team('/webhooks', 'Webhooks'), team('/webhooks/events', 'Events'), team('/webhooks/:id', 'Endpoint'),
  operator('/settings', 'Settings'),
  operator('/host', 'Host'), operator('/backups', 'Backups'),
  operator('/accounts', 'Accounts'), operator('/accounts/:id', 'AccountPage'),
  operator('/requests', 'Requests'), operator('/requests/:id', 'RequestPage'),
  operator('/audit', 'Audit'),
  consent,
]

/** The places of the person of a mailbox. */
export const ownPlaces: Place[] = [...mail, { path: '/me', page: lazy(parts.own, (m) => m.Me) }]

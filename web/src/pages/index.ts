// The places of the dashboard.
import type { ComponentType } from 'preact'
import { lazy } from './lazy'
import * as parts from './parts'
import type { Place } from './types'

type Team = NonNullable<typeof parts.team.now>
type Domains = NonNullable<typeof parts.domains.now>

function team(path: string, name: keyof Team): Place {
  return { path, page: lazy(parts.team, (m) => m[name] as ComponentType<any>) }
}

function domains(path: string, name: keyof Domains): Place {
  return { path, page: lazy(parts.domains, (m) => m[name] as ComponentType<any>) }
}

const inbox = lazy(parts.mail, (m) => m.Inbox)

const mail: Place[] = [
  { path: '/inbox', page: inbox, keep: 'inbox' },
  { path: '/inbox/:user_id/:uid', page: inbox, keep: 'inbox' },
  { path: '/compose', page: lazy(parts.mail, (m) => m.ComposePage) },
]

/** Where the server asks whether a program may act for a team user; the person of a mailbox gets a page of its own there. */
const consent: Place = { path: '/oauth/authorize', page: lazy(parts.team, (m) => m.Consent) }

/** The places of a team user. */
export const places: Place[] = [
  team('/', 'Overview'),
  team('/mailboxes', 'Mailboxes'), team('/mailboxes/templates', 'Templates'), team('/mailboxes/groups', 'Groups'), team('/mailboxes/bulk', 'Bulk'), team('/mailboxes/:id', 'Mailbox'),
  ...mail,
  domains('/domains', 'Domains'), domains('/domains/add', 'Add'), domains('/domains/:id', 'DomainPage'), domains('/domains/:id/:tab', 'DomainPage'),
  team('/jobs', 'Jobs'), team('/jobs/:id', 'Job'),
  team('/account', 'Account'), team('/connect', 'Connect'),
  team('/team', 'Team'), team('/tokens', 'Tokens'), team('/profile', 'Profile'),
  team('/sent', 'Sent'), team('/sent/suppressions', 'Suppressions'), team('/sent/lookup', 'Lookup'),
  team('/sent/reputation', 'Reputation'), team('/sent/templates', 'MessageTemplates'), team('/sent/:id', 'Message'),
  team('/approvals', 'Approvals'), team('/approvals/:id', 'ApprovalPage'),
  team('/webhooks', 'Webhooks'), team('/webhooks/events', 'Events'), team('/webhooks/:id', 'Endpoint'),
  consent,
]

/** The places of the person of a mailbox. */
export const ownPlaces: Place[] = [...mail, { path: '/me', page: lazy(parts.own, (m) => m.Me) }]

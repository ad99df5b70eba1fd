// The places of the dashboard. Each folder lists its own.
import type { ComponentType } from 'preact'
import { places as account } from './account'
import { places as inbox } from './inbox'
import { places as domains } from './domains'
import { places as jobs } from './jobs'
import { places as mailboxes } from './mailboxes'
import { places as overview } from './overview'
import { places as people } from './people'
import { places as sent } from './sent'
import { places as webhooks } from './webhooks'

/** A place: a pattern such as /domains/:id and the page that is shown there, which gets the named parts. */
export interface Place {
  path: string
  page: ComponentType<any>
  /** Places of one name are one page, which stays as it is when the viewer goes from one to the other. */
  keep?: string
}

export const places: Place[] = [
  ...overview,
  ...mailboxes,
  ...inbox,
  ...domains,
  ...jobs,
  ...account,
  ...people,
  ...sent,
  ...webhooks,
]

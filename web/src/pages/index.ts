// The places of the dashboard. Each folder lists its own.
import { places as account } from './account'
import { places as inbox } from './inbox'
import { places as domains } from './domains'
import { places as jobs } from './jobs'
import { places as mailboxes } from './mailboxes'
import { places as overview } from './overview'
import { places as people } from './people'
import { places as sent } from './sent'
import type { Place } from './types'
import { places as webhooks } from './webhooks'

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

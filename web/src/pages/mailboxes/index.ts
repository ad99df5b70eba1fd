import './mailboxes.css'
import type { Place } from '../types'
import { Bulk } from './bulk'
import { Mailbox } from './mailbox'
import { Mailboxes } from './mailboxes'
import { Templates } from './templates'

export const places: Place[] = [
  { path: '/mailboxes', page: Mailboxes }, { path: '/mailboxes/templates', page: Templates }, { path: '/mailboxes/bulk', page: Bulk }, { path: '/mailboxes/:id', page: Mailbox },
]

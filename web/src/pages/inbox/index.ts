import './inbox.css'
import './message.css'
import './compose/compose.css'
import type { Place } from '../types'
import { ComposePage } from './compose/page'
import { Inbox } from './inbox'

export const places: Place[] = [
  { path: '/inbox', page: Inbox, keep: 'inbox' },
  { path: '/inbox/:user_id/:uid', page: Inbox, keep: 'inbox' },
  { path: '/compose', page: ComposePage },
]

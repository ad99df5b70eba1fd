import './sent.css'
import type { Place } from '../types'
import { Lookup } from './lookup'
import { Message } from './message'
import { Reputation } from './reputation'
import { Sent } from './sent'
import { Suppressions } from './suppressions'
import { MessageTemplates } from './templates'

export const places: Place[] = [
  { path: '/sent', page: Sent }, { path: '/sent/suppressions', page: Suppressions }, { path: '/sent/lookup', page: Lookup },
  { path: '/sent/reputation', page: Reputation }, { path: '/sent/templates', page: MessageTemplates }, { path: '/sent/:id', page: Message },
]

import './sent.css'
import type { Place } from '../types'
import { Lookup } from './lookup'
import { Message } from './message'
import { Sent } from './sent'
import { Suppressions } from './suppressions'

export const places: Place[] = [
  { path: '/sent', page: Sent }, { path: '/sent/suppressions', page: Suppressions }, { path: '/sent/lookup', page: Lookup }, { path: '/sent/:id', page: Message },
]

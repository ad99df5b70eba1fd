import './webhooks.css'
import type { Place } from '../types'
import { Endpoint } from './endpoint'
import { Events } from './events'
import { Webhooks } from './webhooks'

export const places: Place[] = [
  { path: '/webhooks', page: Webhooks }, { path: '/webhooks/events', page: Events }, { path: '/webhooks/:id', page: Endpoint },
]

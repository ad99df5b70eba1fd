import './domains.css'
import type { Place } from '../types'
import { Add } from './add'
import { DomainPage } from './domain'
import { Domains } from './list'

export const places: Place[] = [
  { path: '/domains', page: Domains },
  { path: '/domains/add', page: Add },
  { path: '/domains/:id', page: DomainPage },
  { path: '/domains/:id/:tab', page: DomainPage },
]

import type { Place } from '../types'
import { Account } from './account'
import { Connect } from './connect'

export const places: Place[] = [{ path: '/account', page: Account }, { path: '/connect', page: Connect }]

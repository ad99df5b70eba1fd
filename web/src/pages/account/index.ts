import type { Place } from '../index'
import { Account } from './account'
import { Connect } from './connect'

export const places: Place[] = [{ path: '/account', page: Account }, { path: '/connect', page: Connect }]

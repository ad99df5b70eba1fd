import './overview.css'
import type { Place } from '../types'
import { Overview } from './overview'

export const places: Place[] = [{ path: '/', page: Overview }]

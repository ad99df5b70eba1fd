import './overview.css'
import type { Place } from '../index'
import { Overview } from './overview'

export const places: Place[] = [{ path: '/', page: Overview }]

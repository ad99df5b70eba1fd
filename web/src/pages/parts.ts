// The parts of the script.
import { part } from './lazy'

export const mail = part(() => import('./inbox'))
export const team = part(() => import('./team'))
export const domains = part(() => import('./domains'))
export const operator = part(() => import('./operator'))
export const own = part(() => import('./me'))
export const palette = part(() => import('../palette/palette'))

// The part of the script that draws PDFs, which is long.
import { part } from '../lazy'

export const pdf = part(() => import('./pdf'))

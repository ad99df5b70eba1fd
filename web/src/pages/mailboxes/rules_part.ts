// The part of the script that has the editor of rules, for pages that seldom need it.
import { part } from '../lazy'

export const rules = part(() => import('./rules'))

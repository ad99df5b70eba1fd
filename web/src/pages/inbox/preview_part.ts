// The part of the script that shows files of messages.
import { part } from '../lazy'

export const preview = part(() => import('./preview'))

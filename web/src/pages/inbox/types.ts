// What several files of the inbox speak of.
import type { Schemas } from '../../api/client'
import type { Message } from './actions'

export type Detail = Schemas['MessageDetail']

/** Where one can go from the open message. after is the next one that stays when some go. */
export interface Steps { next: Message | undefined; previous: Message | undefined; after: (messages: Message[]) => Message | undefined }

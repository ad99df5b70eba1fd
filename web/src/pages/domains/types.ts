// What several files of the domain pages speak of.
import type { Schemas } from '../../api/client'
import type { DomainDrafts } from './draft'
import type { Domain } from './words'

/** A domain that is offered for sale, or is taken. */
export type Offer = Schemas['SearchResult']

/** What each tab of a domain's page gets. */
export interface TabProps { domain: Domain; reload: () => Promise<void> }

/** What a tab gets that has fields of the save bar. */
export interface FieldsProps extends TabProps { drafts: DomainDrafts }

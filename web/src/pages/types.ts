// What the folders of pages have in common.
import type { Lazy } from './lazy'

/** A place: a pattern such as /domains/:id and the page that is shown there, which gets the named parts. */
export interface Place {
  path: string
  page: Lazy
  /**
   * Places of one name are one page, which stays as it is when the viewer goes from one to the
   * other. A part of the address in the name, such as :id, makes a page of each.
   */
  keep?: string
}

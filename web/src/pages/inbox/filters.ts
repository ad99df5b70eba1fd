// What the list is narrowed by. It stands in the address by the names of the API, so that links lead to what one sees.
import type { Input } from '../../api/client'
import { params, setParams } from '../../router'
import { inFolder, type Ref } from './actions'

export const filterNames = ['mailbox', 'folder', 'q', 'from', 'is_read', 'is_flagged', 'has_attachments', 'exclude_warmup', 'date_from', 'date_to'] as const
export type FilterName = (typeof filterNames)[number]

/** The filters of the address, as list_inbox takes them. */
export function filters(): Input<'list_inbox'> {
  const p = params.value
  const text = (name: FilterName) => p.get(name) || undefined
  return {
    mailbox: text('mailbox'), folder: text('folder'), q: text('q'), from: text('from'),
    is_read: p.has('is_read') ? p.get('is_read') === 'true' : undefined,
    is_flagged: p.get('is_flagged') === 'true' || undefined,
    has_attachments: p.get('has_attachments') === 'true' || undefined,
    exclude_warmup: p.get('exclude_warmup') === 'true' || undefined,
    date_from: day(text('date_from')), date_to: day(text('date_to')),
  }
}

function day(text: string | undefined): string | undefined {
  return text && /^\d{4}-\d\d-\d\d$/.test(text) ? text : undefined
}

export function setFilter(change: Partial<Record<FilterName, string | undefined>>) {
  setParams(change)
}

const where: readonly string[] = ['mailbox', 'folder']

/** Takes all filters away but the mailbox and the folder. */
export function clearFilters() {
  setParams(Object.fromEntries(filterNames.filter((n) => !where.includes(n)).map((n) => [n, undefined])))
}

/** Whether anything but the mailbox and the folder narrows the list. */
export function isFiltered(): boolean {
  return filterNames.some((n) => !where.includes(n) && params.value.has(n))
}

/** How many filters are set that the page keeps in its panel. */
export function hiddenFilters(): number {
  return (['from', 'date_from', 'date_to'] as const).filter((n) => params.value.has(n)).length
}

/** The place of a message, or of the list, with the filters of now. */
export function placeOf(message?: Ref): string {
  const kept = new URLSearchParams([...params.value].filter(([name]) => (filterNames as readonly string[]).includes(name)))
  const folder = message && inFolder(message)
  if (folder) kept.set('in', folder)
  return '/inbox' + (message ? `/${message.user_id}/${message.uid}` : '') + (kept.size > 0 ? '?' + kept : '')
}

/** The place of a message with no filters. */
export function placeOfMessage(m: Ref): string {
  const folder = inFolder(m)
  return `/inbox/${m.user_id}/${m.uid}` + (folder ? '?in=' + encodeURIComponent(folder) : '')
}

/** The place of a folder of the mailbox in view, by its role or its name. */
export function placeOfFolder(folder: string): string {
  const kept = new URLSearchParams()
  const mailbox = params.value.get('mailbox')
  if (mailbox) kept.set('mailbox', mailbox)
  if (folder !== 'inbox') kept.set('folder', folder)
  return '/inbox' + (kept.size > 0 ? '?' + kept : '')
}

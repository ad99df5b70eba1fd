// The title of the browser's tab: the page, and before it how many messages are unread.
import { effect, signal } from '@preact/signals'

const page = signal('')

/**
 * How many messages are unread in the inbox in view; undefined while there is none, or it is not
 * known.
 */
export const unread = signal<number | undefined>(undefined)

/** Names the page in the browser's tab. */
export function setTitle(text: string) {
  page.value = text
}

effect(() => {
  const n = unread.value ?? 0
  if (page.value !== '') document.title = `${n > 0 ? `(${n > 999 ? '999+' : n}) ` : ''}${page.value} · Mailstead`
})

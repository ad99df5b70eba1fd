// The texts of the pages of people with a mailbox, in their language. All other pages are English.
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { en } from './words/en'

export type Words = typeof en
export type Key = keyof Words
type Counted = Key extends infer K ? K extends `${infer Base}.other` ? Base : never : never
export type Values = Record<string, string | number>

/** The texts of the language that is in use. */
export const texts = signal<Words>(en)

/** The language that is in use, as in the attribute lang. */
export const language = signal('en')

/** A text, with values for its {names}. */
export function t(key: Key, values: Values = {}): string {
  return texts.value[key].replace(/\{(\w+)\}/g, (whole, name: string) => values[name]?.toString() ?? whole)
}

/** A text with parts of the page, such as links, for its {names}. */
export function rich(key: Key, parts: Record<string, ComponentChildren>): ComponentChildren[] {
  return texts.value[key].split(/\{(\w+)\}/).map((piece, i) => (i % 2 === 1 ? parts[piece] : piece))
}

/** The form of a text for a count. {n} is the count. */
export function tn(base: Counted, n: number, values: Values = {}): string {
  const form = new Intl.PluralRules(language.value).select(n)
  const key = `${base}.${form === 'one' ? 'one' : 'other'}` as Key
  return t(key, { n: n.toLocaleString(language.value), ...values })
}

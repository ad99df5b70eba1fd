// The texts of the pages of people with a mailbox, and of those before the sign-in, in the language
// of the page. All other pages are in English.
import { batch, computed, signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import table from './api/wordings.json'
import { en } from './words/en'

type Codes = typeof table.codes
type OfPeople = { [C in keyof Codes]: Codes[C] extends { people: boolean } ? C : never }[keyof Codes]

/**
 * The texts of errors that these pages can show: of codes that are marked in the table, and of what
 * is wrong with a field. Their English is that of the table.
 */
type Errors = Record<`error.${OfPeople}` | `detail.${keyof typeof table.details}`, string>

/** What a file of a language has: every text. */
export type Words = typeof en & Errors
export type Key = keyof Words
type Counted = Key extends infer K ? K extends `${infer Base}.other` ? Base : never : never
export type Values = Record<string, string | number>

/** The texts in English. */
export const english: Words = {
  ...en,
  ...Object.fromEntries(Object.entries(table.codes).filter(([, c]) => 'people' in c).map(([code, c]) => ['error.' + code, c.text])),
  ...Object.fromEntries(Object.entries(table.details).map(([code, text]) => ['detail.' + code, text])),
} as Words

/** The texts of the language that is in use. */
const texts = signal<Words>(english)

/** The language that is in use, as in the attribute lang. */
export const language = signal('en')

/**
 * How dates and numbers are written: as the browser has it for this language, with its country. A
 * browser without English is not in the US, whose order of day and month is its own.
 */
export const locale = computed(() => {
  const of = language.value
  return (globalThis.navigator?.languages ?? []).find((tag) => tag.split('-')[0] === of) ?? (of === 'en' ? 'en-GB' : of)
})

/** Puts a language in use. */
export function use(to: string, words: Words = english) {
  batch(() => {
    language.value = to
    texts.value = words
  })
}

/** A text, with values for its {names}. */
export function t(key: Key, values: Values = {}): string {
  return texts.value[key].replace(/\{(\w+)\}/g, (whole, name: string) => values[name]?.toString() ?? whole)
}

/** A text whose key is made of a code of the server; undefined if there is none. */
export function textOf(key: string): string | undefined {
  return (texts.value as Record<string, string | undefined>)[key]
}

/** A text with parts of the page, such as links, for its {names}. */
export function rich(key: Key, parts: Record<string, ComponentChildren>): ComponentChildren[] {
  return texts.value[key].split(/\{(\w+)\}/).map((piece, i) => (i % 2 === 1 ? parts[piece] : piece))
}

/** The form of a text for a count. {n} is the count. */
export function tn(base: Counted, n: number, values: Values = {}): string {
  const form = new Intl.PluralRules(language.value).select(n)
  const key = `${base}.${form === 'one' ? 'one' : 'other'}` as Key
  return t(key, { n: n.toLocaleString(locale.value), ...values })
}

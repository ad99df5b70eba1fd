// Which language the page is in: the one that was chosen in this browser, else the first of the
// browser's that there is. The pages of a team are in English. Other languages are parts of the
// script, which are fetched when one is needed.
import { effect, signal } from '@preact/signals'
import { session } from './api/client'
import { language, use, type Words } from './words'

/** The languages that there are, each by its own name. */
export const languages = { en: 'English', de: 'Deutsch', fr: 'Français', es: 'Español' } as const

export type Language = keyof typeof languages

const files: Record<Exclude<Language, 'en'>, () => Promise<Words>> = {
  de: () => import('./words/de').then((m) => m.de),
  fr: () => import('./words/fr').then((m) => m.fr),
  es: () => import('./words/es').then((m) => m.es),
}

function isLanguage(tag: string | null | undefined): tag is Language {
  return tag != null && Object.hasOwn(languages, tag)
}

const key = 'language'

function stored(): Language | undefined {
  try {
    const said = localStorage.getItem(key)
    return isLanguage(said) ? said : undefined
  } catch {
    return undefined // storage may be forbidden
  }
}

/** The language that was chosen in this browser; undefined if none was. */
export const chosen = signal(stored())

/** Chooses a language, or with undefined that of the browser. This browser keeps the choice. */
export function choose(to: Language | undefined) {
  try {
    if (to) localStorage.setItem(key, to)
    else localStorage.removeItem(key)
  } catch {
    // then it holds for this page alone
  }
  chosen.value = to
}

/** The first of the browser's languages that there is. */
export function ofBrowser(): Language {
  return navigator.languages.map((tag) => tag.split('-')[0]).find(isLanguage) ?? 'en'
}

function wanted(): Language {
  return session.value?.kind === 'team' ? 'en' : chosen.value ?? ofBrowser()
}

/** Whether the first language is in use. Nothing is shown before, since its texts would change. */
export const settled = signal(false)

async function turn(to: Language) {
  try {
    const words = to === 'en' ? undefined : await files[to]()
    if (to !== wanted()) return
    use(to, words)
  } catch {
    use('en') // the server cannot be reached, or was updated: the page says so
  }
  settled.value = true
}

effect(() => void turn(wanted()))
effect(() => { document.documentElement.lang = language.value })

// Checks the texts of src/words. The types of the files see to it that every language has every
// text; this sees to it that texts have the same {names} in every language and that each is used.
import { readdir, readFile } from 'node:fs/promises'
import { build } from 'esbuild'

const here = (path) => new URL(path, import.meta.url).pathname

const names = (text) => [...new Set(text.match(/\{\w+\}/g))].sort()

/** The {names} of an English text that a language must have. What the server says, in English, may be left out. */
function wanted(key, text) {
  return names(text).filter((name) => !(key.startsWith('error.') && name === '{message}'))
}

/** Patterns of the keys that scripts make of parts, such as `sent.status.${status}` and 'field.' + field. */
function made(source) {
  const patterns = []
  for (const [, template] of source.matchAll(/`([a-z_]+\.(?:[\w.]|\$\{[^`}]*\})*)`/g)) patterns.push(template.replace(/\$\{[^}]*\}|\./g, (piece) => (piece === '.' ? '\\.' : '\\w+')))
  for (const [, prefix] of source.matchAll(/textOf\('([\w.]+)' \+/g)) patterns.push(prefix.replaceAll('.', '\\.') + '\\w+')
  return patterns.map((pattern) => new RegExp(`^${pattern}$`))
}

/**
 * What is wrong with texts, a line for each; nothing if all is well. languages has the texts of each
 * language by its tag, and en those of English; sources are the scripts that use them.
 */
export function faultsIn(languages, sources) {
  const { en, ...others } = languages
  const faults = []
  for (const [language, texts] of Object.entries(others)) {
    for (const [key, text] of Object.entries(en)) {
      if (!texts[key]) faults.push(`${language}: ${key} is missing`)
      else if (names(texts[key]).join() !== names(text).join() && names(texts[key]).join() !== wanted(key, text).join()) faults.push(`${language}: ${key} must have ${wanted(key, text).join(' ') || 'no {names}'}: ${texts[key]}`)
    }
    for (const key of Object.keys(texts)) if (!(key in en)) faults.push(`${language}: ${key} is not in en`)
  }
  const all = sources.join('\n'), patterns = made(all)
  const isUsed = (key) => all.includes(`'${key}'`) || patterns.some((p) => p.test(key))
  for (const key of Object.keys(en)) {
    if (!isUsed(key) && !isUsed(key.replace(/\.(one|other)$/, ''))) faults.push(`en: ${key} is not used`)
  }
  return faults
}

/** The texts of every language by its tag: those of the files, and in English those of errors too. */
export async function readTexts() {
  const files = (await readdir(here('src/words'))).map((name) => name.replace('.ts', '')).sort()
  const contents = [...files.map((name) => `export { ${name} } from './words/${name}'`), `export { english } from './words'`].join('\n')
  const { outputFiles: [file] } = await build({ stdin: { contents, resolveDir: here('src'), loader: 'ts' }, bundle: true, write: false, format: 'esm', logLevel: 'warning' })
  const { english, ...languages } = await import('data:text/javascript,' + encodeURIComponent(file.text))
  return { ...languages, en: english }
}

/** The scripts that use texts. */
async function readSources() {
  const paths = (await readdir(here('src'), { recursive: true })).filter((path) => /\.tsx?$/.test(path) && !/^(words|api\/generated)\//.test(path))
  return Promise.all(paths.map((path) => readFile(here('src/' + path), 'utf8')))
}

/** What is wrong with the texts of the dashboard. */
export async function check() {
  return faultsIn(await readTexts(), await readSources())
}

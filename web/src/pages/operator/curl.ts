// A request of the log as a command that asks the same again, and as a text to read. Of values that
// may be secret or private, the log keeps only the length in bytes, as {"length": 14}.

export interface Logged { method: string; path: string; body: unknown }

/** The length of a value that is not kept; undefined if the value is kept. */
function lengthOf(value: unknown): number | undefined {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return undefined
  const { length, ...rest } = value as { length?: unknown }
  return typeof length === 'number' && Object.keys(rest).length === 0 ? length : undefined
}

const cut = '…' // the name of the fields that had no room in the log

/** Replaces each value that is not kept. name is the field that has it. */
function fill(value: unknown, put: (name: string, length: number) => unknown, name = ''): unknown {
  const length = lengthOf(value)
  if (length !== undefined) return put(name, length)
  if (Array.isArray(value)) return value.map((v) => fill(v, put, name))
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, fill(v, put, name)]))
}

/** A text as one word of a POSIX shell, whatever it holds. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

/** A path as a URL has it: the log has it decoded. */
function encoded(path: string): string {
  return path.split('/').map((part) => encodeURIComponent(part).replaceAll('%40', '@').replaceAll('%3A', ':')).join('/')
}

/**
 * The fields whose values are to be filled in before the command can be run, and whether the whole
 * body is.
 */
export interface Missing { fields: string[]; body: boolean }

/**
 * The command, with $MAILSTEAD_TOKEN in the place of the token and names in angle brackets in the
 * place of values that are not kept.
 */
export function curlOf({ method, path, body }: Logged, base: string): { text: string; missing: Missing } {
  const missing: Missing = { fields: [], body: lengthOf(body) !== undefined }
  const parts = [`curl ${method === 'GET' ? '' : `-X ${method} `}${quoted(base + encoded(path))}`, '-H "Authorization: Bearer $MAILSTEAD_TOKEN"']
  if (missing.body) parts.push('--data-binary @FILE')
  else if (body !== null && body !== undefined) {
    const kept = fill(body, (name) => {
      missing.fields.push(name)
      return `<${name}>`
    }) as Record<string, unknown>
    if (missing.fields.includes(cut)) delete kept[cut]
    parts.push(`-H ${quoted('Content-Type: application/json')}`, `--data-raw ${quoted(JSON.stringify(kept))}`)
  }
  return { text: parts.join(' \\\n  '), missing }
}

/** A body to read. */
export function readable(body: unknown): string {
  const mark = (length: number) => `\u{f8ff}${length}\u{f8ff}` // of the private use area: nothing that is kept holds it
  return JSON.stringify(fill(body, (_, length) => mark(length)), null, 2).replace(/"\u{f8ff}(\d+)\u{f8ff}"/gu, '‹$1 bytes, not kept›')
}

// Lists of mailboxes as text: lines of username, name, password, separated by commas, semicolons or tabs (RFC 4180).

export interface Wanted { username: string; name?: string; password?: string }

/** Splits one text into records of fields. A field in quotation marks may hold separators and line ends. */
export function records(text: string): string[][] {
  const first = text.slice(0, text.indexOf('\n') < 0 ? text.length : text.indexOf('\n'))
  const separator = ['\t', ';', ','].find((s) => first.includes(s)) ?? ','
  const all: string[][] = []
  let record: string[] = [], field = '', quoted = false
  const end = () => {
    record.push(field)
    field = ''
  }
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!
    if (quoted) {
      if (c !== '"') field += c
      else if (text[i + 1] === '"') field += text[++i]
      else quoted = false
    } else if (c === '"' && field.trim() === '') {
      quoted = true
      field = ''
    } else if (c === separator) end()
    else if (c === '\n') {
      end()
      all.push(record)
      record = []
    } else if (c !== '\r') field += c
  }
  end()
  all.push(record)
  return all.map((r) => r.map((f) => f.trim())).filter((r) => r.some(Boolean))
}

const heads: Record<string, keyof Wanted> = { username: 'username', user: 'username', email: 'username', address: 'username', name: 'name', 'full name': 'name', password: 'password' }

/** Reads mailboxes from text. A first line of known names says what the columns are; an address counts by its part before the @. */
export function wantedOf(text: string): Wanted[] {
  const rows = records(text)
  const named = rows[0]?.map((f) => heads[f.toLowerCase()])
  const columns = named?.includes('username') ? named : (['username', 'name', 'password'] as const)
  if (columns === named) rows.shift()
  return rows.map((row) => {
    const wanted: Wanted = { username: '' }
    columns.forEach((column, i) => { if (column && row[i]) wanted[column] = row[i] })
    wanted.username = wanted.username.replace(/@.*$/, '').toLowerCase()
    return wanted
  })
}

/** Writes records as CSV. A field that a spreadsheet would take for a formula gets an apostrophe. */
export function csv(rows: string[][]): string {
  const field = (text: string) => {
    const safe = /^[=+\-@\t\r]/.test(text) ? "'" + text : text
    return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe
  }
  return rows.map((r) => r.map(field).join(',')).join('\r\n') + '\r\n'
}

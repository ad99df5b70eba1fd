// The text of a DMARC record, tag by tag.

export type Policy = 'none' | 'quarantine' | 'reject'

/** The tags of a record, in its order. */
export function dmarcTags(value: string): Record<string, string> {
  const tags: Record<string, string> = {}
  for (const part of value.split(';')) {
    const at = part.indexOf('=')
    if (at > 0) tags[part.slice(0, at).trim()] = part.slice(at + 1).trim()
  }
  return tags
}

export function dmarcText(tags: Record<string, string>): string {
  return Object.entries(tags).map(([name, text]) => `${name}=${text}`).join('; ')
}

/** The record with a tag set, or without it where the text is empty. */
export function withTag(value: string, tag: string, text: string): string {
  const { v: _, p, ...tags } = dmarcTags(value)
  const all: Record<string, string> = { v: 'DMARC1', p: p ?? 'reject', ...tags }
  if (text === '') delete all[tag]
  else all[tag] = text
  return dmarcText(all)
}

/** The tags of a record that have no effect since RFC 9989, as they stand in it. */
export function obsoleteTags(value: string): string[] {
  return Object.entries(dmarcTags(value)).filter(([name]) => isObsolete(name)).map(([name, text]) => `${name}=${text}`)
}

/** The record without them, and otherwise as it stands. */
export function withoutObsolete(value: string): string {
  if (obsoleteTags(value).length === 0) return value.trim()
  return dmarcText(Object.fromEntries(Object.entries(dmarcTags(value)).filter(([name]) => !isObsolete(name))))
}

function isObsolete(name: string): boolean {
  return ['pct', 'rf', 'ri'].includes(name.toLowerCase())
}

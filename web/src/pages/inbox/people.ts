// Addresses as people write them: name@example.com, or Name <name@example.com>.

/** The bare address of a text such as Name <a@b>. */
export function emailOf(text: string): string {
  const within = /<([^<>]*)>\s*$/.exec(text)
  return (within ? within[1]! : text).trim()
}

/** The name of such a text; the address if it has none. */
export function nameOf(text: string): string {
  const name = text.replace(/<[^<>]*>\s*$/, '').trim().replace(/^"(.*)"$/, '$1').replace(/\\(.)/g, '$1')
  return name || emailOf(text)
}

/** Whether mail can go there, as far as a page can tell; the server has the last word. */
export function isEmail(text: string): boolean {
  return /^[^\s@<>,;"]+@[^\s@<>,;"]+\.[^\s@<>,;".]+$/.test(emailOf(text))
}

/** Splits a text at commas, semicolons and line ends, but not within quotes or angle brackets. */
export function splitPeople(text: string): string[] {
  const parts = text.match(/(?:"(?:\\.|[^"\\])*"|<[^>]*>|[^,;\n\r"<]|["<])+/g) ?? []
  return parts.map((p) => p.trim()).filter(Boolean)
}

/** The list without those whose address is in it before, or among the others. */
export function without(list: string[], others: string[]): string[] {
  const seen = new Set(others.map((p) => emailOf(p).toLowerCase()))
  return list.filter((p) => {
    const email = emailOf(p).toLowerCase()
    if (seen.has(email)) return false
    seen.add(email)
    return true
  })
}

// The round sign of a sender: a letter on a colour that is always the same for one address.
export function Avatar({ name, email }: { name: string | null; email: string }) {
  let sum = 0
  for (const c of email.toLowerCase()) sum = (sum * 31 + c.codePointAt(0)!) >>> 0
  const letter = /[\p{L}\p{N}]/u.exec(name || email)?.[0] ?? '?'
  return <span class={'inbox-avatar hue-' + (sum % 6)} aria-hidden="true">{letter.toUpperCase()}</span>
}

// What the files of a message are called, where they are, and as what they can be looked at.
import { t } from '../../words'
import { inFolder } from './actions'
import { pathOf } from './source'
import type { Detail } from './types'

export type File = Detail['attachments'][number]
export type Shown = 'image' | 'pdf' | 'text'

const pictures = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif']
const textual = /^text\/|^message\/|[/+](json|xml|yaml|x-yaml|toml|javascript|x-sh|sql)$/
const textNames = /\.(txt|md|csv|tsv|log|json|xml|ya?ml|toml|ini|conf|ics|vcf|eml|patch|diff|html?|svg|css|js|ts|py|go|sh|sql)$/i
const largest = 20 * 1024 * 1024 // bytes of a picture or a PDF that is shown here

/**
 * As what a file can be looked at here; nothing where it cannot. HTML and SVG are shown as text
 * alone.
 */
export function shownAs(a: File): Shown | undefined {
  if (pictures.includes(a.content_type)) return a.size <= largest ? 'image' : undefined
  if (a.content_type === 'application/pdf' || /\.pdf$/i.test(a.filename)) return a.size <= largest ? 'pdf' : undefined
  return textual.test(a.content_type) || textNames.test(a.filename) ? 'text' : undefined
}

/** What a file is called. */
export function nameOfFile(a: File): string {
  return a.filename || t('message.attachment.unnamed', { n: a.index + 1 })
}

/** The path of a file as it is. */
export function pathOfFile(m: Detail, a: File): string {
  return pathOf(m, `attachments/${a.index}`)
}

/** The path of a file as something to look at. */
export function viewOfFile(m: Detail, a: File, as: 'image' | 'text'): string {
  const folder = inFolder(m)
  return `/session/files/${m.user_id}/${m.uid}/${a.index}?as=${as}${folder ? '&folder=' + encodeURIComponent(folder) : ''}`
}

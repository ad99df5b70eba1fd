// The text of HTML, and the HTML of text, for quoting.
const blocks = new Set(['P', 'DIV', 'LI', 'TR', 'H1', 'H2', 'H3', 'H4', 'H5', 'H6', 'BLOCKQUOTE', 'PRE', 'TABLE', 'UL', 'OL', 'SECTION', 'ARTICLE'])
const silent = new Set(['STYLE', 'SCRIPT', 'TITLE', 'HEAD', 'TEMPLATE'])

const tag = /<\/?[a-z](?:"[^"]*"|'[^']*'|[^'"<>]){0,5000}>/gi

/**
 * Reads HTML as a document of its own, in which nothing runs or is fetched. Styles and handlers of
 * its elements are put in attributes data-style and data-on…, and its style sheets in scripts,
 * since the policy of this page would complain of each.
 */
export function documentOf(html: string): Document {
  const inert = html.replace(tag, (text) => {
    if (/^<\/?base\b/i.test(text)) return ''
    return text.replace(/^(<\/?)style\b/i, '$1script').replace(/([\s"'/])(?=(?:style|on\w+)\s*=)/gi, '$1data-')
  })
  return new DOMParser().parseFromString(inert, 'text/html')
}

/** What HTML says. */
export function plainOf(html: string): string {
  let text = ''
  const walk = (node: Node) => {
    if (node.nodeType === Node.TEXT_NODE) text += node.nodeValue!.replace(/\s+/g, ' ')
    if (node.nodeName === 'BR') text += '\n'
    if (silent.has(node.nodeName)) return
    const block = blocks.has(node.nodeName)
    if (block && text !== '' && !text.endsWith('\n')) text += '\n'
    for (const child of node.childNodes) walk(child)
    if (block && !text.endsWith('\n')) text += '\n'
    if (node.nodeName === 'P') text += '\n'
  }
  walk(documentOf(html).body)
  return text.replace(/[ \t]*\n[ \t]*/g, '\n').replace(/\n{3,}/g, '\n\n').trim()
}

/** Lines of text as HTML, each a block of its own. */
export function htmlOfLines(text: string): string {
  return text.split('\n').map((line) => `<div>${escaped(line).replace(/ $/, '&nbsp;') || '<br>'}</div>`).join('')
}

/** Text as HTML has it, also within a quoted attribute. */
export function escaped(text: string): string {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;').replace(/\u00a0/g, '&nbsp;')
}

/** The addresses of web pages in a text. Split by it, every second piece is one. */
export const webAddress = /(https?:\/\/[^\s<>"']+[^\s<>"'.,;:!?)\]}])/g

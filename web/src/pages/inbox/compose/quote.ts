// The text of a message that has only HTML, for quoting it.
const blocks = new Set(['P', 'DIV', 'LI', 'TR', 'H1', 'H2', 'H3', 'H4', 'H5', 'H6', 'BLOCKQUOTE', 'PRE', 'TABLE', 'UL', 'OL', 'SECTION', 'ARTICLE'])
const silent = new Set(['STYLE', 'SCRIPT', 'TITLE', 'HEAD', 'TEMPLATE'])

/** Reads HTML as a document of its own, in which nothing runs or is fetched, and gives what it says. */
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
  walk(new DOMParser().parseFromString(html, 'text/html').body)
  return text.replace(/[ \t]*\n[ \t]*/g, '\n').replace(/\n{3,}/g, '\n\n').trim()
}

// The formatting that a message can have while it is written. What is not here is neither kept nor
// sent.
import { Schema, type Node as Doc, type NodeSpec } from 'prosemirror-model'

const auto = { dir: 'auto' } // each block runs in the direction of its own text

const headings: NodeSpec = {
  group: 'block', content: 'inline*', defining: true, attrs: { level: { default: 1 } },
  parseDOM: [1, 2, 3].map((level) => ({ tag: 'h' + level, attrs: { level } })),
  toDOM: (n) => ['h' + n.attrs.level, auto, 0],
}

/** The attributes of a table's cell, as its element has them. */
const spans = (e: HTMLElement) => ({ colspan: Number(e.getAttribute('colspan') ?? 1), rowspan: Number(e.getAttribute('rowspan') ?? 1), head: e.nodeName === 'TH' })

/**
 * A paragraph is one line of the plain text, and has no space around it: an empty line is an empty
 * paragraph. So plain text becomes a document and plain text again without a change.
 */
export const schema = new Schema({
  nodes: {
    doc: { content: 'block+' },
    paragraph: { group: 'block', content: 'inline*', parseDOM: [{ tag: 'p' }], toDOM: () => ['p', auto, 0] },
    heading: headings,
    blockquote: { group: 'block', content: 'block+', defining: true, parseDOM: [{ tag: 'blockquote' }], toDOM: () => ['blockquote', 0] },
    bullet_list: { group: 'block', content: 'list_item+', parseDOM: [{ tag: 'ul' }], toDOM: () => ['ul', 0] },
    ordered_list: {
      group: 'block', content: 'list_item+', attrs: { order: { default: 1 } },
      parseDOM: [{ tag: 'ol', getAttrs: (e) => ({ order: Number(e.getAttribute('start') ?? 1) }) }],
      toDOM: (n) => ['ol', n.attrs.order === 1 ? {} : { start: n.attrs.order }, 0],
    },
    list_item: { content: 'block+', defining: true, parseDOM: [{ tag: 'li' }], toDOM: () => ['li', 0] },
    code_block: { group: 'block', content: 'text*', marks: '', code: true, defining: true, parseDOM: [{ tag: 'pre', preserveWhitespace: 'full' }], toDOM: () => ['pre', 0] },
    horizontal_rule: { group: 'block', parseDOM: [{ tag: 'hr' }], toDOM: () => ['hr'] },
    table: { group: 'block', content: 'table_row+', isolating: true, parseDOM: [{ tag: 'table' }], toDOM: () => ['table', ['tbody', 0]] },
    table_row: { content: 'table_cell+', parseDOM: [{ tag: 'tr' }], toDOM: () => ['tr', 0] },
    table_cell: {
      content: 'block+', isolating: true, attrs: { colspan: { default: 1 }, rowspan: { default: 1 }, head: { default: false } },
      parseDOM: [{ tag: 'td', getAttrs: spans }, { tag: 'th', getAttrs: spans }],
      toDOM: ({ attrs: { colspan, rowspan, head } }) => [head ? 'th' : 'td', { ...(colspan > 1 && { colspan }), ...(rowspan > 1 && { rowspan }) }, 0],
    },
    text: { group: 'inline' },
    hard_break: { group: 'inline', inline: true, selectable: false, parseDOM: [{ tag: 'br' }], toDOM: () => ['br'] },
    /**
     * An image that goes with the message, by its Content-ID. width is in pixels, 0 for its own.
     */
    image: {
      group: 'inline', inline: true, draggable: true, attrs: { cid: {}, alt: { default: '' }, width: { default: 0 } },
      parseDOM: [{ tag: 'img[src^="cid:"]', getAttrs: (e) => ({ cid: e.getAttribute('src')!.slice(4), alt: e.getAttribute('alt') ?? '', width: Number(e.getAttribute('width') ?? 0) }) }],
      toDOM: ({ attrs: { cid, alt, width } }) => ['img', { src: 'cid:' + cid, alt, ...(width > 0 && { width }) }],
    },
  },
  marks: {
    link: { attrs: { href: {} }, inclusive: false, parseDOM: [{ tag: 'a[href]', getAttrs: (e) => ({ href: e.getAttribute('href') }) }], toDOM: (m) => ['a', { href: m.attrs.href, rel: 'noopener noreferrer', target: '_blank' }, 0] },
    strong: { parseDOM: [{ tag: 'strong' }], toDOM: () => ['strong', 0] },
    em: { parseDOM: [{ tag: 'em' }], toDOM: () => ['em', 0] },
    underline: { parseDOM: [{ tag: 'u' }], toDOM: () => ['u', 0] },
    strike: { parseDOM: [{ tag: 's' }], toDOM: () => ['s', 0] },
    code: { parseDOM: [{ tag: 'code' }], toDOM: () => ['code', 0] },
  },
})

export const { nodes, marks } = schema

/** Whether plain text says all that the document says. */
export function isPlain(doc: Doc): boolean {
  let plain = true
  doc.descendants((n) => {
    plain &&= n.marks.length === 0 && (n.isText || n.type === nodes.paragraph || n.type === nodes.blockquote || n.type === nodes.hard_break)
    return plain
  })
  return plain
}

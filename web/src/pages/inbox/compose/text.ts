// Plain text and HTML of a message that is written, and the document of plain text.
import { Fragment, type Node as Doc } from 'prosemirror-model'
import { t } from '../../../words'
import { escaped, webAddress } from './quote'
import { nodes, schema } from './schema'

const deepest = 20 // quotations within each other; deeper ones stay text

/**
 * The document of plain text: each line is a paragraph, and lines that begin with > are quotations.
 */
export function docOfText(text: string): Doc {
  return nodes.doc.create(null, blocksOf(text.replace(/\r\n?/g, '\n').split('\n'), 0))
}

function blocksOf(lines: string[], depth: number): Doc[] {
  const out: Doc[] = []
  for (let i = 0; i < lines.length; i++) {
    if (depth === deepest || !lines[i]!.startsWith('>')) {
      out.push(paragraphOf(lines[i]!))
      continue
    }
    const from = i
    while (i + 1 < lines.length && lines[i + 1]!.startsWith('>')) i++
    out.push(nodes.blockquote.create(null, blocksOf(lines.slice(from, i + 1).map((line) => line.replace(/^> ?/, '')), depth + 1)))
  }
  return out
}

function paragraphOf(line: string): Doc {
  return nodes.paragraph.create(null, line ? schema.text(line) : undefined)
}

/** The plain text of a document. */
export function textOf(doc: Doc): string {
  return linesOf(doc.content).join('\n')
}

/** tight: no empty lines are put between blocks. */
function linesOf(content: Fragment, tight = false): string[] {
  const out: string[] = []
  let apart = false // what comes next has an empty line above it
  content.forEach((n) => {
    const lines = linesOfBlock(n)
    const stands = n.type !== nodes.paragraph && n.type !== nodes.blockquote
    if (!tight && (stands || apart) && out.length > 0 && out.at(-1) !== '' && lines[0] !== '') out.push('')
    for (const line of lines) out.push(line)
    apart = stands
  })
  return out
}

function linesOfBlock(n: Doc): string[] {
  switch (n.type) {
    case nodes.blockquote:
      return linesOf(n.content).map((line) => (line.startsWith('>') ? '>' + line : line ? '> ' + line : '>'))
    case nodes.bullet_list:
      return itemsOf(n, () => '- ')
    case nodes.ordered_list:
      return itemsOf(n, (i) => `${n.attrs.order + i}. `)
    case nodes.horizontal_rule:
      return ['-'.repeat(20)]
    case nodes.table:
      return n.content.content.map((row) => row.content.content.map((cell) => linesOf(cell.content).join(' ').trim()).join(' | ').trimEnd())
  }
  return wordsOf(n).split('\n')
}

function itemsOf(list: Doc, mark: (i: number) => string): string[] {
  return list.content.content.flatMap((item, i) => linesOf(item.content, true).map((line, at) => (at === 0 ? mark(i) + line : line && ' '.repeat(mark(i).length) + line)))
}

/** The words of a block, with the target after a link that does not show it. */
function wordsOf(block: Doc): string {
  let out = '', link = '', shown = ''
  const end = () => {
    if (link && shown.trim() !== link && 'mailto:' + shown.trim() !== link) out += ` <${link.replace(/^mailto:/, '')}>`
    link = shown = ''
  }
  block.forEach((n) => {
    const href = n.marks.find((m) => m.type.name === 'link')?.attrs.href ?? ''
    if (href !== link) {
      end()
      link = href
    }
    const words = n.isText ? n.text!.replace(/\u00a0/g, ' ') : n.type === nodes.hard_break ? '\n' : n.type === nodes.image ? `[${n.attrs.alt || t('compose.image')}]` : ''
    if (out.endsWith('>') && /^[\p{L}\p{N}[(]/u.test(words)) out += ' ' // after the target of a link
    out += words
    if (link) shown += words
  })
  end()
  return out
}

const rtl = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/

/** The HTML of a document: elements of text, links and images of its own, and nothing else. */
export function htmlOf(doc: Doc): string {
  const dir = rtl.test(doc.textContent) ? ' dir="auto"' : ''
  return htmlOfBlocks(doc.content, dir)
}

function htmlOfBlocks(content: Fragment, dir: string): string {
  return content.content.map((n) => htmlOfBlock(n, dir)).join('\n')
}

function htmlOfBlock(n: Doc, dir: string): string {
  switch (n.type) {
    case nodes.heading:
      return `<h${n.attrs.level}${dir}>${htmlOfWords(n)}</h${n.attrs.level}>`
    case nodes.blockquote:
      return `<blockquote type="cite">\n${htmlOfBlocks(n.content, dir)}\n</blockquote>`
    case nodes.bullet_list:
      return `<ul>\n${n.content.content.map((item) => htmlOfItem(item, dir)).join('\n')}\n</ul>`
    case nodes.ordered_list:
      return `<ol${n.attrs.order === 1 ? '' : ` start="${n.attrs.order}"`}>\n${n.content.content.map((item) => htmlOfItem(item, dir)).join('\n')}\n</ol>`
    case nodes.code_block:
      return `<pre>${n.textContent.startsWith('\n') ? '\n' : ''}${escaped(n.textContent)}</pre>` // browsers drop the first line end
    case nodes.horizontal_rule:
      return '<hr>'
    case nodes.table:
      return `<table border="1" cellspacing="0" cellpadding="4">\n${n.content.content.map((row) => `<tr>${row.content.content.map((cell) => htmlOfCell(cell, dir)).join('')}</tr>`).join('\n')}\n</table>`
  }
  return `<div${dir}>${htmlOfWords(n)}</div>`
}

function htmlOfItem(item: Doc, dir: string): string {
  const first = item.firstChild!
  if (first.type !== nodes.paragraph) return `<li${dir}>${htmlOfBlocks(item.content, dir)}</li>`
  return `<li${dir}>${htmlOfWords(first)}${item.childCount > 1 ? '\n' + htmlOfBlocks(item.content.cut(first.nodeSize), dir) : ''}</li>`
}

function htmlOfCell(cell: Doc, dir: string): string {
  const { colspan, rowspan, head } = cell.attrs, name = head ? 'th' : 'td'
  const only = cell.childCount === 1 && cell.firstChild!.type === nodes.paragraph
  return `<${name}${dir}${colspan > 1 ? ` colspan="${colspan}"` : ''}${rowspan > 1 ? ` rowspan="${rowspan}"` : ''}>${only ? htmlOfWords(cell.firstChild!) : htmlOfBlocks(cell.content, dir)}</${name}>`
}

const elements: [mark: string, element: string][] = [['strong', 'strong'], ['em', 'em'], ['underline', 'u'], ['strike', 's'], ['code', 'code']]

function htmlOfWords(block: Doc): string {
  if (block.childCount === 0) return '<br>'
  let out = ''
  let space = true // what stands before ends with a space, or is an end itself
  block.forEach((n, _, i) => {
    const on = (mark: string) => n.marks.find((m) => m.type.name === mark)
    const link = on('link'), next = block.maybeChild(i + 1)
    const text = n.isText ? spaced(n.text!, space, !next || next.type === nodes.hard_break) : ''
    let html = n.type === nodes.hard_break ? (next ? '<br>' : '<br><br>') // browsers show nothing for the last one
      : n.type === nodes.image ? `<img src="cid:${escaped(n.attrs.cid)}" alt="${escaped(n.attrs.alt)}"${n.attrs.width > 0 ? ` width="${n.attrs.width}"` : ''}>`
      : link || on('code') ? escaped(text) : linked(text)
    space = n.type === nodes.hard_break || text.endsWith(' ')
    for (const [mark, element] of elements.toReversed()) if (on(mark)) html = `<${element}>${html}</${element}>`
    if (link) html = `<a href="${escaped(link.attrs.href)}">${html}</a>`
    out += html
  })
  return out
}

/** The HTML of text, in which web addresses are links. */
function linked(text: string): string {
  return text.split(webAddress).map((part, i) => (i % 2 === 1 ? `<a href="${escaped(part)}">${escaped(part)}</a>` : escaped(part))).join('')
}

/**
 * Text whose spaces stay where HTML would drop them: beside each other, and at the start and the
 * end of a line.
 */
function spaced(text: string, start: boolean, end: boolean): string {
  const kept = text.replace(/\t/g, '    ').replace(/ {2,}/g, (run) => ' \u00a0'.repeat(run.length).slice(0, run.length))
  return kept.replace(start ? /^ / : /^(?!)/, '\u00a0').replace(end ? / $/ : /(?!)$/, '\u00a0')
}

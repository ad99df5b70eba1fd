// Foreign HTML, pasted or of a message, as the few elements that a message is written with. Nothing
// of it runs or is fetched: it is read as a document of its own, and what is made of it has no
// classes, styles, handlers or addresses but those of links. It does not know what becomes of the
// result.
import { t } from '../../../words'
import { documentOf } from './quote'

/** What a message cannot keep of foreign HTML. */
export type Dropped = 'looks' | 'layout' | 'images'

/** words: it has text, and not images alone. */
export interface Cleaned { body: HTMLElement; dropped: Set<Dropped>; words: boolean }

interface Options {
  /** Whether there is an image of a Content-ID. */
  has: (cid: string) => boolean
  /** Takes an image whose bytes stand in the HTML. Gives its Content-ID, or undefined. */
  take: (data: string) => string | undefined
}

const longest = 2_000_000 // characters
const mostElements = 20_000
const deepest = 200 // elements within each other
const mostNested = 20 // lists, quotations and tables within each other

/** Thrown for HTML that is too large to be written in: its text can be. */
export class TooLarge extends Error {}

export function clean(html: string, options: Options): Cleaned {
  if (html.length > longest || (html.match(/</g)?.length ?? 0) > 3 * mostElements) throw new TooLarge() // browsers read what is deep slowly
  const foreign = documentOf(html)
  const cleaner = new Cleaner(options, foreign)
  const to = new Blocks(cleaner.doc)
  cleaner.children(foreign.body, none, to)
  to.end()
  cleaner.doc.body.append(...to.out)
  return { body: cleaner.doc.body, dropped: cleaner.dropped, words: cleaner.words }
}

const silent = new Set(['script', 'style', 'template', 'head', 'title', 'meta', 'link', 'base', 'noscript', 'iframe', 'frame', 'frameset', 'object', 'embed', 'applet', 'audio', 'video', 'canvas', 'svg', 'math', 'map', 'select', 'textarea', 'button', 'xml'])
const blocks = new Set(['p', 'div', 'section', 'article', 'header', 'footer', 'main', 'aside', 'nav', 'address', 'center', 'figure', 'figcaption', 'dl', 'dt', 'dd', 'form', 'fieldset', 'details', 'summary', 'caption', 'tbody', 'thead', 'tfoot', 'tr', 'td', 'th', 'body', 'html'])
const monospace = new Set(['code', 'tt', 'kbd', 'samp'])

/** How text looks where it stands. */
interface Look { strong: boolean; em: boolean; underline: boolean; strike: boolean; code: boolean; link: string; pre: boolean; title: boolean; depth: number; nested: number }

const none: Look = { strong: false, em: false, underline: false, strike: false, code: false, link: '', pre: false, title: false, depth: 0, nested: 0 }

type Style = Map<string, string>

class Cleaner {
  readonly doc = document.implementation.createHTMLDocument('')
  readonly dropped = new Set<Dropped>()
  words = false
  private left = mostElements
  private readonly classes: Map<string, Style>

  constructor(private readonly options: Options, foreign: Document) {
    this.classes = classesOf(foreign)
  }

  children(of: Node, look: Look, to: Blocks) {
    for (const child of of.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) this.text(child.nodeValue!, look, to)
      else if (child.nodeType === Node.ELEMENT_NODE) this.element(child as HTMLElement, look, to)
    }
  }

  private text(text: string, look: Look, to: Blocks) {
    this.words ||= /\S/.test(text)
    if (!look.pre) return to.add(this.marked(text, look))
    text.replace(/\r\n?/g, '\n').split('\n').forEach((line, i) => {
      if (i > 0) to.add(this.make('br'))
      const kept = line.replace(/\t/g, '    ').replace(i > 0 ? /^ | {2,}/g : / {2,}/g, (run) => '\u00a0'.repeat(run.length))
      if (kept) to.add(this.marked(kept, look))
    })
  }

  private element(e: HTMLElement, from: Look, to: Blocks) {
    if (--this.left < 0) throw new TooLarge()
    const name = e.localName
    if (silent.has(name)) return
    if (from.depth >= deepest) return this.text(e.textContent ?? '', from, to)
    const style = this.styleOf(e)
    if (e.hidden || style.get('display') === 'none' || style.get('visibility') === 'hidden' || style.get('mso-hide') === 'all') return
    const look = this.lookOf(e, style, from)
    switch (name) {
      case 'br':
        return e.className === 'Apple-interchange-newline' ? undefined : to.add(this.make('br'))
      case 'hr':
        return to.block(this.make('hr'))
      case 'img':
        return this.image(e as HTMLImageElement, style, look, to)
      case 'input':
        if (e.getAttribute('type')?.toLowerCase() === 'checkbox') this.text(e.hasAttribute('checked') ? '☑ ' : '☐ ', look, to)
        return
      case 'ul': case 'ol':
        return this.list(e, look, to)
      case 'li': // without its list
        return this.item(e, look, to.listOf('ul'))
      case 'blockquote':
        return this.within(e, 'blockquote', look, to)
      case 'pre':
        return this.preformatted(e, to)
      case 'table':
        return this.table(e as HTMLTableElement, look, to)
      case 'h1': case 'h2': case 'h3': case 'h4': case 'h5': case 'h6':
        return this.heading(e, Math.min(3, Number(name[1])), look, to)
    }
    if (!blocks.has(name)) return this.children(e, look, to)
    if (/level\d/.test(style.get('mso-list') ?? '')) return this.wordItem(e, style, look, to)
    const spaced = name === 'p' && !isTight(style)
    to.paragraph(spaced)
    this.children(e, look, to)
    to.paragraph(spaced)
  }

  private lookOf(e: HTMLElement, style: Style, from: Look): Look {
    const name = e.localName, look = { ...from, depth: from.depth + 1 }
    if (name === 'b' || name === 'strong') look.strong = true
    else if (name === 'i' || name === 'em' || name === 'cite' || name === 'var') look.em = true
    else if (name === 'u' || name === 'ins') look.underline = true
    else if (name === 's' || name === 'strike' || name === 'del') look.strike = true
    else if (monospace.has(name)) look.code = true
    else if (name === 'a') look.link = targetOf(e.getAttribute('href') ?? '')
    else if (name === 'font' || name === 'sub' || name === 'sup') this.dropped.add('looks')
    const weight = style.get('font-weight'), slant = style.get('font-style'), lines = (style.get('text-decoration') ?? '') + ' ' + (style.get('text-decoration-line') ?? ''), space = style.get('white-space')
    if (weight) look.strong = weight.startsWith('bold') || Number(weight) >= 600
    if (slant) look.em = slant.startsWith('italic') || slant.startsWith('oblique')
    if (lines.includes('underline') && name !== 'a') look.underline = true
    if (lines.includes('line-through')) look.strike = true
    if (space) look.pre = space.startsWith('pre') && space !== 'pre-line' || space === 'break-spaces'
    if (look.title) look.strong = false
    if (look.link) look.underline = false
    if (styled.some((property) => style.has(property)) || e.hasAttribute('bgcolor') || e.hasAttribute('color')) this.dropped.add('looks')
    return look
  }

  /** The style of an element, by its classes and its attribute. */
  private styleOf(e: HTMLElement): Style {
    const own = readStyle(e.getAttribute('data-style') ?? '')
    if (this.classes.size === 0 || e.classList.length === 0) return own
    return new Map([...[...e.classList].flatMap((name) => [...this.classes.get(name) ?? []]), ...own])
  }

  private make(name: string): HTMLElement {
    return this.doc.createElement(name)
  }

  /** A node as it looks. */
  private marked(what: string | HTMLElement, look: Look): Node {
    let node: Node = typeof what === 'string' ? this.doc.createTextNode(what) : what
    const wrap = (name: string) => {
      const e = this.make(name)
      e.append(node)
      node = e
      return e
    }
    if (look.code) wrap('code')
    if (look.strike) wrap('s')
    if (look.underline) wrap('u')
    if (look.em) wrap('em')
    if (look.strong) wrap('strong')
    if (look.link) wrap('a').setAttribute('href', look.link)
    return node
  }

  private image(e: HTMLImageElement, style: Style, look: Look, to: Blocks) {
    const src = (e.getAttribute('src') ?? '').trim(), alt = (e.getAttribute('alt') ?? '').replace(/\s+/g, ' ').trim().slice(0, 500)
    const width = pixels(style.get('width') ?? e.getAttribute('width')), height = pixels(style.get('height') ?? e.getAttribute('height'))
    if (width !== undefined && width <= 2 || height !== undefined && height <= 2) return // it is there to be asked for
    const cid = /^cid:/i.test(src) ? [src.slice(4), decoded(src.slice(4))].find(this.options.has) : /^data:/i.test(src) ? this.options.take(src) : undefined
    if (cid !== undefined) {
      const image = this.make('img')
      image.setAttribute('src', 'cid:' + cid)
      image.setAttribute('alt', alt)
      if (width !== undefined) image.setAttribute('width', String(Math.min(width, 2000)))
      return to.add(this.marked(image, look))
    }
    this.dropped.add('images')
    const sign = /^:[\w+-]+:$|^\p{Extended_Pictographic}/u.test(alt) // it stands for a letter
    const link = look.link || (/^https?:/i.test(src) && !sign ? targetOf(src) : '')
    const words = alt || (link && !look.link ? nameOf(link) ?? `[${t('compose.image')}]` : '')
    if (words) to.add(this.marked(words, { ...look, link, underline: false }))
  }

  /** An element of blocks, unless it would be empty. */
  private within(e: HTMLElement, name: string, look: Look, to: Blocks) {
    if (look.nested >= mostNested) return this.children(e, look, to)
    const inner = new Blocks(this.doc)
    this.children(e, { ...look, nested: look.nested + 1 }, inner)
    inner.end()
    if (inner.out.length === 0) return
    const made = this.make(name)
    made.append(...inner.out)
    to.block(made)
  }

  private heading(e: HTMLElement, level: number, look: Look, to: Blocks) {
    const inner = new Blocks(this.doc)
    this.children(e, { ...look, strong: false, title: true }, inner)
    inner.end()
    for (const block of inner.out) {
      if (block.localName !== 'p') {
        to.block(block)
      } else if (block.hasChildNodes()) {
        const made = this.make('h' + level)
        made.append(...block.childNodes)
        to.block(made)
      }
    }
  }

  private preformatted(e: HTMLElement, to: Blocks) {
    const made = this.make('pre')
    this.words = true
    for (const br of e.querySelectorAll('br')) br.replaceWith('\n')
    for (const line of e.querySelectorAll('div, p, tr')) line.after('\n')
    made.textContent = (e.textContent ?? '').replace(/\r\n?/g, '\n').replace(/\n+$/, '')
    if (made.textContent.trim()) to.block(made)
  }

  private list(e: HTMLElement, look: Look, to: Blocks) {
    if (look.nested >= mostNested) return this.children(e, look, to)
    const list = this.make(e.localName), start = Number(e.getAttribute('start') ?? 1)
    if (list.localName === 'ol' && Number.isInteger(start) && start > 1 && start < 10_000) list.setAttribute('start', String(start))
    const within = { ...look, nested: look.nested + 1 }
    const stray = new Blocks(this.doc) // what stands in the list beside its items: usually a list within it
    for (const child of e.childNodes) {
      if (child.nodeName === 'LI') {
        this.strayIn(list, stray)
        this.item(child as HTMLElement, within, list)
      } else if (child.nodeType === Node.ELEMENT_NODE) {
        this.element(child as HTMLElement, within, stray)
      } else if (child.nodeType === Node.TEXT_NODE && child.nodeValue!.trim()) {
        this.text(child.nodeValue!, within, stray)
      }
    }
    this.strayIn(list, stray)
    if (list.hasChildNodes()) to.block(list)
  }

  private strayIn(list: HTMLElement, stray: Blocks) {
    stray.end()
    const out = stray.out.splice(0)
    if (out.length === 0) return
    if (!list.lastElementChild) list.append(this.make('li'))
    list.lastElementChild!.append(...out)
  }

  private item(e: HTMLElement, look: Look, list: HTMLElement) {
    if (--this.left < 0) throw new TooLarge()
    const style = this.styleOf(e)
    if (e.hidden || style.get('display') === 'none') return
    const inner = new Blocks(this.doc, true)
    this.children(e, this.lookOf(e, style, look), inner)
    inner.end()
    const item = this.make('li')
    item.append(...inner.out)
    list.append(item)
  }

  /**
   * A list item as Word writes it: a paragraph with its mark in the text, its level in the style.
   */
  private wordItem(e: HTMLElement, style: Style, look: Look, to: Blocks) {
    const level = Math.min(mostNested, Number(/level(\d+)/.exec(style.get('mso-list')!)![1]))
    const inner = new Blocks(this.doc, true)
    let mark = ''
    for (const span of e.querySelectorAll<HTMLElement>('span')) {
      if (readStyle(span.getAttribute('data-style') ?? '').get('mso-list') !== 'ignore') continue
      mark ||= span.textContent!.trim()
      span.remove()
    }
    this.children(e, look, inner)
    inner.end()
    const item = this.make('li')
    item.append(...inner.out)
    to.item(level, /^\(?([0-9]+|[a-z]|[ivxl]+)[.)]/i.test(mark) ? 'ol' : 'ul', item)
  }

  /** A table of data; one that is there for the layout gives what is in it. */
  private table(e: HTMLTableElement, look: Look, to: Blocks) {
    const rows = [...e.rows]
    const layout = look.nested >= mostNested || e.getAttribute('role') === 'presentation' || e.querySelector('table') !== null || e.parentElement?.closest('table') != null || rows.every((row) => row.cells.length < 2)
    if (layout) {
      if (rows.some((row) => row.cells.length > 1)) this.dropped.add('layout')
      to.paragraph(false)
      this.children(e, look, to)
      return to.paragraph(false)
    }
    if (e.caption) this.element(e.caption, look, to)
    const made = this.make('table')
    for (const row of rows) {
      const tr = this.make('tr')
      const ofRow = this.lookOf(row, this.styleOf(row), look)
      for (const cell of row.cells) {
        if (--this.left < 0) throw new TooLarge()
        const style = this.styleOf(cell), td = this.make(cell.localName === 'th' ? 'th' : 'td')
        if (style.get('display') === 'none') continue
        for (const name of ['colspan', 'rowspan']) {
          const n = Number(cell.getAttribute(name) ?? 1)
          if (Number.isInteger(n) && n > 1 && n <= 100) td.setAttribute(name, String(n))
        }
        const inner = new Blocks(this.doc, true)
        this.children(cell, { ...this.lookOf(cell, style, ofRow), nested: look.nested + 1 }, inner)
        inner.end()
        td.append(...inner.out)
        tr.append(td)
      }
      if (tr.hasChildNodes()) made.append(tr)
    }
    if (made.hasChildNodes()) to.block(made)
  }
}

/** Properties of which a message keeps nothing. */
const styled = ['color', 'background', 'background-color', 'font-family', 'font-size', 'font', 'text-align']

/** Gathers blocks, and what stands between them as paragraphs. */
class Blocks {
  readonly out: HTMLElement[] = []
  private run: Node[] = []
  private gap = false // the paragraph before has space below
  private lists: { level: number; list: HTMLElement }[] = [] // that are open, of items that are paragraphs

  /** tight: paragraphs have no empty line between them. */
  constructor(private readonly doc: Document, private readonly tight = false) {}

  add(node: Node) {
    this.run.push(node)
  }

  block(e: HTMLElement) {
    this.end()
    this.gap = false
    this.lists = []
    this.out.push(e)
  }

  /** Begins or ends a paragraph. spaced: it has space above and below. */
  paragraph(spaced: boolean) {
    this.end()
    this.gap = this.gap || spaced
  }

  /** The list that stands last, or a new one. */
  listOf(name: string): HTMLElement {
    this.end()
    const last = this.out.at(-1)
    if (last?.localName === name) return last
    const list = this.doc.createElement(name)
    this.block(list)
    return list
  }

  item(level: number, name: string, item: HTMLElement) {
    this.end()
    while (this.lists.length > 0 && this.lists.at(-1)!.level > level) this.lists.pop()
    const top = this.lists.at(-1)
    if (top?.level === level && top.list.localName === name) return top.list.append(item)
    if (top?.level === level) this.lists.pop()
    const list = this.doc.createElement(name), over = this.lists.at(-1)
    list.append(item)
    if (over) over.list.lastElementChild!.append(list)
    else this.out.push(list)
    this.lists.push({ level, list })
    this.gap = false
  }

  /** Ends the paragraph that is open. */
  end() {
    const run = this.run
    this.run = []
    const p = this.doc.createElement('p')
    p.append(...run)
    if (p.querySelector('br, img') === null && /^[ \t\r\n\f]*$/.test(p.textContent!)) return // space between blocks
    const said = /[^\s\u200b]/.test(p.textContent!) || p.querySelector('img') !== null
    const breaks = p.querySelectorAll('br').length
    if (!said) p.replaceChildren(...Array.from({ length: Math.max(0, breaks - 1) }, () => this.doc.createElement('br')))
    else if (run.findLast((n) => n.nodeType !== Node.TEXT_NODE || n.nodeValue!.trim() !== '')?.nodeName === 'BR') p.querySelectorAll('br')[breaks - 1]!.remove() // it ends a line that ends by itself
    const before = this.out.at(-1)
    if (this.gap && !this.tight && said && before?.localName === 'p' && before.hasChildNodes()) this.out.push(this.doc.createElement('p'))
    this.gap = false
    this.lists = []
    this.out.push(p)
  }
}

/** The styles that style sheets of a document give to classes. */
function classesOf(foreign: Document): Map<string, Style> {
  const out = new Map<string, Style>()
  for (const sheet of foreign.querySelectorAll('script')) {
    const text = sheet.textContent!.slice(0, 200_000).replace(/\/\*[^]*?\*\/|<!--|-->/g, '')
    for (const [, selectors, body] of text.matchAll(/([^{}]{1,2000})\{([^{}]*)\}/g)) {
      for (const selector of selectors!.split(',')) {
        const name = /^\s*\w*\.([\w-]+)\s*$/.exec(selector)?.[1]
        if (name) out.set(name, new Map([...out.get(name) ?? [], ...readStyle(body!)]))
      }
    }
  }
  return out
}

function readStyle(text: string): Style {
  const out: Style = new Map()
  for (const declaration of text.slice(0, 10_000).split(';')) {
    const at = declaration.indexOf(':')
    if (at > 0) out.set(declaration.slice(0, at).trim().toLowerCase(), declaration.slice(at + 1).replace(/!important/i, '').trim().toLowerCase())
  }
  return out
}

/** Whether a paragraph has no space below. */
function isTight(style: Style): boolean {
  const all = style.get('margin')?.split(/\s+/) ?? []
  const below = style.get('margin-bottom') ?? all[2] ?? all[0]
  return below !== undefined && parseFloat(below) < 1
}

/** A length in pixels; undefined for none and for others. */
function pixels(text: string | null | undefined): number | undefined {
  const n = /^(\d+(?:\.\d+)?)(px|pt)?$/.exec(text ?? '')
  return n ? Math.round(Number(n[1]) * (n[2] === 'pt' ? 4 / 3 : 1)) : undefined
}

/** Where a link leads; '' if that is neither a web page nor an email address. */
export function targetOf(href: string): string {
  const text = href.trim()
  if (!/^(https?:\/\/|mailto:)/i.test(text) || text.length > 8000) return ''
  try {
    const url = new URL(text)
    return /[\s<>"\p{Cc}]/u.test(text) ? url.href : text
  } catch {
    return ''
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** The name of an image at an address; undefined if it has none. */
function nameOf(url: string): string | undefined {
  return /[^/]{1,80}\.(png|jpe?g|gif|webp|svg|avif)$/i.exec(decoded(new URL(url).pathname))?.[0]
}

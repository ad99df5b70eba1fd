// Where the text of a message is written, with its formatting. It does not know how drafts are
// saved or sent.
import { closeHistory, history } from 'prosemirror-history'
import { DOMParser, Fragment, Slice, type Node as Doc } from 'prosemirror-model'
import { EditorState, Selection } from 'prosemirror-state'
import { EditorView, type NodeView } from 'prosemirror-view'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { t } from '../../../words'
import { clean, targetOf, TooLarge, type Cleaned, type Dropped } from './clean'
import { keys, wayOut } from './commands'
import { changed, draftOf, imageOf } from './draft'
import { embed, fileOfData, fits, widthOf } from './images'
import { LinkDialog } from './link'
import { isPlain, marks, nodes, schema } from './schema'
import { docOfText, htmlOf, textOf } from './text'
import { Toolbar } from './toolbar'

/** What a message says: its plain text, and its HTML if it has any formatting. */
export interface Words { text: string; html?: string }

export interface EditorProps {
  draft: string
  words: Words
  /** The HTML is that of another program. */
  foreign: boolean
  autoFocus: boolean
  /** Where in the plain text the caret is to be. */
  caret?: number
  onChange: (words: Words) => void
  /** Gets what is left of the HTML of another program, and what is not. */
  onTaken: (words: Words, dropped: Dropped[]) => void
  /** Gets files that cannot stand in the text. */
  onFiles: (files: File[]) => void
}

export function Editor(props: EditorProps) {
  const latest = useRef(props)
  latest.current = props
  const place = useRef<HTMLDivElement>(null)
  const [view, setView] = useState<EditorView>()
  const said = useRef<Words>(props.words) // what the document says
  const [, setTurn] = useState(0)
  const [linking, setLinking] = useState(false)

  useLayoutEffect(() => { // at once: who answers types at once
    const images = new Set<Image>()
    const v: EditorView = new EditorView(place.current!, {
      state: EditorState.create({ schema, plugins: [history(), ...keys(() => setLinking(true)), wayOut] }),
      attributes: (state) => ({
        role: 'textbox', 'aria-multiline': 'true', 'aria-label': t('compose.message'), 'aria-placeholder': t('compose.placeholder'), 'data-placeholder': t('compose.placeholder'),
        class: 'compose-text' + (state.doc.content.size === 2 && state.doc.firstChild!.type === nodes.paragraph ? ' blank' : ''),
      }),
      nodeViews: { heading: (n) => new Heading(n), image: (n) => new Image(n, props.draft, images) },
      dispatchTransaction: (tr) => {
        v.updateState(v.state.apply(tr))
        setTurn((n) => n + 1)
        if (!tr.docChanged || tr.getMeta(taken)) return
        said.current = wordsOf(v.state.doc)
        latest.current.onChange(said.current)
      },
      handleDOMEvents: {
        paste: (_, e) => paste(v, e, latest.current),
        drop: (_, e) => drop(v, e, latest.current),
        keydown: (_, e) => {
          if (e.key === 'k' && (e.ctrlKey || e.metaKey)) e.stopPropagation() // it is about a link here
          return false
        },
      },
    })
    take(v, latest.current)
    if (props.caret) v.dispatch(v.state.tr.setSelection(Selection.near(v.state.doc.resolve(placeOf(v.state.doc, props.words.text.slice(0, props.caret))))))
    if (props.autoFocus) v.focus()
    setView(v)
    const stop = changed.subscribe(() => { for (const image of images) image.look() }) // its file may have come
    return () => {
      stop()
      v.destroy()
    }
  }, [])

  useEffect(() => { // the draft was changed elsewhere
    const { text, html } = draftOf(props.draft) // now: more may have been typed since this was drawn
    if (!view || (text === said.current.text && html === said.current.html)) return
    said.current = { text, html }
    take(view, { ...props, words: said.current })
  }, [view, props.words.text, props.words.html])

  return (
    <>
      <div class="compose-editor" ref={place} />
      {view && <Toolbar view={view} onLink={() => setLinking(true)} />}
      {view && linking && <LinkDialog view={view} onClose={() => { setLinking(false); view.focus() }} />}
    </>
  )
}

const taken = 'taken' // marks what was not written here

function wordsOf(doc: Doc): Words {
  return { text: textOf(doc), html: isPlain(doc) ? undefined : htmlOf(doc) }
}

/**
 * The place in a document of plain text that comes after a beginning of it: each line is a
 * paragraph.
 */
function placeOf(doc: Doc, before: string): number {
  const lines = before.split('\n')
  let left = lines.length, place = 0
  doc.descendants((n, pos) => {
    if (n.isTextblock && --left === 0) place = pos + 1 + Math.min(lines.at(-1)!.length, n.content.size)
    return left > 0
  })
  return place
}

/** Puts what a draft says in place of the document. */
function take(v: EditorView, { draft, words, foreign, onTaken }: EditorProps) {
  const cleaned = words.html === undefined ? undefined : cleanedOf(words.html, draft)
  const doc = cleaned ? DOMParser.fromSchema(schema).parse(cleaned.body) : docOfText(words.text)
  const tr = v.state.tr.replaceWith(0, v.state.doc.content.size, doc.content)
  v.dispatch(tr.setSelection(Selection.atStart(tr.doc)).setMeta(taken, true).setMeta('addToHistory', false))
  if (foreign) onTaken(wordsOf(v.state.doc), cleaned ? [...cleaned.dropped] : ['looks', 'layout', 'images'])
}

/** Foreign HTML, cleaned; undefined if it is too large. */
function cleanedOf(html: string, draft: string): Cleaned | undefined {
  try {
    return clean(html, {
      has: (cid) => Object.hasOwn(draftOf(draft).inline ?? {}, cid),
      take: (data) => {
        const file = fileOfData(data)
        return file && embed(draft, file)
      },
    })
  } catch (error) {
    if (error instanceof TooLarge) return undefined
    throw error
  }
}

/** Takes what is pasted: of formatted text what can be kept, images, and plain text. */
function paste(v: EditorView, e: ClipboardEvent, props: EditorProps): boolean {
  if (!e.clipboardData) return false
  e.preventDefault()
  const slice = sliceOf(v, e.clipboardData, props)
  if (slice) v.dispatch(closeHistory(v.state.tr).replaceSelection(slice).scrollIntoView().setMeta('paste', true))
  return true
}

/** Takes what is dropped from elsewhere; what is moved within the text the library moves. */
function drop(v: EditorView, e: DragEvent, props: EditorProps): boolean {
  const at = v.posAtCoords({ left: e.clientX, top: e.clientY })?.pos
  if (v.dragging || !e.dataTransfer || at === undefined) return false
  e.preventDefault()
  v.dispatch(v.state.tr.setSelection(Selection.near(v.state.doc.resolve(at))))
  v.focus()
  const slice = sliceOf(v, e.dataTransfer, props)
  if (slice) v.dispatch(closeHistory(v.state.tr).replaceSelection(slice).scrollIntoView())
  return true
}

/**
 * What is pasted or dropped, to be put in place of the selection; undefined if that is done
 * already, or will be.
 */
function sliceOf(v: EditorView, data: DataTransfer, props: EditorProps): Slice | undefined {
  const { $from, empty, from, to } = v.state.selection
  const text = data.getData('text/plain').replace(/\r\n?/g, '\n'), html = data.getData('text/html'), files = [...data.files]
  if ($from.parent.type.spec.code && text) return new Slice(Fragment.from(schema.text(text)), 0, 0)
  if (!empty && $from.sameParent(v.state.selection.$to) && targetOf(text)) {
    v.dispatch(v.state.tr.addMark(from, to, marks.link.create({ href: targetOf(text) })))
    return undefined
  }
  const cleaned = html ? cleanedOf(html, props.draft) : undefined
  if (files.length > 0 && !cleaned?.words) { // programs put a picture of a text beside it
    void putFiles(v, files, props)
    return undefined
  }
  if (cleaned?.body.hasChildNodes()) return between(DOMParser.fromSchema(schema).parse(cleaned.body))
  return text ? between(nodes.doc.create(null, text.split('\n').map((line) => nodes.paragraph.create(null, line ? schema.text(line) : undefined)))) : undefined
}

/**
 * The blocks of a document, of which the first and the last are part of the paragraph that they
 * come into.
 */
function between(doc: Doc): Slice {
  return new Slice(doc.content, Number(doc.firstChild!.type === nodes.paragraph), Number(doc.lastChild!.type === nodes.paragraph))
}

/** Puts images in place of the selection, and gives the other files on. */
async function putFiles(v: EditorView, files: File[], { draft, onFiles }: EditorProps) {
  const others: File[] = []
  for (const file of files) {
    const width = fits(file) ? await widthOf(file) : 0
    if (v.isDestroyed) return
    if (width === 0) others.push(file)
    else v.dispatch(closeHistory(v.state.tr).replaceSelectionWith(nodes.image.create({ cid: embed(draft, file), width }), false).scrollIntoView())
  }
  if (others.length > 0) onFiles(others)
}

/** A heading, which is none of the page around the text. */
class Heading implements NodeView {
  readonly dom = document.createElement('p')
  readonly contentDOM = this.dom

  constructor(private readonly node: Doc) {
    this.dom.className = 'heading-' + node.attrs.level
    this.dom.dir = 'auto'
  }

  update(node: Doc): boolean {
    return node.type === this.node.type && node.attrs.level === this.node.attrs.level
  }
}

/** An image, or its name until its file is there. */
class Image implements NodeView {
  readonly dom = document.createElement('span')
  private file: File | undefined
  private url = ''

  constructor(private node: Doc, private readonly draft: string, private readonly all: Set<Image>) {
    this.dom.className = 'compose-image'
    this.dom.textContent = `[${node.attrs.alt || t('compose.image')}]`
    all.add(this)
    this.look()
  }

  look() {
    const file = imageOf(draftOf(this.draft), this.node.attrs.cid)
    if (!file || file === this.file) return
    URL.revokeObjectURL(this.url)
    this.file = file
    this.url = URL.createObjectURL(file)
    const image = document.createElement('img')
    image.src = this.url
    image.alt = this.node.attrs.alt || t('compose.image')
    if (this.node.attrs.width > 0) image.width = this.node.attrs.width
    this.dom.replaceChildren(image)
  }

  update(node: Doc): boolean {
    return node.eq(this.node)
  }

  ignoreMutation() {
    return true
  }

  destroy() {
    URL.revokeObjectURL(this.url)
    this.all.delete(this)
  }
}

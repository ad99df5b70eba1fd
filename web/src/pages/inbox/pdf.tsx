// A PDF, drawn page by page on canvases. It is read in a worker, none of its scripts is run,
// nothing that it names is fetched, and its links and forms are not there.
import { getDocument, GlobalWorkerOptions, type PDFDocumentProxy, type PDFPageProxy } from 'pdfjs-dist/legacy/build/pdf.mjs'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Loading, Notice } from '../../ui'
import { t, tn } from '../../words'

GlobalWorkerOptions.workerSrc = PDF_WORKER

const mostPages = 50
const mostPixels = 4_000_000 // of one page
const mostText = 20_000 // characters of one page, for those who hear it
const wide = 800 // pixels of the screen

export function Pdf({ src, label }: { src: string; label: string }) {
  const [doc, setDoc] = useState<PDFDocumentProxy>(), [failed, setFailed] = useState(false)
  useEffect(() => {
    const task = getDocument({ url: src, enableXfa: false, useWasm: false, disableRange: true, maxImageSize: 64_000_000, verbosity: 0 })
    task.promise.then(setDoc, () => setFailed(true))
    return () => void task.destroy()
  }, [src])
  if (failed) return <Notice tone="warn">{t('message.preview.pdf_broken')}</Notice>
  if (!doc) return <Loading lines={10} />
  const n = Math.min(doc.numPages, mostPages)
  return (
    <>
      <div class="inbox-preview-pages" role="region" aria-label={label} tabIndex={0}>
        {Array.from({ length: n }, (_, i) => <Page key={i} doc={doc} number={i + 1} />)}
      </div>
      {doc.numPages > n && <Notice>{tn('message.preview.pdf_pages', n)}</Notice>}
    </>
  )
}

/** A page, which is drawn once it comes into view. */
function Page({ doc, number }: { doc: PDFDocumentProxy; number: number }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const [text, setText] = useState('')
  useEffect(() => {
    let over = false
    let stop = () => {}
    const draw = async () => {
      const page = await doc.getPage(number)
      if (over || !canvas.current) return
      stop = drawn(page, canvas.current)
      const { items } = await page.getTextContent()
      if (!over) setText(items.map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : '')).join('').slice(0, mostText))
    }
    const watch = new IntersectionObserver((seen) => {
      if (!seen.some((s) => s.isIntersecting)) return
      watch.disconnect()
      draw().catch(() => {}) // a page that is damaged stays empty
    }, { rootMargin: '600px' })
    watch.observe(canvas.current!)
    return () => {
      over = true
      watch.disconnect()
      stop()
    }
  }, [doc, number])
  return (
    <>
      <canvas ref={canvas} width={wide} height={Math.round(wide * 1.414)} role="img" aria-label={t('message.preview.page', { n: number })} />
      {text !== '' && <p class="visually-hidden" dir="auto">{text}</p>}
    </>
  )
}

/** Draws a page as sharp as the screen is. Returns how to stop. */
function drawn(page: PDFPageProxy, canvas: HTMLCanvasElement): () => void {
  const natural = page.getViewport({ scale: 1 })
  const sharp = (wide * Math.min(devicePixelRatio, 2)) / natural.width
  const scale = Math.min(sharp, Math.sqrt(mostPixels / (natural.width * natural.height)))
  const viewport = page.getViewport({ scale })
  canvas.width = Math.max(1, Math.floor(viewport.width))
  canvas.height = Math.max(1, Math.floor(viewport.height))
  canvas.style.width = Math.min(wide, canvas.width) + 'px'
  const task = page.render({ canvas, viewport })
  task.promise.catch(() => {}) // it was stopped, or the page is damaged
  return () => task.cancel()
}

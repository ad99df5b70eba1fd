// The frame of a message is as high as the message, so that one scrolls the page and not the frame. The frame keeps this
// page's origin, so that it can be measured, but has no scripts: only this page can act in it. Nothing in the document is as
// high as the frame (mail/view sees to it), so that setting the height never changes what was measured.
import { useMemo } from 'preact/hooks'

const most = 60_000 // px; what is higher scrolls in its frame
const least = 0.6 // of its size: a message that is wider still scrolls sideways

/** Gives what is the ref of a message's frame. */
export function useFit() {
  return useMemo(() => {
    let stop = () => {}
    return (frame: HTMLIFrameElement | null) => {
      stop()
      stop = frame ? watch(frame) : () => {}
    }
  }, [])
}

/** Fits a frame to its document, whenever one is loaded, grows or gets another width. */
function watch(frame: HTMLIFrameElement): () => void {
  let observer: ResizeObserver | undefined
  const loaded = () => {
    observer?.disconnect()
    const page = frame.contentDocument // none where the browser did not say that it asks for a frame: then it scrolls
    if (!page?.body || page.URL === 'about:blank') return
    const fit = fitting(frame, page)
    observer = new ResizeObserver(fit)
    observer.observe(page.documentElement)
    observer.observe(page.body)
    page.addEventListener('load', fit, true) // an image that stands out of its place
    page.addEventListener('keydown', pass)
    fit()
  }
  frame.addEventListener('load', loaded)
  return () => {
    frame.removeEventListener('load', loaded)
    observer?.disconnect()
  }
}

/** Makes what fits the frame to its document as it is now. */
function fitting(frame: HTMLIFrameElement, page: Document): () => void {
  let width = -1, zoom = 1
  return () => {
    const root = page.documentElement, body = page.body
    if (root.clientWidth === 0) return // nobody sees it
    root.style.overflowY = 'hidden'
    if (width !== frame.clientWidth) { // a wide message shrinks, as far as one can still read it
      width = frame.clientWidth
      body.style.zoom = body.style.margin = ''
      if (root.scrollWidth > root.clientWidth) body.style.margin = '0'
      zoom = Math.max(least, Math.min(1, root.clientWidth / root.scrollWidth))
      if (zoom < 1) body.style.zoom = String(zoom)
    }
    const content = body.getBoundingClientRect().top + frame.contentWindow!.scrollY + zoom * (body.scrollHeight + parseFloat(getComputedStyle(body).marginBottom || '0'))
    const edge = frame.offsetHeight - root.clientHeight // its line, and a bar where it scrolls sideways
    const height = Math.ceil(Math.max(root.offsetHeight, content)) + edge
    if (height > most) root.style.overflowY = ''
    frame.style.flexBasis = Math.min(height, most) + 'px'
    frame.classList.add('fitted')
  }
}

/** Keys that are pressed in the frame are for the page. */
function pass(e: KeyboardEvent) {
  const { key, code, ctrlKey, metaKey, altKey, shiftKey } = e
  const again = new KeyboardEvent('keydown', { key, code, ctrlKey, metaKey, altKey, shiftKey, bubbles: true, cancelable: true })
  if (!document.body.dispatchEvent(again)) e.preventDefault()
}

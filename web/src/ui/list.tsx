// Long lists, of which only the lines in view are in the page.
import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Pages } from '../api/query'
import { t } from '../words'
import { Failure, Loading } from './notice'

interface Props<T> {
  pages: Pages<T>
  idOf: (item: T) => string
  row: (item: T, index: number) => ComponentChildren
  /** The height of a line in pixels, on a wide screen and on a narrow one. */
  height: number
  narrowHeight?: number
  empty: ComponentChildren
  label: string
  /** Keeps the line of this id in view. */
  current?: string
}

const narrow = matchMedia('(max-width: 700px)')
const spare = 8 // lines above and below the view

/** A list of lines of one height that reads on as the viewer scrolls the page or the box that it lies in. */
export function LongList<T>({ pages, idOf, row, height, narrowHeight = height, empty, label, current }: Props<T>) {
  const box = useRef<HTMLDivElement>(null)
  const size = narrow.matches ? narrowHeight : height
  const [from, to] = useWindow(box, size, pages.items.length)
  useAnchor(box, size, pages.items, idOf)

  useLayoutEffect(() => {
    if (pages.more && !pages.error && to >= pages.items.length - spare) pages.loadMore()
  }, [to, pages.items, pages.more]) // the list anew may have cost a read that was under way
  useLayoutEffect(() => {
    const at = current ? pages.items.findIndex((item) => idOf(item) === current) : -1
    if (at >= 0) reveal(box.current!, at * size, size)
  }, [current])

  if (pages.items.length === 0) {
    if (pages.error) return <Failure error={pages.error} retry={pages.reload} />
    return pages.loading ? <Loading lines={6} /> : <>{empty}</>
  }
  return (
    <>
      <div ref={box} class="virtual" role="list" aria-label={label} style={{ height: pages.items.length * size + 'px' }}>
        {pages.items.slice(from, to).map((item, i) => (
          <div key={idOf(item)} role="listitem" aria-setsize={pages.more ? -1 : pages.items.length} aria-posinset={from + i + 1} style={{ top: (from + i) * size + 'px', height: size + 'px' }}>
            {row(item, from + i)}
          </div>
        ))}
      </div>
      {pages.error ? <Failure error={pages.error} retry={async () => pages.loadMore()} /> : pages.more && <div class="more" role="status"><span class="spinner" style={{ display: 'inline-block' }} /><span class="visually-hidden">{t('ui.loading_more')}</span></div>}
    </>
  )
}

function scrollerOf(element: HTMLElement): HTMLElement | null {
  for (let e = element.parentElement; e; e = e.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(e).overflowY)) return e
  }
  return null
}

/** Which lines are in view. */
function useWindow(box: { current: HTMLDivElement | null }, size: number, length: number): [number, number] {
  const [range, setRange] = useState<[number, number]>([0, 40])
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const scroller = scrollerOf(element)
    const look = () => {
      const view = scroller ? scroller.getBoundingClientRect() : { top: 0, height: innerHeight }
      const top = view.top - element.getBoundingClientRect().top
      const from = Math.max(0, Math.floor(top / size) - spare)
      const to = Math.max(0, Math.ceil((top + view.height) / size) + spare)
      setRange((r) => (r[0] === from && r[1] === to ? r : [from, to]))
    }
    look()
    const target: EventTarget = scroller ?? window
    target.addEventListener('scroll', look, { passive: true })
    addEventListener('resize', look)
    return () => {
      target.removeEventListener('scroll', look)
      removeEventListener('resize', look)
    }
  }, [size, length > 0])
  return range
}

/** Keeps the lines in view where they are when others come or go above them. At the very top the new ones are shown. */
function useAnchor<T>(box: { current: HTMLDivElement | null }, size: number, items: T[], idOf: (item: T) => string) {
  const before = useRef(items)
  useLayoutEffect(() => {
    const old = before.current
    before.current = items
    const element = box.current
    if (!element || old === items) return
    const scroller = scrollerOf(element)
    const top = (scroller?.getBoundingClientRect().top ?? 0) - element.getBoundingClientRect().top
    const first = Math.floor(top / size)
    if (top <= 0 || first >= old.length) return
    const id = idOf(old[first]!)
    const at = items.findIndex((item) => idOf(item) === id)
    if (at >= 0 && at !== first) (scroller ?? document.documentElement).scrollTop += (at - first) * size
  }, [items])
}

function reveal(element: HTMLElement, top: number, size: number) {
  const scroller = scrollerOf(element)
  if (!scroller) return
  const at = element.getBoundingClientRect().top - scroller.getBoundingClientRect().top + top
  if (at < 0) scroller.scrollTop += at
  else if (at + size > scroller.clientHeight) scroller.scrollTop += at + size - scroller.clientHeight
}

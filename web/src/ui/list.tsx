// Long lists, of which only the lines in view are in the page.
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Pages } from '../api/query'
import { compact, turnDensity } from '../density'
import { useTyped } from '../router'
import { t } from '../words'
import { IconButton } from './button'
import { Select, TextField } from './form'
import { Icon } from './icons'
import { Failure, Loading } from './notice'
import { count, plural } from './values'

/** A column of a list that is a table. */
export interface Column {
  name: string
  /** The orders that its head asks for: the first one, and when that is in use the second. */
  sorts?: readonly [string, string]
  /** Its values are numbers, at the right. */
  number?: boolean
  /** It has no head for the eye. */
  bare?: boolean
}

/** Makes a list a table: its rows are cells, and its columns have heads by which it is sorted. */
export interface Table {
  columns: Column[]
  /** The class of the rows and of the row of heads, which has their columns. */
  class: string
  /** The order of the list, if it has several. With a minus before it, it descends. */
  sort?: string
  onSort?: (sort: string) => void
}

interface Props<T> {
  pages: Pages<T>
  idOf: (item: T) => string
  /** What is in a line; in a table its cells. */
  row: (item: T, index: number) => ComponentChildren
  /** The height of a line in pixels, on a wide screen and on a narrow one. */
  height: number
  narrowHeight?: number
  /** The same where lists are compact; lines without these are as high as ever. */
  compactHeight?: number
  narrowCompactHeight?: number
  empty: ComponentChildren
  label: string
  /** Keeps the line of this id in view. */
  current?: string
  table?: Table
}

const narrowScreen = matchMedia('(max-width: 700px)')

/** Whether the screen is that of a phone. */
export const narrow = signal(narrowScreen.matches)
narrowScreen.addEventListener('change', () => { narrow.value = narrowScreen.matches })

const spare = 8 // lines above and below the view
const above = 200 // pixels above the lines of a page: heads, filters
const pictureTime = 100 // milliseconds within which the browser has drawn what the page set

/** A list of lines of one height that reads on as the viewer scrolls the page or the box that it lies in. */
export function LongList<T>({ pages, idOf, row, height, narrowHeight = height, compactHeight = height, narrowCompactHeight = narrowHeight, empty, label, current, table }: Props<T>) {
  const box = useRef<HTMLDivElement>(null)
  const size = narrow.value ? (compact.value ? narrowCompactHeight : narrowHeight) : compact.value ? compactHeight : height
  const [from, to] = useWindow(box, size, pages.items.length)
  useAnchor(box, size, pages.items, idOf)

  useEffect(() => { // after the picture, which a read would delay
    if (pages.more && !pages.error && to >= pages.items.length - spare) pages.loadMore()
  }, [to, pages.items, pages.more]) // the list anew may have cost a read that was under way
  useLayoutEffect(() => {
    const at = current ? pages.items.findIndex((item) => idOf(item) === current) : -1
    if (at >= 0) reveal(box.current!, at * size, size)
  }, [current])

  if (pages.items.length === 0) {
    if (pages.error) return <Failure error={pages.error} retry={pages.reload} />
    return pages.loading || pages.more ? <Loading lines={6} /> : <>{empty}</> // a search through much may find the first later
  }
  const length = pages.items.length
  const lines = pages.items.slice(from, to).map((item, i) => (
    <div key={idOf(item)} {...(table ? { role: 'row', 'aria-rowindex': from + i + 2, class: 'line ' + table.class } : { role: 'listitem', 'aria-setsize': pages.more ? -1 : length, 'aria-posinset': from + i + 1 })}
      style={{ top: (from + i) * size + 'px', height: size + 'px' }}>
      {row(item, from + i)}
    </div>
  ))
  const ending = pages.more && to >= length // anywhere else nobody sees the spinner, and what moves makes all that is drawn over it slow
  const all = { ref: box, class: 'virtual', style: { height: length * size + 'px' } }
  return (
    <>
      {table ? (
        <div role="table" aria-label={label} aria-rowcount={pages.more ? -1 : length + 1} class="sorted" onKeyDown={step}>
          <Heads of={table} />
          <div {...all} role="rowgroup">{lines}</div>
        </div>
      ) : <div {...all} role="list" aria-label={label}>{lines}</div>}
      {pages.error ? <Failure error={pages.error} retry={async () => pages.loadMore()} /> : ending && <div class="more" role="status"><span class="spinner" style={{ display: 'inline-block' }} /><span class="visually-hidden">{t('ui.loading_more')}</span></div>}
    </>
  )
}

function Heads({ of: { columns, class: rows, sort = '', onSort } }: { of: Table }) {
  return (
    <div role="rowgroup" class="sorted-heads">
      <div role="row" aria-rowindex={1} class={'line ' + rows}>
        {columns.map(({ name, sorts, number, bare }) => {
          const on = sorts?.includes(sort)
          return (
            <span key={name} role="columnheader" class={number ? 'number' : undefined} aria-sort={on ? (sort.startsWith('-') ? 'descending' : 'ascending') : undefined}>
              {sorts ? (
                <button type="button" class="sorted-by" onClick={() => onSort?.(sort === sorts[0] ? sorts[1] : sorts[0])}>
                  {name}{on && <Icon name={sort.startsWith('-') ? 'down' : 'collapse'} />}
                </button>
              ) : <span class={bare ? 'visually-hidden' : undefined}>{name}</span>}
            </span>
          )
        })}
      </div>
    </div>
  )
}

/** Goes from the link of one row to that of the next or the one before. */
function step(e: KeyboardEvent) {
  if ((e.key !== 'ArrowDown' && e.key !== 'ArrowUp') || e.ctrlKey || e.metaKey || e.altKey || e.shiftKey) return
  const at = (e.target as Element).closest('.virtual > [role=row]')
  const next = e.key === 'ArrowDown' ? at?.nextElementSibling : at?.previousElementSibling
  const link = next?.querySelector('a')
  if (!next || !link) return
  e.preventDefault()
  link.focus({ preventScroll: true })
  next.scrollIntoView({ block: 'nearest' })
}

interface BarProps {
  children?: ComponentChildren
  /** How many there are. */
  total?: string
  table?: Table
  /** The orders of the list, for a screen without heads. */
  orders?: readonly (readonly [string, string])[]
}

/**
 * What stands above a list: its filters, how many there are, the order on a phone, and the switch
 * to a compact list.
 */
export function ListBar({ children, total, table, orders }: BarProps) {
  return (
    <div class="list-bar">
      {children}
      {table?.onSort && orders && narrow.value && <Select label="Order" hideLabel value={table.sort ?? ''} onChange={table.onSort} options={orders} />}
      <span class="list-about"><span class="muted small nowrap">{total}</span><DensityButton /></span>
    </div>
  )
}

interface TypedProps { name: string; label: string; hideLabel?: boolean; placeholder?: string; list?: string[]; maxLength?: number; eager?: boolean }

/** A filter that is typed, which is the parameter of that name in the address (useTyped). */
export function TypedField({ name, eager, ...rest }: TypedProps) {
  const [text, setText] = useTyped(name, { eager })
  return <TextField {...rest} type="search" value={text} onInput={setText} />
}

/** The field by which a list is searched: the parameter q of the address. */
export function SearchField({ label, eager }: { label: string; eager?: boolean }) {
  return <div class="search"><Icon name="search" /><TypedField name="q" label={label} hideLabel placeholder={label} eager={eager} /></div>
}

/** Makes the rows of lists lower, or higher again. */
export function DensityButton() {
  return <IconButton look="ghost" small icon={compact.value ? 'rows' : 'rows-dense'} label={compact.value ? t('ui.comfortable') : t('ui.compact')} onClick={turnDensity} />
}

/** How many things a list has: all of them if that is known, else those that were read so far. */
export function totalOf<T>(pages: Pages<T>, one: string, many = one + 's', known?: number): string {
  if (known !== undefined) return plural(known, one, many)
  if (pages.loading || (pages.items.length === 0 && pages.more)) return ''
  return pages.more ? `${count(pages.items.length)}+ ${many}` : plural(pages.items.length, one, many)
}

/** Whether the first page of a list has been drawn. What else stands on its page is read after that. */
export function useDrawn({ loading }: { loading: boolean }): boolean {
  const [drawn, setDrawn] = useState(false)
  useEffect(() => {
    if (loading) return
    const timer = setTimeout(() => setDrawn(true), pictureTime)
    return () => clearTimeout(timer)
  }, [loading])
  return drawn
}

function scrollerOf(element: HTMLElement): HTMLElement | null {
  for (let e = element.parentElement; e; e = e.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(e).overflowY)) return e
  }
  return null
}

/**
 * Which lines are in the page: at first those that fit on the screen, and soon after the first
 * picture those around them too. A list below the view has its first lines all the same. So screen
 * readers find it.
 */
function useWindow(box: { current: HTMLDivElement | null }, size: number, length: number): [number, number] {
  const first = (): [number, number] => [0, Math.max(spare, Math.ceil((innerHeight - above) / size))]
  const [range, setRange] = useState(first)
  const drawn = useRef(false)
  useEffect(() => {
    const element = box.current
    if (!element) { // another list is read
      drawn.current = false
      setRange(first)
      return
    }
    const scroller = scrollerOf(element)
    const look = () => {
      const view = scroller ? scroller.getBoundingClientRect() : { top: 0, height: innerHeight }
      const top = view.top - element.getBoundingClientRect().top
      const from = Math.max(0, Math.floor(top / size) - spare)
      const to = Math.max(spare, Math.ceil((top + view.height) / size) + spare)
      setRange((r) => (r[0] === from && r[1] === to ? r : [from, to]))
    }
    const soon = setTimeout(look, drawn.current ? 0 : pictureTime)
    drawn.current = true
    const target: EventTarget = scroller ?? window
    target.addEventListener('scroll', look, { passive: true })
    addEventListener('resize', look)
    return () => {
      clearTimeout(soon)
      target.removeEventListener('scroll', look)
      removeEventListener('resize', look)
    }
  }, [size, length > 0])
  return range
}

/**
 * Keeps the lines in view where they are when others come or go above them, or all become higher or
 * lower. At the very top the new ones are shown. It measures before the page changes, since the
 * browser scrolls by itself when the page becomes too short for the position.
 */
function useAnchor<T>(box: { current: HTMLDivElement | null }, size: number, items: T[], idOf: (item: T) => string) {
  const before = useRef({ items, size })
  const { items: old, size: height } = before.current
  const element = box.current
  const changes = element !== null && (old !== items || height !== size)
  const scroller = changes ? scrollerOf(element) : null
  const view = scroller ?? document.documentElement
  const position = changes ? view.scrollTop : 0
  const top = changes ? (scroller?.getBoundingClientRect().top ?? 0) - element.getBoundingClientRect().top : 0
  useLayoutEffect(() => {
    before.current = { items, size }
    const first = Math.floor(top / height)
    if (top <= 0 || first >= old.length) return
    const id = idOf(old[first]!)
    const at = old === items ? first : items.findIndex((item) => idOf(item) === id)
    if (at >= 0) view.scrollTop = position + at * size - first * height
  }, [items, size])
}

function reveal(element: HTMLElement, top: number, size: number) {
  const scroller = scrollerOf(element)
  if (!scroller) return
  const at = element.getBoundingClientRect().top - scroller.getBoundingClientRect().top + top
  if (at < 0) scroller.scrollTop += at
  else if (at + size > scroller.clientHeight) scroller.scrollTop += at + size - scroller.clientHeight
}

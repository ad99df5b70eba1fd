// What pages are made of.
import type { ComponentChildren } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { setTitle } from '../title'
import { IconButton } from './button'
import type { IconName } from './icons'
import { Icon } from './icons'

interface PageProps { title: string; heading?: ComponentChildren; intro?: ComponentChildren; back?: { href: string; label: string }; actions?: ComponentChildren; tabs?: ComponentChildren; children: ComponentChildren }

/** A page: its title is that of the browser's tab too, and gets the focus when the viewer comes here. */
export function Page({ title, heading, intro, back, actions, tabs, children }: PageProps) {
  const head = useRef<HTMLHeadingElement>(null)
  useEffect(() => setTitle(title), [title])
  useEffect(() => {
    if (document.activeElement === document.body || document.activeElement?.closest('nav')) head.current?.focus({ preventScroll: true })
  }, [])
  return (
    <div class="page">
      <header class="page-head">
        {back && <a class="page-back" href={back.href}><Icon name="back" /> {back.label}</a>}
        <div class="row-between">
          <div class="stack-tight">
            <h1 ref={head} tabIndex={-1}>{heading ?? title}</h1>
            {intro && <p class="muted">{intro}</p>}
          </div>
          {actions && <div class="row">{actions}</div>}
        </div>
        {tabs}
      </header>
      <div class="stack">{children}</div>
    </div>
  )
}

export function Card({ title, note, actions, flush, children }: { title?: ComponentChildren; note?: ComponentChildren; actions?: ComponentChildren; flush?: boolean; children: ComponentChildren }) {
  return (
    <section class={'card' + (flush ? ' flush' : '')}>
      {(title || actions) && (
        <header>
          <div><h2>{title}</h2>{note && <p>{note}</p>}</div>
          {actions && <div class="row">{actions}</div>}
        </header>
      )}
      <div class="body">{children}</div>
    </section>
  )
}

/** Name and value, one under the other. Values that are absent leave their line out. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false).map(([name, value]) => (
        <><dt key={name}>{name}</dt><dd>{value}</dd></>
      ))}
    </dl>
  )
}

export function Stat({ name, value, note, href }: { name: string; value: ComponentChildren; note?: ComponentChildren; href?: string }) {
  return (
    <div class="stat">
      <span class="name">{href ? <a href={href}>{name}</a> : name}</span>
      <span class="value">{value}</span>
      {note && <span class="small muted">{note}</span>}
    </div>
  )
}

/** A bar that fills. That of a limit warns from 90 % on. */
export function Bar({ value, of, label, limit }: { value: number; of: number; label: string; limit?: boolean }) {
  const part = of > 0 ? Math.min(100, (100 * value) / of) : 0
  return (
    <div class={'progress' + (!limit || part < 90 ? '' : part < 100 ? ' warn' : ' bad')} role="progressbar" aria-label={label} aria-valuenow={Math.round(part)} aria-valuemin={0} aria-valuemax={100}>
      <div style={{ width: part + '%' }} />
    </div>
  )
}

/** The place of a table. Where the table is wider it scrolls sideways, by the keyboard too. */
export function TableWrap({ label, children }: { label: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null)
  const [scrolls, setScrolls] = useState(false)
  useEffect(() => {
    const { current } = box
    const observer = new ResizeObserver(() => setScrolls(current!.scrollWidth > current!.clientWidth))
    observer.observe(current!)
    observer.observe(current!.firstElementChild!)
    return () => observer.disconnect()
  }, [])
  return <div class="table-wrap" ref={box} {...(scrolls && { tabIndex: 0, role: 'region', 'aria-label': label })}>{children}</div>
}

/** A button that opens a list of actions. */
export function Menu({ label, icon = 'more', small, children }: { label: string; icon?: IconName; small?: boolean; children: ComponentChildren }) {
  const [open, setOpen] = useState(false)
  const ref = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => { // at once, since a key may follow before the next picture
    if (!open) return
    const close = (e: Event) => {
      if (e.type === 'keydown' && (e as KeyboardEvent).key !== 'Escape') return
      if (e.type === 'pointerdown' && ref.current?.contains(e.target as Node)) return
      setOpen(false)
      if (e.type === 'keydown') {
        e.preventDefault() // the page and a dialog around the menu stay as they are
        ref.current?.querySelector('button')?.focus()
      }
    }
    addEventListener('pointerdown', close)
    addEventListener('keydown', close, true) // before the keys of the page
    return () => {
      removeEventListener('pointerdown', close)
      removeEventListener('keydown', close, true)
    }
  }, [open])
  const chosen = () => {
    ref.current?.querySelector('button')?.focus() // what opens next gives the focus back to it
    setOpen(false)
  }
  return (
    <div class="menu" ref={ref}>
      <IconButton look="ghost" small={small} icon={icon} label={label} aria-expanded={open} onClick={() => setOpen(!open)} />
      {open && <div class="list" onClick={chosen}>{children}</div>}
    </div>
  )
}

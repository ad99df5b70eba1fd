// Tabs: links to pages that belong together, or to the parts of one page.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { barred } from '../access'

interface Tab { href: string; name: string; id: string }
interface TabsProps { tabs: Tab[]; current: string; label: string }

/** Where there is no room for all tabs, has the one that is open show. */
function useInView(current: string, n: number) {
  const bar = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const at = bar.current?.querySelector<HTMLElement>('[aria-current], [aria-selected="true"]')
    if (at) bar.current!.scrollLeft = at.offsetLeft - bar.current!.offsetLeft - (bar.current!.clientWidth - at.offsetWidth) / 2
  }, [current, n])
  return bar
}

/** Links to pages that belong together. */
export function Tabs({ tabs, current, label }: TabsProps) {
  const bar = useInView(current, tabs.length)
  return (
    <nav class="tabs" aria-label={label} ref={bar}>
      {tabs.filter((t) => !barred(t.href)).map((t) => <a key={t.id} href={t.href} aria-current={t.id === current ? 'page' : undefined}>{t.name}</a>)}
    </nav>
  )
}

const panel = 'tab-panel'
const tabOf = (id: string) => 'tab-' + (id || 'first')

/**
 * The tabs of one page. Each is a link, so that it has an address and the browser's buttons lead
 * back to it; the arrow keys go from one to the next. What the open one shows is in a TabPanel.
 */
export function PageTabs({ tabs, current, label }: TabsProps) {
  const bar = useInView(current, tabs.length)
  const press = (e: KeyboardEvent) => {
    const all = [...bar.current!.querySelectorAll<HTMLElement>('[role="tab"]')], at = all.indexOf(e.target as HTMLElement)
    if (e.key === ' ') all[at]?.click()
    else if (e.key === 'ArrowRight') all[(at + 1) % all.length]?.focus()
    else if (e.key === 'ArrowLeft') all.at(at - 1)?.focus()
    else if (e.key === 'Home') all[0]?.focus()
    else if (e.key === 'End') all.at(-1)?.focus()
    else return
    e.preventDefault()
  }
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={bar} onKeyDown={press}>
      {tabs.map((t) => {
        const open = t.id === current
        return <a key={t.id} role="tab" id={tabOf(t.id)} href={t.href} aria-selected={open} aria-controls={open ? panel : undefined} tabIndex={open ? 0 : -1}>{t.name}</a>
      })}
    </div>
  )
}

/** What the open tab of a page shows. */
export function TabPanel({ current, children }: { current: string; children: ComponentChildren }) {
  return <div class="stack" role="tabpanel" id={panel} aria-labelledby={tabOf(current)}>{children}</div>
}

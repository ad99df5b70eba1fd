// Places of the dashboard and how one gets to them. Links are plain <a href="/...">: a click on one that leads to a place
// here changes the page without loading it anew.
import { computed, signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'

const address = signal(location.pathname + location.search)

/** Where the viewer is. */
export const path = computed(() => address.value.split('?')[0]!)

/** What stands behind the ? of the address. */
export const params = computed(() => new URLSearchParams(address.value.split('?')[1] ?? ''))

/** Goes to another place. What leads elsewhere, such as //elsewhere.test, goes to the overview. */
export function go(to: string, { replace = false } = {}) {
  if (new URL(to, location.origin).origin !== location.origin) to = '/'
  if (to === address.value) return
  history[replace ? 'replaceState' : 'pushState'](null, '', to)
  const moved = to.split('?')[0] !== path.value
  address.value = to
  if (moved && !replace) scrollTo(0, 0)
}

/** Where the server has sent the viewer to sign in from, if it is to be gone back to. Only its own page can be. */
export function cameFrom(): string | undefined {
  const next = path.value === '/sign-in' ? params.value.get('next') : null
  return next?.startsWith('/oauth/authorize?') ? next : undefined
}

/** Sets parameters of the address; those with an empty value leave it. */
export function setParams(change: Record<string, string | undefined>, { replace = true } = {}) {
  const next = new URLSearchParams(params.value)
  for (const [name, value] of Object.entries(change)) {
    if (value) next.set(name, value)
    else next.delete(name)
  }
  go(path.value + (next.size > 0 ? '?' + next : ''), { replace })
}

const still = 300 // ms without a key

/** A parameter of the address that is typed. The address follows once the typing pauses, and the text where the address changes by itself. */
export function useTyped(name: string): [text: string, setText: (text: string) => void] {
  const set = params.value.get(name) ?? ''
  const [text, setText] = useState(set)
  const mine = useRef(set)
  useEffect(() => {
    if (set !== mine.current) setText(set)
    mine.current = set
  }, [set])
  useEffect(() => {
    const typed = text.trim()
    if (typed === mine.current) return
    const timer = setTimeout(() => {
      mine.current = typed
      setParams({ [name]: typed })
    }, still)
    return () => clearTimeout(timer)
  }, [text])
  return [text, setText]
}

/** The parts of the path that a pattern such as /domains/:id names, or null if it does not fit. */
export function match(pattern: string, at: string): Record<string, string> | null {
  const want = pattern.split('/'), have = at.replace(/(.)\/$/, '$1').split('/')
  if (want.length !== have.length) return null
  const found: Record<string, string> = {}
  for (let i = 0; i < want.length; i++) {
    const name = want[i]!
    if (!name.startsWith(':')) {
      if (name !== have[i]) return null
      continue
    }
    if (have[i] === '') return null
    try {
      found[name.slice(1)] = decodeURIComponent(have[i]!)
    } catch {
      return null
    }
  }
  return found
}

/** Starts to follow links and the browser's buttons. known tells which paths are places here. */
export function startRouter(known: (path: string) => boolean) {
  addEventListener('popstate', () => { address.value = location.pathname + location.search })
  document.addEventListener('click', (e) => {
    const link = (e.target as Element).closest?.('a')
    if (!link || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    if (link.origin !== location.origin || link.target || link.hasAttribute('download') || !known(link.pathname)) return
    e.preventDefault()
    if (link.hash && link.pathname === location.pathname) return
    go(link.pathname + link.search)
  })
}

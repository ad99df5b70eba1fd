// Places of the dashboard and how one gets to them. Links are plain <a href="/...">: a click on one that leads to a place
// here changes the page without loading it anew.
import { computed, signal } from '@preact/signals'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'

const address = signal(location.pathname + location.search)

/** Where the viewer is. */
export const path = computed(() => address.value.split('?')[0]!)

/** What stands behind the ? of the address. */
export const params = computed(() => new URLSearchParams(address.value.split('?')[1] ?? ''))

/** What has to be asked before the viewer leaves a page. */
interface Watch {
  /** Tells whether nothing is lost by going there. */
  keeps: (to: string) => boolean
  /** Asks, and calls leave if the viewer wants that. */
  ask: (leave: () => unknown) => void
}

let watch: Watch | undefined

/** Has the viewer be asked before a page is left. Gives how to end that. */
export function beforeLeaving(by: Watch): () => void {
  watch = by
  return () => { if (watch === by) watch = undefined }
}

/** Does what takes the viewer from the page, once they want to lose what was not saved there. */
export function leave(run: () => unknown): unknown {
  if (!watch) return run()
  watch.ask(() => {
    watch = undefined
    return run()
  })
}

/**
 * Goes to another place. What leads elsewhere, such as //elsewhere.test, goes to the overview.
 * unasked: what was not saved has lost its use.
 */
export function go(to: string, { replace = false, unasked = false } = {}) {
  if (new URL(to, location.origin).origin !== location.origin) to = '/'
  if (to === address.value) return
  if (!unasked && watch && !watch.keeps(to)) {
    leave(() => go(to, { replace }))
    return
  }
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

/** A parameter of an address, or undefined where it has none or an empty one. */
export function param(of: URLSearchParams, name: string): string | undefined {
  return of.get(name) || undefined
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

/**
 * A parameter of the address that is typed. The address follows once the typing pauses, and the
 * text where the address changes by itself. eager: it follows the first key after a pause at once.
 * ready gives the part of the text that it follows.
 */
export function useTyped(name: string, { eager = false, ready = (text: string) => text } = {}): [text: string, setText: (text: string) => void] {
  const set = params.value.get(name) ?? ''
  const [text, setText] = useState(set)
  const mine = useRef(set)
  const last = useRef(0) // when a key was pressed
  useEffect(() => {
    if (set !== mine.current) setText(set)
    mine.current = set
  }, [set])
  useLayoutEffect(() => { // before the picture of the text, which what is found need not wait for
    const typed = ready(text).trim()
    if (typed === mine.current) return
    const follow = () => {
      mine.current = typed
      setParams({ [name]: typed })
    }
    const paused = Date.now() - last.current >= still
    last.current = Date.now()
    if (eager && paused) return follow()
    const timer = setTimeout(follow, still)
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
  addEventListener('popstate', () => {
    const to = location.pathname + location.search
    if (watch && to !== address.value && !watch.keeps(to)) {
      history.pushState(null, '', address.value) // the address is that of the page until the viewer has said to leave it
      leave(() => history.back())
    } else address.value = to
  })
  document.addEventListener('click', (e) => {
    const link = (e.target as Element).closest?.('a')
    if (!link || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    if (link.origin !== location.origin || link.target || link.hasAttribute('download') || !known(link.pathname)) return
    e.preventDefault()
    if (link.hash && link.pathname === location.pathname) return
    go(link.pathname + link.search)
  })
}

// Short messages at the foot of the page, or of the dialog that is open: what lies outside of that cannot be reached.
import { signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { ApiError, session } from '../api/client'
import { beforeSignOut } from '../api/session'
import type { Mend } from '../api/wording'
import { t as text } from '../words'

interface Toast {
  id: number
  text: string
  bad: boolean
  mend?: Mend
  undo?: () => void
  /** What it tells of: a later toast of the same takes its place, though it offers to take it back. */
  about?: string
  over: () => void
  left: number
}

const toasts = signal<Toast[]>([])
const timers = new Map<number, { timer: ReturnType<typeof setTimeout>; ends: number }>()
const shortest = 2000 // ms that a toast stays after one has looked at it
let last = 0

/** The dialogs that are open, the uppermost last. */
export const dialogs = signal<string[]>([])

function close(id: number) {
  clearTimeout(timers.get(id)?.timer)
  timers.delete(id)
  toasts.value = toasts.value.filter((t) => t.id !== id)
}

/**
 * Shows a toast for some seconds, in the place of those that tell of what was done before. over is
 * called when it goes by itself or is closed.
 */
function show(toast: Pick<Toast, 'text' | 'bad' | 'mend' | 'undo' | 'about'> & { over?: () => void }, seconds: number): number {
  const t: Toast = { over: () => close(t.id), ...toast, id: ++last, left: seconds * 1000 }
  outdate()
  for (const old of toasts.value) if (old.about !== undefined && old.about === t.about || old.bad && old.text === t.text) old.over()
  toasts.value = [...toasts.value.slice(-2), t]
  run(t)
  return t.id
}

function run(t: Toast) {
  timers.set(t.id, { timer: setTimeout(t.over, t.left), ends: Date.now() + t.left })
}

/** Stops the clock of a toast while somebody is at it. */
function hold(t: Toast) {
  const running = timers.get(t.id)
  if (!running) return
  clearTimeout(running.timer)
  timers.delete(t.id)
  t.left = Math.max(shortest, running.ends - Date.now())
}

function release(t: Toast) {
  if (!timers.has(t.id) && toasts.value.includes(t)) run(t)
}

/** Takes away what tells of things done before, as something else is begun: it need not be true any more. */
export function outdate() {
  for (const t of toasts.value) if (!t.undo && !t.bad) close(t.id)
}

/** Tells that something was done. */
export function told(text: string) {
  show({ text, bad: false }, 5)
}

/** Tells that something was done, and offers to take it back. about: see Toast. */
export function toldUndoable(text: string, undo: () => Promise<unknown>, about: string) {
  const who = session.value?.user.id
  const id = show({ text, bad: false, about, undo: () => {
    close(id)
    if (session.value?.user.id === who) undo().catch(failed)
  } }, 6)
}

/** Tells why something failed, until the function that this gives is called. */
export function failed(error: unknown): () => void {
  const id = show({ text: error instanceof Error ? error.message : String(error), bad: true, mend: error instanceof ApiError ? error.mend : undefined }, 10)
  return () => close(id)
}

/**
 * Does something after some seconds, unless the viewer takes it back before. Leaving the page and signing out do it at
 * once. Where the session has ended by itself it is not done, least of all in the name of who signs in next.
 * about: see Toast.
 */
export function doLater(text: string, run: () => Promise<unknown>, undo: () => void, about?: string, seconds = 6) {
  const who = session.value?.user.id
  let open = true
  const end = () => {
    open = false
    removeEventListener('pagehide', finish)
    keep()
    close(id)
    return session.value?.user.id === who
  }
  const finish = async () => {
    if (!open || !end()) return
    await run().catch((error) => {
      undo()
      failed(error)
    })
  }
  const back = () => { if (open && end()) undo() }
  const keep = beforeSignOut(finish)
  addEventListener('pagehide', finish)
  const id = show({ text, bad: false, undo: back, about, over: finish }, seconds)
}

/** The elements that one types in. */
export const typedIn = 'input, textarea, select, [contenteditable]'

/** Takes back what was done last, by the keys that do so everywhere. */
function press(e: KeyboardEvent) {
  if (e.key !== 'z' || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || (e.target as Element).matches?.(typedIn)) return
  const undo = toasts.value.findLast((t) => t.undo)?.undo
  if (!undo) return
  e.preventDefault()
  undo()
}

/** Where toasts are shown; within is the dialog that this place is in. */
export function Toasts({ within }: { within?: string }) {
  useEffect(() => {
    if (within !== undefined) return
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
  const here = dialogs.value.at(-1) === within ? toasts.value : []
  return (
    <div class="toasts">
      <div role="status" aria-live="polite">{here.filter((t) => !t.bad).map((t) => <Shown key={t.id} toast={t} />)}</div>
      {here.filter((t) => t.bad).map((t) => <Shown key={t.id} toast={t} />)}
    </div>
  )
}

function Shown({ toast: t }: { toast: Toast }) {
  return (
    <div class={'toast' + (t.bad ? ' bad' : '')} role={t.bad ? 'alert' : undefined} onMouseEnter={() => hold(t)} onMouseLeave={() => release(t)} onFocusIn={() => hold(t)} onFocusOut={() => release(t)}>
      <span>{t.text}{t.mend && <> <a href={t.mend.href} onClick={t.over}>{t.mend.link}</a></>}</span>
      <button type="button" title={t.undo ? `${text('ui.key.ctrl')} + Z` : undefined} onClick={t.undo ?? t.over}>{t.undo ? text('ui.undo') : text('ui.dismiss')}</button>
    </div>
  )
}

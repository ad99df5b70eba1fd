// Short messages at the foot of the page.
import { signal } from '@preact/signals'
import { session } from '../api/client'
import { beforeSignOut } from '../api/session'

interface Toast { id: number; text: string; bad: boolean; action?: { label: string; run: () => void } }

const toasts = signal<Toast[]>([])
let last = 0

function close(id: number) {
  toasts.value = toasts.value.filter((t) => t.id !== id)
}

function show(toast: Omit<Toast, 'id'>, seconds: number) {
  const id = ++last
  toasts.value = [...toasts.value.slice(-2), { ...toast, id }]
  setTimeout(() => close(id), seconds * 1000)
}

/** Tells that something was done. */
export function told(text: string) {
  show({ text, bad: false }, 5)
}

/** Tells why something failed. */
export function failed(error: unknown) {
  show({ text: error instanceof Error ? error.message : String(error), bad: true }, 10)
}

/**
 * Does something after some seconds, unless the viewer takes it back before. Leaving the page and signing out do it at
 * once. Where the session has ended by itself it is not done, least of all in the name of who signs in next.
 */
export function doLater(text: string, run: () => Promise<unknown>, undo: () => void, seconds = 6) {
  const id = ++last
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
  const back = () => {
    if (end()) undo()
  }
  const keep = beforeSignOut(finish)
  addEventListener('pagehide', finish)
  toasts.value = [...toasts.value.slice(-2), { id, text, bad: false, action: { label: 'Undo', run: back } }]
  setTimeout(finish, seconds * 1000)
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((t) => (
        <div key={t.id} class={'toast' + (t.bad ? ' bad' : '')}>
          <span>{t.text}</span>
          <button type="button" onClick={t.action ? t.action.run : () => close(t.id)}>{t.action?.label ?? 'Close'}</button>
        </div>
      ))}
    </div>
  )
}

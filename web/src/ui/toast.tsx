// Short messages at the foot of the page.
import { signal } from '@preact/signals'

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
 * Does something after some seconds, unless the viewer takes it back before. Leaving the page does it at once.
 */
export function doLater(text: string, run: () => Promise<unknown>, undo: () => void, seconds = 6) {
  const id = ++last
  let open = true
  const finish = () => {
    if (!open) return
    open = false
    removeEventListener('pagehide', finish)
    close(id)
    run().catch((error) => {
      undo()
      failed(error)
    })
  }
  const back = () => {
    open = false
    removeEventListener('pagehide', finish)
    close(id)
    undo()
  }
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

import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { IconButton } from './button'
import { Form, TextField } from './form'
import { dialogs, Toasts } from './toast'
import { t } from '../words'

interface DialogProps { title: string; onClose: () => void; wide?: boolean; children: ComponentChildren }

/** A dialog that is open as long as it is rendered. */
export function Dialog({ title, onClose, wide, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null)
  const left = useRef(false)
  const id = useId()
  useEffect(() => {
    const dialog = ref.current!
    const before = document.activeElement as HTMLElement | null
    if (!dialog.open) dialog.showModal()
    dialogs.value = [...dialogs.value, id]
    return () => {
      left.current = true
      dialogs.value = dialogs.value.filter((other) => other !== id)
      if (!dialog.open) return // the browser closed it and gave the focus back, which may be elsewhere by now
      dialog.close()
      before?.focus?.()
    }
  }, [])
  const closed = () => { if (!left.current) onClose() } // browsers close it over our head at a second Escape
  return (
    <dialog ref={ref} class={'dialog' + (wide ? ' wide' : '')} aria-labelledby={id} onCancel={(e) => { e.preventDefault(); onClose() }} onClose={closed}>
      <header>
        <h2 id={id} dir="auto">{title}</h2>
        <IconButton look="ghost" small icon="x" label={t('ui.close')} onClick={onClose} />
      </header>
      <div class="body">{children}</div>
      <Toasts within={id} />
    </dialog>
  )
}

interface Question {
  title: string
  text: ComponentChildren
  action: string
  /** What has to be typed before it can be done, for what cannot be undone. */
  typed?: string
  danger?: boolean
  /** Runs while the dialog waits; an error stays in it. */
  run: () => Promise<unknown>
}

const asked = signal<Question | null>(null)

/** Asks before something is done. */
export function ask(question: Question) {
  asked.value = question
}

/** The place where questions are shown. */
export function Questions() {
  const q = asked.value
  return q && <QuestionDialog key={q.title} question={q} />
}

function QuestionDialog({ question: q }: { question: Question }) {
  const [typed, setTyped] = useState('')
  const close = () => { asked.value = null }
  const run = async () => {
    await q.run()
    if (asked.value === q) close()
  }
  return (
    <Dialog title={q.title} onClose={close}>
      <Form onSubmit={run} submit={q.action} danger={q.danger ?? true} disabled={q.typed !== undefined && typed.trim() !== q.typed}>
        <div>{q.text}</div>
        {q.typed !== undefined && <TextField label={t('ui.confirm', { text: q.typed })} value={typed} onInput={setTyped} autoFocus mono />}
      </Form>
    </Dialog>
  )
}

import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useContext, useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Button, IconButton } from './button'
import { AroundForm, FieldsOf, Form, TextField } from './form'
import { dialogs, Toasts } from './toast'
import { t } from '../words'

interface DialogProps {
  title: string
  onClose: () => void
  wide?: boolean
  /** Something is filled in that its form does not tell of, since it has several steps. */
  unsaved?: boolean
  children: ComponentChildren
}

/**
 * A dialog that is open as long as it is rendered. Before it is closed it asks, if something is
 * filled in.
 */
export function Dialog({ title, onClose, wide, unsaved = false, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null)
  const left = useRef(false)
  const id = useId()
  const latest = useRef({ onClose, unsaved })
  latest.current = { onClose, unsaved }
  const [{ keeps, around }] = useState(() => {
    const held = new Set<object>()
    const keeps = () => held.size > 0 || latest.current.unsaved
    const hold = () => {
      const one = {}
      held.add(one)
      return () => { held.delete(one) }
    }
    const leave = () => keeps() ? askToDiscard(() => latest.current.onClose()) : latest.current.onClose()
    return { keeps, around: { hold, leave } }
  })
  const before = useRef<HTMLElement | null>(null)
  useEffect(() => { // what opens it may move the focus first, to where it comes back afterwards
    before.current = document.activeElement as HTMLElement | null
    if (!ref.current!.open) ref.current!.showModal()
    ref.current!.querySelector<HTMLElement>('[data-met]')?.focus() // a field that wants the focus could not have it before
    dialogs.value = [...dialogs.value, id]
  }, [])
  useLayoutEffect(() => () => { // while it is in the page: later the focus would be taken from where the viewer is by then
    left.current = true
    dialogs.value = dialogs.value.filter((other) => other !== id)
    ref.current!.close() // the browser gives the focus back
    if (dialogs.value.length > 0) setTimeout(() => { if (document.activeElement === document.body) before.current?.focus() }) // one over it may be about to close as well, which keeps the focus until then
  }, [])
  const closed = () => { // browsers close it over our head at a second Escape
    if (left.current) return
    if (keeps()) ref.current!.showModal()
    around.leave()
  }
  const cancel = (e: Event) => {
    if (e.target !== e.currentTarget || !e.cancelable) return // that of a file chooser comes by here; where it says only that the dialog is closed, closed is called as well
    e.preventDefault()
    around.leave()
  }
  return (
    <dialog ref={ref} class={'dialog' + (wide ? ' wide' : '')} aria-labelledby={id} onCancel={cancel} onClose={closed}>
      <header>
        <h2 id={id} dir="auto">{title}</h2>
        <IconButton look="ghost" small icon="x" label={t('ui.close')} onClick={around.leave} />
      </header>
      <div class="body">
        <AroundForm.Provider value={around}><FieldsOf.Provider value={none}>{children}</FieldsOf.Provider></AroundForm.Provider>
      </div>
      <Toasts within={id} />
    </dialog>
  )
}

/** The button at the end of a dialog that shows what was made. */
export function Done() {
  const dialog = useContext(AroundForm)
  return <div class="form-actions"><Button look="primary" onClick={dialog?.leave}>{t('apps.done')}</Button></div>
}

const none = { errors: [], names: new Set<string>() }

interface Question {
  title: string
  text: ComponentChildren
  action: string
  /** What the button says that leaves everything as it is. */
  stay?: string
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

/** Asks before what was filled in is lost. */
export function askToDiscard(discard: () => unknown) {
  ask({ title: t('ui.discard.title'), text: t('ui.discard.text'), action: t('ui.discard.action'), stay: t('ui.discard.stay'), run: async () => { await discard() } })
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
      <Form onSubmit={run} submit={q.action} cancel={q.stay} danger={q.danger ?? true} disabled={q.typed !== undefined && typed.trim() !== q.typed}>
        <div>{q.text}</div>
        {q.typed !== undefined && <TextField label={t('ui.confirm', { text: q.typed })} value={typed} onInput={setTyped} autoFocus mono />}
      </Form>
    </Dialog>
  )
}

// One save bar for everything that can be changed on a page: it comes up once something was
// changed, and nothing of that is lost unasked.
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { beforeLeaving } from '../router'
import { Button } from './button'
import { askToDiscard } from './dialog'
import { besideFields, fieldsIn, FieldsOf, focusWrong, withoutField } from './form'
import { Notice, Wrong } from './notice'
import { outdate, told } from './toast'

/** The state of fields that show what the server has, and what of it the viewer has changed. */
export interface Draft<T extends object> {
  /** What the fields show. */
  values: T
  /** The values that differ from those of the server. */
  changes: Partial<T>
  changed: boolean
  set: (change: Partial<T>) => void
  /** Takes changes back: all, or those that still are as given. */
  reset: (only?: Partial<T>) => void
}

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)

/** Those of the values that differ from the others. */
function differing<T extends object>(values: Partial<T>, from: Partial<T>): Partial<T> {
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => !same(value, from[name as keyof T]))) as Partial<T>
}

/**
 * Keeps what is changed of values that the server has. What nobody has changed here follows the
 * server, so that of two people who change different things neither loses anything.
 */
export function useDraft<T extends object>(from: T): Draft<T> {
  const [edits, setEdits] = useState<Partial<T>>({})
  const latest = useRef(from)
  latest.current = from
  const changes = differing(edits, from)
  useEffect(() => setEdits((all) => differing(all, latest.current)), [JSON.stringify(from)]) // what has come true is no change any more
  return {
    values: { ...from, ...edits }, changes, changed: Object.keys(changes).length > 0,
    set: (change) => setEdits((all) => differing<T>({ ...all, ...change }, latest.current)),
    reset: (only) => setEdits((all) => only ? differing(all, only) : {}),
  }
}

/**
 * What is saved by one request, or by several that belong together. A text that save gives is told
 * to the viewer.
 */
export interface SavePart { changed: boolean; save: () => Promise<unknown>; reset: () => void }

/** A draft that is saved by a function. It also reads again what it has changed. */
export function savedBy<T extends object>(draft: Draft<T>, save: (changes: Partial<T>, values: T) => Promise<unknown>): SavePart {
  const { values, changes, changed, reset } = draft
  return {
    changed, reset: () => reset(),
    save: async () => {
      const text = await save(changes, values)
      reset(changes)
      return text
    },
  }
}

interface SaveProps {
  /** What can be changed. All of it that was is saved, one part after the other. */
  parts: SavePart[]
  /** The path of the page: on it, and below it, changes stay. */
  at: string
  /** Opens the place of a field that is not in the page now, such as a tab. */
  reveal?: (field: string) => void
  children: ComponentChildren
}

/**
 * A place whose fields are saved by one bar at its foot, or by Ctrl-S and by Enter in a field. It
 * asks before the viewer leaves the page with something that was not saved.
 */
export function SaveArea({ parts, at, reveal, children }: SaveProps) {
  const [errors, setErrors] = useState<Error[]>([]), [busy, setBusy] = useState(false)
  const form = useId()
  const area = useRef<HTMLDivElement>(null), names = useRef(new Set<string>()).current
  const wanted = useRef(false) // the focus, by a field that is wrong
  const [, setNamed] = useState('')
  const changed = parts.some((part) => part.changed)

  /** The bar goes, and a button of it that has the focus. */
  const keepFocus = () => { if (document.activeElement?.closest('.save-bar')) area.current!.focus({ preventScroll: true }) }

  const save = async () => {
    if (busy || !changed) return
    setBusy(true)
    setErrors([])
    const failed: Error[] = [], said: string[] = []
    for (const part of parts.filter((p) => p.changed)) {
      try {
        const text = await part.save()
        if (typeof text === 'string') said.push(text)
      } catch (error) {
        failed.push(error as Error)
      }
    }
    setBusy(false)
    setErrors(failed)
    if (failed.length === 0) {
      keepFocus()
      return told(said.join(' ') || 'Saved.')
    }
    wanted.current = true
    const fields = failed.flatMap(fieldsIn), here = (field: string) => [...names].some((name) => field === name || field.startsWith(name + '.'))
    if (fields.length > 0 && !fields.some(here)) reveal?.(fields[0]!)
  }
  const edited = (e: Event) => {
    const { name } = e.target as HTMLInputElement
    if (name && errors.length > 0) setErrors(errors.map((error) => withoutField(name, error)).filter((error) => error !== undefined))
  }
  const discard = () => {
    for (const part of parts) part.reset()
    setErrors([])
    keepFocus()
  }
  const latest = useRef(save)
  latest.current = save

  useEffect(() => {
    if (wanted.current && errors.length > 0 && focusWrong(area.current)) wanted.current = false
    setNamed([...names].join()) // fields that have come say themselves what the bar said for them
  })
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.key.toLowerCase() !== 's' || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || document.querySelector('dialog[open]')) return
      e.preventDefault() // browsers would save the page as a file
      void latest.current()
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
  useLayoutEffect(() => {
    if (!changed) {
      setErrors([])
      return
    }
    outdate()
    const keeps = (to: string) => to.split('?')[0] === at || to.startsWith(at + '/')
    const stop = beforeLeaving({ keeps, ask: askToDiscard })
    const unload = (e: Event) => e.preventDefault()
    addEventListener('beforeunload', unload)
    return () => {
      stop()
      removeEventListener('beforeunload', unload)
    }
  }, [changed, at])

  const beside = errors.map((error) => besideFields(error, names)).filter((error) => error !== undefined)
  return (
    <div class="stack save-area" ref={area} tabIndex={-1} onInput={edited}>
      <FieldsOf.Provider value={{ errors, names, form }}>{children}</FieldsOf.Provider>
      <span class="visually-hidden" role="status">{changed ? 'There are unsaved changes.' : ''}</span>
      <form id={form} class="save-bar" aria-label="Unsaved changes" hidden={!changed} noValidate onSubmit={(e) => { e.preventDefault(); void save() }}>
        {changed && (
          <>
            {beside.map((error, i) => <Notice key={i} tone="bad" alert><Wrong of={error} /></Notice>)}
            <strong class="grow">{errors.length > 0 ? 'Not saved' : 'Unsaved changes'}</strong>
            <Button disabled={busy} onClick={discard}>Discard</Button>
            <Button type="submit" look="primary" busy={busy} title="Ctrl + S">Save</Button>
          </>
        )}
      </form>
    </div>
  )
}

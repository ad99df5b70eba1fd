// Forms: fields with their label, hint and what is wrong with them.
import { createContext, type ComponentChildren } from 'preact'
import { useContext, useEffect, useId, useRef, useState } from 'preact/hooks'
import { ApiError } from '../api/client'
import type { Fault } from '../api/wording'
import { Button } from './button'
import { Notice, Wrong } from './notice'

/** The error of the form around a field, and the names of the form's fields. */
const FormError = createContext<{ error?: Error; names: Set<string> }>({ names: new Set() })

/** What the server finds wrong with the field of this name. */
function useWrong(name: string | undefined): string | undefined {
  const { error, names } = useContext(FormError)
  useEffect(() => {
    if (!name) return
    names.add(name)
    return () => { names.delete(name) }
  }, [name])
  return name && error instanceof ApiError ? error.of(name) : undefined
}

const aboutFields = ['validation_error', 'too_many_items', 'invalid_record'] // their text is that of their details

/** What no field of the form says about an error; undefined if they say all of it. */
function besideFields(error: Error, names: Set<string>): Error | Fault | undefined {
  if (!(error instanceof ApiError) || !aboutFields.includes(error.code)) return error
  const said = new Set([...names].map((name) => error.detailOf(name)))
  const rest = error.details.filter((d) => !said.has(d))
  if (rest.length === error.details.length) return error
  return rest.length === 0 ? undefined : { code: error.code, message: '', details: rest }
}

interface FormProps {
  onSubmit: () => Promise<unknown>
  submit: string
  /** Beside the button that submits. */
  actions?: ComponentChildren
  danger?: boolean
  disabled?: boolean
  children?: ComponentChildren
}

/** A form whose fields show what the server finds wrong with them, by name. */
export function Form({ onSubmit, submit, actions, danger, disabled, children }: FormProps) {
  const [error, setError] = useState<Error>()
  const [busy, setBusy] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  const names = useRef(new Set<string>()).current
  const beside = error && besideFields(error, names)
  const send = async (e: Event) => {
    e.preventDefault()
    if (busy) return
    setBusy(true)
    setError(undefined)
    try {
      await onSubmit()
    } catch (error) {
      setError(error as Error)
      setTimeout(() => form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus())
    }
    setBusy(false)
  }
  return (
    <form ref={form} class="form" onSubmit={send} noValidate>
      <FormError.Provider value={{ error, names }}>{children}</FormError.Provider>
      {beside && <Notice tone="bad" alert><Wrong of={beside} /></Notice>}
      <div class="form-actions">
        {actions}
        <Button type="submit" look={danger ? 'danger-solid' : 'primary'} busy={busy} disabled={disabled}>{submit}</Button>
      </div>
    </form>
  )
}

interface FieldProps { label: string; name?: string; hint?: ComponentChildren; error?: string; hideLabel?: boolean }

interface Ids { id: string; 'aria-describedby'?: string; 'aria-invalid'?: 'true' }

function Field({ label, name, hint, error, hideLabel, children }: FieldProps & { children: (ids: Ids) => ComponentChildren }) {
  const id = useId()
  const refused = useWrong(name)
  const wrong = error ?? refused
  const described = [hint && id + 'h', wrong && id + 'w'].filter(Boolean).join(' ')
  return (
    <div class="field">
      <label for={id} class={hideLabel ? 'visually-hidden' : undefined}>{label}</label>
      {children({ id, 'aria-describedby': described || undefined, 'aria-invalid': wrong ? 'true' : undefined })}
      {hint && <span class="hint" id={id + 'h'}>{hint}</span>}
      {wrong && <span class="wrong" id={id + 'w'} role={error ? undefined : 'alert'}>{wrong}</span>}
    </div>
  )
}

/** What the server finds wrong with a part of the form that has several inputs. */
export function PartError({ name }: { name: string }) {
  const wrong = useWrong(name)
  return wrong ? <span class="part-wrong" role="alert">{wrong}</span> : null
}

interface TextProps extends FieldProps {
  value: string
  onInput: (value: string) => void
  type?: 'text' | 'email' | 'password' | 'url' | 'number' | 'search' | 'date' | 'datetime-local'
  step?: string
  placeholder?: string
  autoComplete?: string
  autoFocus?: boolean
  disabled?: boolean
  readOnly?: boolean
  inputMode?: 'numeric' | 'decimal' | 'email' | 'url'
  maxLength?: number
  min?: number
  max?: number
  list?: string[]
  after?: ComponentChildren
  mono?: boolean
}

export function TextField({ label, name, hint, error, hideLabel, value, onInput, after, list, mono, autoFocus, type = 'text', ...rest }: TextProps) {
  return (
    <Field label={label} name={name} hint={hint} error={error} hideLabel={hideLabel}>
      {(ids) => {
        const input = (
          <input {...ids} {...rest} type={type as 'text'} name={name} class={'input' + (mono ? ' mono' : '')} dir={type === 'text' || type === 'search' ? 'auto' : undefined} value={value} list={list && ids.id + 'l'} spellcheck={false} autocapitalize="off"
            ref={autoFocus ? focusOnce : undefined} onInput={(e) => onInput(e.currentTarget.value)} />
        )
        return (
          <>
            {after ? <div class="affix">{input}<span class="after">{after}</span></div> : input}
            {list && <datalist id={ids.id + 'l'}>{list.map((text) => <option key={text} value={text} />)}</datalist>}
          </>
        )
      }}
    </Field>
  )
}

function focusOnce(element: HTMLElement | null) {
  if (element && !element.dataset.met) {
    element.dataset.met = '1'
    element.focus()
  }
}

export function TextArea({ label, name, hint, error, hideLabel, value, onInput, rows = 4, placeholder, mono, autoFocus }: FieldProps & { value: string; onInput: (value: string) => void; rows?: number; placeholder?: string; mono?: boolean; autoFocus?: boolean }) {
  return (
    <Field label={label} name={name} hint={hint} error={error} hideLabel={hideLabel}>
      {(ids) => <textarea {...ids} name={name} class={'input' + (mono ? ' mono' : '')} dir="auto" rows={rows} placeholder={placeholder} ref={autoFocus ? focusOnce : undefined} value={value} onInput={(e) => onInput(e.currentTarget.value)} />}
    </Field>
  )
}

export function Select<T extends string>({ label, name, hint, error, hideLabel, value, onChange, options, disabled }: FieldProps & { value: T; onChange: (value: T) => void; options: readonly (readonly [T, string])[]; disabled?: boolean }) {
  return (
    <Field label={label} name={name} hint={hint} error={error} hideLabel={hideLabel}>
      {(ids) => (
        <select {...ids} name={name} class="input" value={value} disabled={disabled} onChange={(e) => onChange(e.currentTarget.value as T)}>
          {options.map(([v, text]) => <option key={v} value={v} selected={v === value}>{text}</option>)}
        </select>
      )}
    </Field>
  )
}

export function Check({ label, hint, checked, onChange, disabled }: { label: ComponentChildren; hint?: ComponentChildren; checked: boolean; onChange: (checked: boolean) => void; disabled?: boolean }) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} disabled={disabled} onChange={(e) => onChange(e.currentTarget.checked)} />
      <span>{label}{hint && <span class="hint">{hint}</span>}</span>
    </label>
  )
}

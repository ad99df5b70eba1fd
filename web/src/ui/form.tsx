// Forms: fields with their label, hint and what is wrong with them.
import { createContext, type ComponentChildren } from 'preact'
import { useContext, useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { ApiError, isAbout } from '../api/client'
import { wrongWith, type Fault } from '../api/wording'
import { t } from '../words'
import { Button } from './button'
import { Notice, Wrong } from './notice'
import { outdate } from './toast'

/** What a form gives to its fields. */
interface Fields {
  /** Why it was refused. */
  errors: Error[]
  /** The names of the fields that are in the page. */
  names: Set<string>
  /** The id of the form, for fields that are not inside of it. */
  form?: string
}

export const FieldsOf = createContext<Fields>({ errors: [], names: new Set() })

/** What a dialog gives to the forms in it. */
interface Around {
  /** Has the dialog ask before it is closed, until the function that this gives is called. */
  hold: () => () => void
  /** Closes the dialog, unless the viewer stays. */
  leave: () => void
}

export const AroundForm = createContext<Around | undefined>(undefined)

// The text of these errors is that of their details.
const perField = ['validation_error', 'too_many_items', 'invalid_record', 'missing_variable', 'invalid_setting', 'set_in_file']

/** The fields that errors without details are about; of several, the first that is there. */
const suspects: Record<string, string[]> = {
  wrong_password: ['current_password', 'password'], invalid_code: ['code'], edge_token_invalid: ['edge_api_token', 'api_token'], invalid_domain: ['domain'], apex_elsewhere: ['redirect_url'], credential_invalid: ['token', 'secret_access_key', 'secret'],
}

/** The fields that an error is about, as the server names them. */
export function fieldsIn(error: Error): string[] {
  if (!(error instanceof ApiError)) return []
  return error.details.length > 0 ? error.details.map((d) => d.field) : suspects[error.code] ?? []
}

/** What an error says of the field of a name, if it is about it. */
function saidOf(name: string, error: Error, names: Set<string>): ComponentChildren {
  if (!(error instanceof ApiError)) return
  const detail = error.detailOf(name)
  if (detail) return perField.includes(error.code) ? wrongWith(detail, error.code) : <Wrong of={error} />
  return error.details.length === 0 && suspects[error.code]?.find((field) => names.has(field)) === name ? <Wrong of={error} /> : undefined
}

/** What the server finds wrong with the field of this name. */
function useWrong(name: string | undefined): ComponentChildren {
  const { errors, names } = useContext(FieldsOf)
  useEffect(() => {
    if (!name) return
    names.add(name)
    return () => { names.delete(name) }
  }, [name, names])
  if (!name) return
  for (const error of errors) {
    const said = saidOf(name, error, names)
    if (said) return said
  }
}

/** What no field of the form says about an error; undefined if they say all of it. */
export function besideFields(error: Error, names: Set<string>): Error | Fault | undefined {
  if (!(error instanceof ApiError)) return error
  if (!perField.includes(error.code)) return [...names].some((name) => saidOf(name, error, names)) ? undefined : error
  const said = new Set([...names].map((name) => error.detailOf(name)))
  const rest = error.details.filter((d) => !said.has(d))
  if (rest.length === error.details.length) return error
  return rest.length === 0 ? undefined : { code: error.code, message: '', details: rest }
}

/** What is left of an error once the field of a name was edited; undefined if it was about that field alone. */
export function withoutField(name: string, error: Error): Error | undefined {
  if (!(error instanceof ApiError)) return error
  const { status, code, details } = error, rest = details.filter((d) => !isAbout(d, name))
  if (rest.length === details.length) return error
  return rest.length === 0 ? undefined : new ApiError(status, { code, message: '', details: rest })
}

/** Gives the focus to the first thing in there that is wrong, and tells whether there is one. */
export function focusWrong(within: HTMLElement | null): boolean {
  const at = within?.querySelector<HTMLElement>('[aria-invalid="true"], .part-wrong')
  if (!at) return false
  for (let fold = at.closest('details'); fold; fold = fold.parentElement?.closest('details') ?? null) fold.open = true
  at.focus()
  return true
}

interface FormProps {
  onSubmit: () => Promise<unknown>
  submit: string
  /** Beside the button that submits. */
  actions?: ComponentChildren
  danger?: boolean
  disabled?: boolean
  /**
   * What is filled in. Once it is not what it was at first, the form can be sent, and the dialog
   * around it asks before it is closed.
   */
  of?: unknown
  /** It can be sent as it is at first. */
  optional?: boolean
  /** The button that leaves the dialog around the form; false for none. */
  cancel?: string | false
  children?: ComponentChildren
}

/** A form whose fields show what the server finds wrong with them, by name. */
export function Form({ onSubmit, submit, actions, danger, disabled, of, optional, cancel = t('ui.cancel'), children }: FormProps) {
  const [errors, setErrors] = useState<Error[]>([])
  const [busy, setBusy] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  const names = useRef(new Set<string>()).current
  const dialog = useContext(AroundForm)
  const now = JSON.stringify(of)
  const [first, setFirst] = useState(now) // or what was sent last
  useLayoutEffect(() => now === first ? undefined : dialog?.hold(), [now === first]) // before the next key
  const beside = errors[0] && besideFields(errors[0], names)
  const send = async (e: Event) => {
    e.preventDefault()
    e.stopPropagation() // a form around the dialog that this is in hears nothing of it
    if (busy) return
    setBusy(true)
    setErrors([])
    outdate()
    try {
      await onSubmit()
      setFirst(now)
    } catch (error) {
      setErrors([error as Error])
      setTimeout(() => focusWrong(form.current))
    }
    setBusy(false)
  }
  return (
    <form ref={form} class="form" onSubmit={send} noValidate>
      <FieldsOf.Provider value={{ errors, names }}>{children}</FieldsOf.Provider>
      <div class="form-actions">
        {beside && <Notice tone="bad" alert><Wrong of={beside} /></Notice>}
        {actions}
        {dialog && cancel && <Button onClick={dialog.leave}>{cancel}</Button>}
        <Button type="submit" look={danger ? 'danger-solid' : 'primary'} busy={busy} disabled={disabled || (of !== undefined && !optional && now === first)}>{submit}</Button>
      </div>
    </form>
  )
}

interface FieldProps { label: string; name?: string; hint?: ComponentChildren; error?: string; hideLabel?: boolean }

interface Ids { id: string; form?: string; 'aria-describedby'?: string; 'aria-invalid'?: 'true' }

function Field({ label, name, hint, error, hideLabel, children }: FieldProps & { children: (ids: Ids) => ComponentChildren }) {
  const id = useId()
  const { form } = useContext(FieldsOf)
  const refused = useWrong(name)
  const wrong = error ?? refused
  const described = [hint && id + 'h', wrong && id + 'w'].filter(Boolean).join(' ')
  return (
    <div class="field">
      <label for={id} class={hideLabel ? 'visually-hidden' : undefined}>{label}</label>
      {children({ id, form: name && form, 'aria-describedby': described || undefined, 'aria-invalid': wrong ? 'true' : undefined })}
      {hint && <span class="hint" id={id + 'h'}>{hint}</span>}
      {wrong && <span class="wrong" id={id + 'w'} role={error ? undefined : 'alert'}>{wrong}</span>}
    </div>
  )
}

/** What the server finds wrong with a part of the form that has several inputs. */
export function PartError({ name }: { name: string }) {
  const wrong = useWrong(name)
  return wrong ? <span class="part-wrong" role="alert" tabIndex={-1}>{wrong}</span> : null
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

export function Check({ label, name, hint, checked, onChange, disabled }: { label: ComponentChildren; name?: string; hint?: ComponentChildren; checked: boolean; onChange: (checked: boolean) => void; disabled?: boolean }) {
  const wrong = useWrong(name)
  return (
    <label class="check">
      <input type="checkbox" checked={checked} disabled={disabled} aria-invalid={wrong ? 'true' : undefined} onChange={(e) => onChange(e.currentTarget.checked)} />
      <span>{label}{hint && <span class="hint">{hint}</span>}{wrong && <span class="wrong" role="alert">{wrong}</span>}</span>
    </label>
  )
}

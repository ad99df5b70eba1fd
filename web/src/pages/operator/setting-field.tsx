// The field of one setting: what is right for the kind of its value.
import { useState } from 'preact/hooks'
import { Badge, Button, PartError, Select, TextArea, TextField, words } from '../../ui'
import type { Draft } from './setting'
import { spanIn, units } from './spans'

interface Props {
  label: string
  /** What the server calls it in its errors. */
  name: string
  /** The kind of its value, as list_settings names it. */
  type: string
  value: string | boolean
  onChange: (draft: Draft) => void
  hint?: string
  error?: string
  placeholder?: string
  hideLabel?: boolean
  /** What a choice of nothing is called, where that is possible. */
  none?: string
}

export function ValueField({ type, value, onChange, none, ...rest }: Props) {
  if (type === 'boolean') return <Switch {...rest} on={value === true} onChange={onChange} />
  const text = String(value), field = { ...rest, value: text, onInput: onChange }
  if (type.includes('|')) return <Select {...rest} value={text} onChange={onChange} options={[...(none === undefined ? [] : [['', none] as [string, string]]), ...type.split('|').map((word): [string, string] => [word, choiceOf(word)])]} />
  if (type === 'duration') return <DurationField {...rest} value={text} onChange={onChange} />
  if (type === 'list') return <TextArea {...field} rows={Math.min(8, Math.max(2, text.split('\n').length + 1))} mono hint={rest.hint ?? 'One per line.'} />
  if (type === 'integer' || type === 'number') return <TextField {...field} type="number" min={0} step={type === 'number' ? 'any' : undefined} inputMode={type === 'number' ? 'decimal' : 'numeric'} />
  return <TextField {...field} mono autoComplete="off" />
}

const choices: Record<string, string> = {
  starttls: 'STARTTLS', tls: 'TLS from the start', none: 'No TLS', ses: 'Amazon SES', sendgrid: 'SendGrid', custom: 'Other', verp: 'One for each recipient', sender: 'The sender’s', reject: 'Refuse it', junk: 'Deliver it to Junk',
  capture: 'Capture (nothing is sent)', direct: 'Direct to the recipients’ servers', relay: 'Through a relay',
}

/** A word that a setting may have, for people. */
export function choiceOf(word: string): string {
  return choices[word] ?? words(word)
}

/** Something that is on or off at once, as a switch. */
export function Switch({ label, name, on, onChange, hint, hideLabel }: Omit<Props, 'type' | 'value' | 'none'> & { on: boolean }) {
  return (
    <div class="field">
      <label class="switch">
        <input type="checkbox" role="switch" name={name} checked={on} onChange={(e) => onChange(e.currentTarget.checked)} />
        <span class={hideLabel ? 'visually-hidden' : undefined}>{label}</span>
        {hideLabel && <span aria-hidden="true">{on ? 'On' : 'Off'}</span>}
      </label>
      {hint && <span class="hint">{hint}</span>}
      <PartError name={name} />
    </div>
  )
}

/** The number and the unit of a duration such as 7d or 1h30m0s. */
function splitDuration(text: string): { n: string; unit: string } | undefined {
  const whole = /^(\d*\.?\d*)([smhd])$/.exec(text)
  if (whole) return { n: whole[1]!, unit: whole[2]! }
  if (!/^([\d.]+(ms|[smhd]))+$/.test(text)) return undefined
  const ms = spanIn(text)
  const [, unit, size] = units.find(([, , size]) => ms % size === 0) ?? units.at(-1)!
  return { n: String(ms / size), unit }
}

function DurationField({ value, onChange, ...rest }: Omit<Props, 'type' | 'value' | 'none'> & { value: string }) {
  const split = splitDuration(value)
  const [chosen, setChosen] = useState('m') // while there is no number
  const unit = split?.unit ?? chosen
  const set = (n: string, unit: string) => {
    setChosen(unit)
    onChange(n === '' ? '' : n + unit)
  }
  if (value !== '' && !split) return <TextField {...rest} value={value} onInput={onChange} mono />
  return (
    <TextField {...rest} type="number" min={0} step="any" inputMode="decimal" value={split?.n ?? ''} onInput={(n) => set(n, unit)}
      after={<select class="settings-unit" aria-label={`Unit of ${rest.label}`} value={unit} onChange={(e) => set(split?.n ?? '', e.currentTarget.value)}>{units.toReversed().map(([name, u]) => <option key={u} value={u} selected={u === unit}>{name}s</option>)}</select>} />
  )
}

/** A secret, which is never shown: whether it is set, and where a new one is written. */
export function SecretField({ label, name, set, draft, onChange, hint, error, hideLabel }: { label: string; name: string; set: boolean; draft: Draft | undefined; onChange: (draft: Draft | undefined) => void; hint?: string; error?: string; hideLabel?: boolean }) {
  if (draft === undefined) {
    return (
      <div class="field">
        <span class={hideLabel ? 'visually-hidden' : 'label'}>{label}</span>
        <span class="row"><SecretState set={set} /><Button small onClick={() => onChange('')} aria-label={`${set ? 'Change' : 'Set'} ${label}`}>{set ? 'Change' : 'Set'}</Button></span>
        {hint && <span class="hint">{hint}</span>}
        {error ? <span class="wrong">{error}</span> : <PartError name={name} />}
      </div>
    )
  }
  return (
    <TextField label={label} name={name} type="password" hideLabel={hideLabel} value={typeof draft === 'string' ? draft : ''} onInput={onChange} autoComplete="new-password" hint={hint} error={error}
      after={<button type="button" class="settings-keep" onClick={() => onChange(undefined)}>{set ? 'Keep' : 'Cancel'}<span class="visually-hidden"> {label}</span></button>} autoFocus />
  )
}

export function SecretState({ set }: { set: boolean }) {
  return <Badge tone={set ? 'ok' : 'none'}>{set ? 'Set' : 'Not set'}</Badge>
}

// How values are written: times in the viewer's zone, sizes, counts, secrets and code.
import { computed, signal } from '@preact/signals'
import { useState } from 'preact/hooks'
import { serverNow } from '../api/client'
import { capital } from '../api/wording'
import { locale, t } from '../words'
import { Button, IconButton } from './button'
import { Notice } from './notice'
import { failed, told } from './toast'

const minute = signal(Date.now())
setInterval(() => { minute.value = Date.now() }, 30_000)

/** How values are written in the language of the page. */
const formats = computed(() => {
  const of = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(locale.value, options)
  return {
    full: of({ dateStyle: 'full', timeStyle: 'long' }), day: of({ dateStyle: 'medium' }), clock: of({ timeStyle: 'short' }), dayAndClock: of({ dateStyle: 'medium', timeStyle: 'short' }),
    relative: new Intl.RelativeTimeFormat(locale.value, { numeric: 'auto', style: 'short' }),
    number: new Intl.NumberFormat(locale.value), tenths: new Intl.NumberFormat(locale.value, { minimumFractionDigits: 1, maximumFractionDigits: 1 }),
  }
})

const units: [Intl.RelativeTimeFormatUnit, number][] = [['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]]

/** How long ago, or how soon. */
export function ago(at: Date, now = serverNow()): string {
  const away = Math.round((at.getTime() - now) / 1000), seconds = away > 0 && away < 5 ? 0 : away // clocks differ a little
  if (Math.abs(seconds) > 6 * 86_400) return formats.value.day.format(at)
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? ['second', 1]
  return formats.value.relative.format(Math.trunc(seconds / size), unit)
}

/** A text of somebody else's, which may run from right to left. */
export function theirs(text: string | null | undefined) {
  return text ? <bdi dir="auto">{text}</bdi> : text
}

/** Texts of others, one after the other; nothing for none. */
export function theirList(texts: string[]) {
  return texts.length > 0 && texts.map((text, i) => <>{i > 0 && ', '}{theirs(text)}</>)
}

/** A time: how long ago by default; `at` gives the time of day, `date` the day alone. The whole time is in the title. */
export function Time({ of, form = 'ago', none = t('ui.never') }: { of: string | null | undefined; form?: 'ago' | 'at' | 'date' | 'short'; none?: string }) {
  if (!of) return <span class="muted">{none}</span>
  const at = new Date(of)
  return <time dateTime={of} title={formats.value.full.format(at)}>{written(at, form)}</time>
}

function written(at: Date, form: string): string {
  switch (form) {
    case 'at':
      return formats.value.dayAndClock.format(at)
    case 'date':
      return formats.value.day.format(at)
    case 'short': // the clock for today, the day for earlier
      return at.toDateString() === new Date(minute.value).toDateString() ? formats.value.clock.format(at) : formats.value.day.format(at)
  }
  void minute.value // says when to write it anew
  return ago(at)
}

export function count(n: number): string {
  return formats.value.number.format(n)
}

/** A number with its noun. */
export function plural(n: number, one: string, many = one + 's'): string {
  return `${count(n)} ${n === 1 ? one : many}`
}

/** A size in binary units. */
export function bytes(n: number): string {
  const names = t('ui.byte_units').split(' ')
  let i = 0
  while (n >= 1000 && i < names.length - 1) {
    n /= 1024
    i++
  }
  return `${i === 0 || n >= 100 ? Math.round(n) : formats.value.tenths.format(n)} ${names[i]}`
}

export function money(amount: number | null, currency: string | null): string {
  if (amount === null) return 'unknown'
  return new Intl.NumberFormat(locale.value, { style: 'currency', currency: currency || 'USD' }).format(amount)
}

/** Words for a status or a code. */
export function words(code: string): string {
  return capital(code.replace(/[_-]/g, ' '))
}

/** Copies a text, and tells that it did. */
export async function copy(text: string) {
  try {
    await navigator.clipboard.writeText(text)
    told(t('ui.copied'))
  } catch {
    failed(new Error(t('ui.not_copied')))
  }
}

export function CopyButton({ text, label = t('ui.copy') }: { text: string; label?: string }) {
  return <IconButton look="ghost" small icon="copy" label={label} onClick={() => copy(text)} />
}

/** A short text with a button that copies it. */
export function Copyable({ text, label }: { text: string; label?: string }) {
  return <span class="copyable"><code>{text}</code><CopyButton text={text} label={label} /></span>
}

/** A text of a program. One that wraps is seen whole on every screen. */
export function Code({ text, label = t('ui.code'), wraps }: { text: string; label?: string; wraps?: boolean }) {
  return (
    <div class={'code' + (wraps ? ' wraps' : '')}>
      <pre tabIndex={0} role="region" aria-label={label}><code>{text}</code></pre>
      <CopyButton text={text} />
    </div>
  )
}

/**
 * A secret that was just made. again says how it can be had later; without that it is shown this
 * once.
 */
export function Secret({ name, text, again }: { name: string; text: string; again?: string }) {
  return (
    <div class="stack-tight">
      <Notice tone={again ? 'info' : 'warn'}>{again ? `Copy the ${name}. ${again}` : `${t('ui.secret', { name })} ${t('ui.secret.once')}`}</Notice>
      <Code text={text} label={name} wraps />
    </div>
  )
}

/** A secret that the viewer asks for. */
export function Hidden({ read, hint }: { read: () => Promise<string>; hint: string }) {
  const [text, setText] = useState<string>()
  if (text !== undefined) return <Copyable text={text} />
  return <span class="row"><code>{hint}</code><Button small icon="eye" onClick={async () => setText(await read())}>{t('ui.show')}</Button></span>
}

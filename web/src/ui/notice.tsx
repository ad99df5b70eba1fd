// What tells the state of something: notices, badges, and what stands where there is nothing to show.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { barred } from '../access'
import { ApiError } from '../api/client'
import { mendOf, wordsOf, type Fault, type Mend } from '../api/wording'
import { rich, t } from '../words'
import { Button } from './button'
import { Icon, type IconName } from './icons'

export type Tone = 'ok' | 'warn' | 'bad' | 'info' | 'none'

export function Badge({ tone = 'none', plain, children }: { tone?: Tone; plain?: boolean; children: ComponentChildren }) {
  return <span class={`badge ${tone} ${plain ? 'plain' : ''}`}>{typeof children === 'string' ? <span>{children}</span> : children}</span>
}

export function Notice({ tone = 'info', alert, title, children }: { tone?: Exclude<Tone, 'none'>; alert?: boolean; title?: string; children?: ComponentChildren }) {
  const icon: IconName = tone === 'ok' ? 'check' : tone === 'info' ? 'info' : 'alert'
  return (
    <div class={'notice ' + tone} role={alert ? 'alert' : undefined}>
      <Icon name={icon} />
      <div>{title && <strong>{title}{children ? ' ' : ''}</strong>}{children}</div>
    </div>
  )
}

/** Stands where a list is empty: what would be here, and the one thing to do about it. */
export function Empty({ icon, title, children, action }: { icon: IconName; title: string; children?: ComponentChildren; action?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  )
}

/** What went wrong, with the link to where it is mended. */
export function Wrong({ of }: { of: Error | Fault }) {
  const text = of instanceof Error ? of.message : wordsOf(of)
  const mend = of instanceof ApiError ? of.mend : of instanceof Error ? undefined : mendOf(of)
  return <>{text}<MendLink of={mend} /></>
}

function MendLink({ of }: { of: Mend | undefined }) {
  return of && !barred(of.href) ? <> <a href={of.href}>{of.link}</a></> : null
}

/** Stands where something could not be read. */
export function Failure({ error, retry }: { error: ApiError; retry?: () => unknown }) {
  const gone = error.status === 404
  return (
    <div class="empty" role="alert">
      <Icon name={gone ? 'search' : 'alert'} />
      <h2>{gone ? t('ui.not_found') : t('ui.not_loaded')}</h2>
      <p><Wrong of={error} /></p>
      {error.again > 0 && <Wait until={error.again} />}
      {error.requestId && !gone && !error.message.includes(error.requestId) && <p class="small mono">{error.requestId}</p>}
      {retry && !gone && <Button icon="refresh" onClick={retry}>{error.again > 0 ? t('ui.retry_now') : t('ui.retry')}</Button>}
    </div>
  )
}

/** Counts the seconds until something is tried again. */
function Wait({ until }: { until: number }) {
  const [now, setNow] = useState(Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  const left = Math.max(0, Math.ceil((until - now) / 1000))
  return <p>{rich('ui.retrying', { when: <span aria-hidden="true">{left > 0 ? t('ui.retrying.in', { n: left }) : t('ui.retrying.now')}</span> })}</p>
}

/** Stands where something is being read. */
export function Loading({ lines = 4 }: { lines?: number }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200)
    return () => clearTimeout(timer)
  }, [])
  return (
    <div class={'stack-tight' + (late ? '' : ' unseen')} role="status" style={{ padding: '1.1rem' }}>
      <span class="visually-hidden">{t('ui.loading')}</span>
      {Array.from({ length: lines }, (_, i) => <div key={i} class="skeleton" style={{ width: `${92 - ((i * 17) % 40)}%` }} />)}
    </div>
  )
}

interface Read<T> { data: T | undefined; error: ApiError | undefined; loading: boolean; reload: () => unknown }

/** Shows what was read, or that it is on its way, or why it is not there. */
export function Show<T>({ of, lines, children }: { of: Read<T>; lines?: number; children: (data: T) => ComponentChildren }) {
  if (of.data !== undefined && !(of.error && of.error.status === 404)) return <>{children(of.data)}</>
  if (of.error) return <Failure error={of.error} retry={of.reload} />
  return <Loading lines={lines} />
}

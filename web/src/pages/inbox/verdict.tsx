// What the checks of the sender found, in words.
import { useEffect, useRef } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { plain } from '../../api/wording'
import { Badge, Icon, type Tone } from '../../ui'
import { t, type Key } from '../../words'

type Auth = Schemas['InboxAuth']

const checks = [['dmarc', 'DMARC', 'message.auth.dmarc'], ['dkim', 'DKIM', 'message.auth.dkim'], ['spf', 'SPF', 'message.auth.spf']] as const

const results: Record<string, Key | undefined> = {
  pass: 'message.auth.pass', fail: 'message.auth.fail', softfail: 'message.auth.softfail', neutral: 'message.auth.neutral', none: 'message.auth.none',
  temperror: 'message.auth.temperror', permerror: 'message.auth.permerror',
}

function overall(a: Auth): [Tone, text: Key, meaning: Key] {
  if (a.dmarc === 'pass' && a.reason) return ['info', 'message.auth.partly', 'message.auth.partly.dmarc']
  if (a.dmarc === 'pass') return ['ok', 'message.auth.verified', 'message.auth.verified.why']
  if (a.dmarc === 'fail') return ['bad', 'message.auth.failed', 'message.auth.failed.dmarc']
  if (a.spf === 'fail' && a.dkim !== 'pass') return ['bad', 'message.auth.failed', 'message.auth.failed.spf']
  if (a.dkim === 'pass' || a.spf === 'pass') return ['info', 'message.auth.partly', 'message.auth.partly.why']
  return ['none', 'message.auth.unverified', 'message.auth.unverified.why']
}

export function Verdict({ auth, sender }: { auth: Auth; sender: string }) {
  const [tone, text, meaning] = overall(auth)
  const box = useRef<HTMLDetailsElement>(null)
  useEffect(() => { // it lies over the message, so it goes once the viewer turns to something else
    const away = (e: Event) => { if (!box.current?.contains(e.target as Node)) box.current?.removeAttribute('open') }
    addEventListener('pointerdown', away)
    addEventListener('focusin', away)
    return () => {
      removeEventListener('pointerdown', away)
      removeEventListener('focusin', away)
    }
  }, [])
  const close = (e: KeyboardEvent) => {
    if (e.key !== 'Escape' || !box.current?.open) return
    e.preventDefault()
    box.current.open = false
    box.current.querySelector('summary')?.focus()
  }
  return (
    <details class="inbox-verdict" ref={box} onKeyDown={close}>
      <summary><Badge tone={tone}>{t(text)} <Icon name="down" /></Badge></summary>
      <div class="inbox-verdict-more">
        <p>{t(meaning)}</p>
        {auth.reason && <p>{t('message.auth.reason', { reason: plain(auth.reason) ?? t('message.auth.reason.other') })}</p>}
        <dl>
          {checks.map(([key, name, pass]) => {
            const result = results[auth[key]]
            return (
              <div key={key}>
                <dt>{name} <Badge tone={toneOf(auth[key])}>{result ? t(result) : auth[key]}</Badge></dt>
                {auth[key] === 'pass' && <dd class="small muted">{t(pass)}</dd>}
              </div>
            )
          })}
        </dl>
        <p class="small muted">{t('message.auth.checked', { domain: sender.split('@')[1] || t('message.auth.domain') })}</p>
      </div>
    </details>
  )
}

function toneOf(result: string): Tone {
  if (result === 'pass') return 'ok'
  if (result === 'fail' || result === 'permerror') return 'bad'
  return result === 'softfail' || result === 'temperror' ? 'warn' : 'none'
}

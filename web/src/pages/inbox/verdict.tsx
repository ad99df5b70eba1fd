// What the checks of the sender found, in words.
import { useEffect, useRef } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { plain } from '../../api/wording'
import { Badge, Icon, type Tone } from '../../ui'

type Auth = Schemas['InboxAuth']

const checks = [
  ['dmarc', 'DMARC', 'The sender’s address matches the domain that SPF or DKIM authenticated.'],
  ['dkim', 'DKIM', 'The signature is valid: the message was not changed in transit.'],
  ['spf', 'SPF', 'The sending server is authorized to send for this domain.'],
] as const

const results: Record<string, string> = {
  pass: 'pass', fail: 'fail', softfail: 'softfail: probably not authorized', neutral: 'neutral: no statement', none: 'none: nothing to check',
  temperror: 'temperror: could not be checked', permerror: 'permerror: misconfigured by the sender',
}

function overall(a: Auth): [Tone, string, string] {
  if (a.dmarc === 'pass' && a.reason) return ['info', 'Partly verified', 'DMARC passed, but it does not prove that the sender wrote everything you see here.']
  if (a.dmarc === 'pass') return ['ok', 'Sender verified', 'DMARC passed: the message really comes from the sender’s domain.']
  if (a.dmarc === 'fail') return ['bad', 'Verification failed', 'DMARC failed: the sender’s address may be forged. Be careful with links and attachments.']
  if (a.spf === 'fail' && a.dkim !== 'pass') return ['bad', 'Verification failed', 'SPF failed: the sending server is not authorized to send for this domain. Be careful with links and attachments.']
  if (a.dkim === 'pass' || a.spf === 'pass') return ['info', 'Partly verified', 'SPF or DKIM passed, but DMARC did not confirm the sender’s address.']
  return ['none', 'Sender not verified', 'SPF, DKIM and DMARC gave no clear result.']
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
      <summary><Badge tone={tone}>{text} <Icon name="down" /></Badge></summary>
      <div class="inbox-verdict-more">
        <p>{meaning}</p>
        {auth.reason && <p>Why: {plain(auth.reason) ?? 'not all that is shown is covered'}.</p>}
        <dl>
          {checks.map(([key, name, pass]) => (
            <div key={key}>
              <dt>{name} <Badge tone={toneOf(auth[key])}>{results[auth[key]] ?? auth[key]}</Badge></dt>
              {auth[key] === 'pass' && <dd class="small muted">{pass}</dd>}
            </div>
          ))}
        </dl>
        <p class="small muted">Checked for {sender.split('@')[1] || 'the sender’s domain'} when the message arrived.</p>
      </div>
    </details>
  )
}

function toneOf(result: string): Tone {
  if (result === 'pass') return 'ok'
  if (result === 'fail' || result === 'permerror') return 'bad'
  return result === 'softfail' || result === 'temperror' ? 'warn' : 'none'
}

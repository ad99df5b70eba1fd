// What the checks of the sender found, in words.
import { useEffect, useRef } from 'preact/hooks'
import type { Schemas } from '../../api/client'
import { Badge, Icon, type Tone } from '../../ui'

type Auth = Schemas['InboxAuth']

const checks = [
  ['dmarc', 'DMARC', 'The address that you see as the sender belongs to the domain that sent it.'],
  ['dkim', 'DKIM', 'The signature of the sender’s domain fits: nobody has changed the text on its way.'],
  ['spf', 'SPF', 'The server that delivered it may send for this domain.'],
] as const

const results: Record<string, string> = {
  pass: 'passed', fail: 'failed', softfail: 'rather failed', neutral: 'says nothing', none: 'nothing to check',
  temperror: 'could not be checked at that time', permerror: 'is set up wrongly by the sender',
}

function overall(a: Auth): [Tone, string, string] {
  if (a.dmarc === 'pass') return ['ok', 'Sender verified', 'The sender is who they say they are, as far as their domain goes.']
  if (a.dmarc === 'fail') return ['bad', 'Sender not verified', 'Somebody else may have sent this in the name of the domain. Be careful with links and attachments.']
  if (a.spf === 'fail' && a.dkim !== 'pass') return ['bad', 'Sender not verified', 'The server that sent it may not send for this domain. Be careful with links and attachments.']
  if (a.dkim === 'pass' || a.spf === 'pass') return ['info', 'Partly verified', 'A domain was verified, but it asks nobody to compare it with the sender that you see.']
  return ['none', 'Sender not checked', 'The domain of the sender gives nothing to check it by.']
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
        <dl>
          {checks.map(([key, name, pass]) => (
            <div key={key}>
              <dt>{name} <Badge tone={toneOf(auth[key])}>{results[auth[key]] ?? auth[key]}</Badge></dt>
              {auth[key] === 'pass' && <dd class="small muted">{pass}</dd>}
            </div>
          ))}
        </dl>
        <p class="small muted">For {sender.split('@')[1] || 'the sender’s domain'}, when the message came.</p>
      </div>
    </details>
  )
}

function toneOf(result: string): Tone {
  if (result === 'pass') return 'ok'
  if (result === 'fail' || result === 'permerror') return 'bad'
  return result === 'softfail' || result === 'temperror' ? 'warn' : 'none'
}

// Why a mailbox or a domain cannot send, and how it goes on.
import { call, can, type Schemas } from '../../api/client'
import { ask, Button, Notice, Time, told } from '../../ui'

const reasons = { bounces: 'too many of its recipients do not exist or refused its mail', complaints: 'too many recipients reported its mail as spam' } as const

interface PausedProps { of: Schemas['SendingPause'] | null; name: string; mailbox?: string; domain?: string }

export function Paused({ of: p, name, mailbox, domain }: PausedProps) {
  if (!p) return null
  const resume = () => ask({
    title: `Resume sending for ${name}?`, action: 'Resume sending', danger: false,
    text: 'Waiting messages are sent at once. If you do not recognise what was sent, set a new password and delete unknown API tokens first. Counting starts again.',
    run: async () => {
      await (mailbox ? call('update_email_user', { user_id: mailbox, sending_paused: null }) : call('update_domain', { domain_id: domain!, sending_paused: null }))
      told(`${name} can send again.`)
    },
  })
  return (
    <Notice tone="bad" title="Sending is paused.">
      Since <Time of={p.at} form="at" />: {reasons[p.reason]}. Receiving goes on. See the <a href={`/sent?${mailbox ? 'mailbox' : 'domain'}=${encodeURIComponent(name)}`}>sending log</a> and
      the <a href="/sent/reputation">reputation</a>. {can(mailbox ? 'update_email_user' : 'update_domain') ? <Button small onClick={resume}>Resume sending</Button> : 'The account’s owner or an admin can resume it.'}
    </Notice>
  )
}

/** What waited when a mailbox was suspended or got a new password with hold: it is sent or discarded. */
export function Held({ id, email }: { id: string; email: string }) {
  const settle = (action: 'release' | 'discard') => ask({
    title: action === 'release' ? `Send held messages of ${email}?` : `Discard held messages of ${email}?`, action: action === 'release' ? 'Send them' : 'Discard them', danger: action === 'discard',
    text: action === 'release' ? 'All messages on hold leave at once, or at the time they are scheduled for.' : 'The recipients will not get them. This can’t be undone.',
    run: async () => {
      const { released, discarded } = await call('release_held_messages', { user_id: id, action })
      told(action === 'release' ? `${released} released.` : `${discarded} discarded.`)
    },
  })
  return (
    <Notice tone="warn" title="Messages are on hold.">
      They were waiting when the mailbox was suspended or got a new password. See them in the <a href={`/sent?status=held&mailbox=${encodeURIComponent(email)}`}>sending log</a>.
      {can('release_held_messages') && <span class="row"><Button small onClick={() => settle('release')}>Send</Button><Button small look="danger" onClick={() => settle('discard')}>Discard</Button></span>}
    </Notice>
  )
}

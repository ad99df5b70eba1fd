// Making a mailbox of a domain without leaving its page.
import { signal } from '@preact/signals'
import { Button } from '../../ui'
import { Create } from '../mailboxes/create'
import type { Domain } from './words'

const made = signal<{ domain: Domain; username: string } | null>(null)

/** Opens the dialog that creates a mailbox of a domain. */
export function makeMailbox(domain: Domain, username = '') {
  made.value = { domain, username }
}

export function MakeMailbox({ domain: d, small }: { domain: Domain; small?: boolean }) {
  return <Button look="primary" small={small} icon="plus" onClick={() => makeMailbox(d)}>{d.dns_provider === 'external' ? 'Connect mailbox' : 'Create mailbox'}</Button>
}

/** The place of the dialog: the button goes once there is a mailbox, and the dialog has its password to show still. */
export function Making() {
  const of = made.value
  return of && <Create domain={of.domain.domain} username={of.username} stay={of.username !== ''} external={of.domain.dns_provider === 'external'} onClose={() => { made.value = null }} />
}

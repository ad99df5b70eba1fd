// Making a mailbox of a domain without leaving its page.
import { signal } from '@preact/signals'
import { Button } from '../../ui'
import { Create } from '../mailboxes/create'
import type { Domain } from './words'

const made = signal<Domain | null>(null)

export function MakeMailbox({ domain: d, small }: { domain: Domain; small?: boolean }) {
  return <Button look="primary" small={small} icon="plus" onClick={() => { made.value = d }}>{d.dns_provider === 'external' ? 'Connect a mailbox' : 'Make a mailbox'}</Button>
}

/** The place of the dialog: the button goes once there is a mailbox, and the dialog has its password to show still. */
export function Making() {
  const d = made.value
  return d && <Create domain={d.domain} external={d.dns_provider === 'external'} onClose={() => { made.value = null }} />
}

// Setting a domain up again, and deleting it.
import { signal } from '@preact/signals'
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { go } from '../../router'
import { ask, Dialog, Form, plural, TextField, told } from '../../ui'
import type { Domain } from './words'

const repaired = signal<{ domain: Domain; done: () => unknown } | null>(null)

/** Sets a domain up again; of one with a Cloudflare token of its own it asks for another one first. */
export async function setUpAgain(d: Domain, done: () => unknown) {
  if (d.dns_provider === 'cloudflare' && d.dns_credential_id === null) {
    repaired.value = { domain: d, done }
    return
  }
  await call('setup_domain', { domain: d.domain })
  told('Setup started.')
  await done()
}

/** The place where it is asked for a token. */
export function Repairs() {
  const r = repaired.value
  return r && <TokenDialog key={r.domain.id} {...r} />
}

function TokenDialog({ domain: d, done }: { domain: Domain; done: () => unknown }) {
  const [token, setToken] = useState('')
  const close = () => { repaired.value = null }
  const submit = async () => {
    await call('setup_domain', { domain: d.domain, edge_api_token: token.trim() || undefined })
    close()
    told('Setup started.')
    await done()
  }
  return (
    <Dialog title={`Set up ${d.domain_unicode} again`} onClose={close}>
      <Form onSubmit={submit} submit="Set up again" of={token} optional>
        <TextField label="Cloudflare API token" name="edge_api_token" type="password" value={token} onInput={setToken} autoComplete="off" mono autoFocus
          hint="Leave empty to use the stored token. A new token needs Zone: Read and DNS: Edit for this domain." />
      </Form>
    </Dialog>
  )
}

/** Deletes a domain, once its name has been typed. */
export function deleteDomain(d: Domain) {
  ask({
    title: `Delete ${d.domain_unicode}?`, action: 'Delete domain', typed: d.domain, danger: true,
    text: (
      <div class="stack-tight">
        <p>{d.email_users_count > 0 ? <>This deletes <strong>{plural(d.email_users_count, 'mailbox', 'mailboxes')} and all mail in {d.email_users_count === 1 ? 'it' : 'them'}</strong>. This can’t be undone.</> : 'Mailstead stops serving this domain. This can’t be undone.'}</p>
        {d.source === 'registered' && <p class="muted">The domain stays registered at {d.registrar ?? 'the registrar'}.</p>}
      </div>
    ),
    run: async () => {
      await call('delete_domain', { domain_id: d.id })
      told(`${d.domain_unicode} is being deleted.`)
      go('/domains', { unasked: true })
    },
  })
}

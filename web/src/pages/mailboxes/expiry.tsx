// When a mailbox is deleted with all that is in it.
import { useState } from 'preact/hooks'
import { call, can, serverNow } from '../../api/client'
import { Button, Dialog, Form, Notice, TextField, Time, told } from '../../ui'
import { rich, t } from '../../words'
import { localTime } from '../sent/words'
import type { MailboxOut } from './words'

/** Says when a mailbox is deleted, if it is. */
export function Expires({ of: u }: { of: MailboxOut }) {
  const [moving, setMoving] = useState(false)
  if (!u.expires_at || u.status === 'deleting') return null
  const keep = async () => {
    await call('update_email_user', { user_id: u.id, expires_at: null })
    told('The mailbox is kept.')
  }
  return (
    <>
      <Notice tone="warn" title={t('me.expires')}>
        {rich('me.expires.text', { when: <Time of={u.expires_at} form="at" /> })}
        {can('update_email_user') && <span class="row"><Button small onClick={() => setMoving(true)}>Change time</Button><Button small onClick={keep}>Keep for good</Button></span>}
      </Notice>
      {moving && <Expiry of={u} onClose={() => setMoving(false)} />}
    </>
  )
}

const day = 86_400_000 // ms

/** The dialog that sets when a mailbox is deleted. */
export function Expiry({ of: u, onClose }: { of: MailboxOut; onClose: () => void }) {
  const [at, setAt] = useState(localTime(u.expires_at ? new Date(u.expires_at) : new Date(serverNow() + day)))
  const submit = async () => {
    await call('update_email_user', { user_id: u.id, expires_at: new Date(at).toISOString() })
    told('Saved.')
    onClose()
  }
  return (
    <Dialog title={`Expiry of ${u.email}`} onClose={onClose}>
      <Form submit="Save" onSubmit={submit} of={at} optional={u.expires_at === null} disabled={!at}>
        <TextField label="Expires" name="expires_at" type="datetime-local" value={at} onInput={setAt} hint="The mailbox, its mail, its passwords and its tokens are deleted then. This can’t be undone." autoFocus />
      </Form>
    </Dialog>
  )
}

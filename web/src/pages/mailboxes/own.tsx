// What the owner of a mailbox, and its person, set for it: addresses, recovery.
import { useState } from 'preact/hooks'
import { call, person } from '../../api/client'
import { Badge, Button, Card, Code, Dialog, Form, Notice, TextArea, TextField, Time, told } from '../../ui'
import type { MailboxOut } from './words'

/** Changes the mailbox, whoever is signed in. */
export async function update(u: MailboxOut, change: { recovery_email?: string | null; name?: string; signature?: string | null; forward_to?: string | null; forward_keep_copy?: boolean }) {
  if (person()) await call('update_me', change)
  else await call('update_email_user', { user_id: u.id, ...change })
}

export function Aliases({ of: u }: { of: MailboxOut }) {
  const [text, setText] = useState(u.aliases.join('\n'))
  const list = text.split(/[\s,]+/).filter(Boolean)
  const submit = async () => {
    await call('update_email_user', { user_id: u.id, aliases: list })
    told('Saved.')
  }
  return (
    <Card title="Aliases" note="Other addresses whose mail comes here, and that this mailbox can send as.">
      <Form submit="Save aliases" onSubmit={submit} disabled={list.join() === u.aliases.join()}>
        <TextArea label="Addresses" name="aliases" value={text} onInput={setText} rows={3} placeholder={`sales@${u.domain}`} hint="One on each line." />
      </Form>
    </Card>
  )
}

export function Recovery({ of: u }: { of: MailboxOut }) {
  const [email, setEmail] = useState(u.recovery_email ?? '')
  const submit = async () => {
    await update(u, { recovery_email: email.trim() || null })
    told(email.trim() ? 'Saved. Open the link in the mail that is on its way to confirm it.' : 'Saved.')
  }
  return (
    <Card title="Recovery address" note="Where a link goes when the password is forgotten." actions={u.recovery_email && <Badge tone={u.recovery_confirmed ? 'ok' : 'warn'}>{u.recovery_confirmed ? 'Confirmed' : 'Not confirmed'}</Badge>}>
      <Form submit="Save recovery address" onSubmit={submit} disabled={email.trim() === (u.recovery_email ?? '') && (email === '' || u.recovery_confirmed)}>
        <TextField label="Email" name="recovery_email" type="email" value={email} onInput={setEmail} hint="An address that can be read without this mailbox’s password." />
      </Form>
    </Card>
  )
}

/** A link with which the holder of a mailbox chooses a password. */
export function PasswordLink({ of: u, onClose }: { of: MailboxOut; onClose: () => void }) {
  const [made, setMade] = useState<{ url: string; expires_at: string | null }>()
  return (
    <Dialog title={`Password link for ${u.email}`} onClose={onClose}>
      {made ? (
        <div class="stack">
          <Notice tone="warn">Send this to the person who uses the mailbox. It works once, until <Time of={made.expires_at} form="at" />, and is not shown again.</Notice>
          <Code text={made.url} label="Link" />
          <div class="form-actions"><Button look="primary" onClick={onClose}>Done</Button></div>
        </div>
      ) : (
        <Form submit="Create link" onSubmit={async () => setMade(await call('create_recovery_link', { user_id: u.id }))}>
          <p>Whoever opens the link chooses a new password, which nobody else can see. The present one works until then.</p>
        </Form>
      )}
    </Dialog>
  )
}

// What the owner of a mailbox, and its person, set for it: recovery, and a new password.
import { useState } from 'preact/hooks'
import { call, person } from '../../api/client'
import { Badge, Card, Code, Dialog, Done, Form, Notice, TextField, Time, told } from '../../ui'
import { t } from '../../words'
import type { MailboxOut } from './words'

/** Changes the mailbox, whoever is signed in. */
export async function update(u: MailboxOut, change: { recovery_email?: string | null; name?: string; signature?: string | null; forward_to?: string | null; forward_keep_copy?: boolean }) {
  if (person()) await call('update_me', change)
  else await call('update_email_user', { user_id: u.id, ...change })
}

export function Recovery({ of: u }: { of: MailboxOut }) {
  const [email, setEmail] = useState(u.recovery_email ?? '')
  const submit = async () => {
    await update(u, { recovery_email: email.trim() || null })
    told(email.trim() ? t('me.recovery.saved') : t('me.saved'))
  }
  return (
    <Card title={t('me.recovery')} note={t('me.recovery.note')} actions={u.recovery_email && <Badge tone={u.recovery_confirmed ? 'ok' : 'warn'}>{u.recovery_confirmed ? t('me.recovery.confirmed') : t('me.recovery.unconfirmed')}</Badge>}>
      <Form submit={t('me.recovery.save')} onSubmit={submit} disabled={email.trim() === (u.recovery_email ?? '') && (email === '' || u.recovery_confirmed)}>
        <TextField label={t('gate.email')} name="recovery_email" type="email" value={email} onInput={setEmail} hint={t('me.recovery.hint')} />
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
          <Done />
        </div>
      ) : (
        <Form submit="Create link" onSubmit={async () => setMade(await call('create_recovery_link', { user_id: u.id }))}>
          <p>Whoever opens the link chooses a new password, which nobody else can see. The present one works until then.</p>
        </Form>
      )}
    </Dialog>
  )
}

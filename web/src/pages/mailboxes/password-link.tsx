// A link with which the holder of a mailbox chooses a password.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { Code, Dialog, Done, Form, Notice, Time } from '../../ui'
import type { MailboxOut } from './words'

export function PasswordLink({ of: u, onClose }: { of: MailboxOut; onClose: () => void }) {
  const [made, setMade] = useState<{ url: string; expires_at: string | null }>()
  return (
    <Dialog title={`Password link for ${u.email}`} onClose={onClose}>
      {made ? (
        <div class="stack">
          <Notice tone="warn">Send this to the person who uses the mailbox. It works once, until <Time of={made.expires_at} form="at" />, and is not shown again.</Notice>
          <Code text={made.url} label="Link" wraps />
          <Done />
        </div>
      ) : (
        <Form submit="Create link" onSubmit={async () => setMade(await call('create_recovery_link', { user_id: u.id }))}>
          <p>Whoever opens the link chooses a new password, which nobody else can see. The current one works until then.</p>
        </Form>
      )}
    </Dialog>
  )
}

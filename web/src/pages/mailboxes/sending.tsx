// What may be sent from a mailbox, whoever sends it.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { Card, Form, told } from '../../ui'
import { named, SendFields } from '../policies/policy'
import type { MailboxOut } from './words'

export function Sending({ of: u }: { of: MailboxOut }) {
  const before = u.send_policy
  const [send, setSend] = useState(before.send), [allowed, setAllowed] = useState(before.allowed_recipients.join('\n'))
  const list = send === 'allow' || send === 'deny' ? [] : named(allowed) // elsewhere they have no effect
  const submit = async () => {
    await call('update_email_user', { user_id: u.id, send_policy: { send, allowed_recipients: list } })
    told('Saved.')
  }
  return (
    <Card title="Sending policy" note="Holds for mail clients, API tokens, assistants and rules. What an owner or admin sends while signed in here is not limited.">
      <Form submit="Save policy" onSubmit={submit} disabled={send === before.send && list.join() === before.allowed_recipients.join()}>
        <SendFields name="send_policy" send={send} allowed={allowed} onChange={(to) => { if (to.send) setSend(to.send); if (to.allowed !== undefined) setAllowed(to.allowed) }} />
      </Form>
    </Card>
  )
}

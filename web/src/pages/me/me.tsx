// My mailbox: what the person of a mailbox sets for it.
import { useState } from 'preact/hooks'
import { call, session } from '../../api/client'
import { renew } from '../../api/session'
import { useQuery } from '../../api/query'
import { Card, Check, Form, leastPassword, Page, Show, TextArea, TextField, told } from '../../ui'
import { Connection } from '../mailboxes/connection'
import { AppPasswords } from '../mailboxes/credentials'
import { Expires } from '../mailboxes/expiry'
import { Recovery, update } from '../mailboxes/own'
import { Rules, Vacation } from '../mailboxes/rules'
import type { MailboxOut } from '../mailboxes/words'
import { SecondFactor } from '../people/factor'
import { Passkeys } from '../people/passkeys'
import { Sessions } from '../people/sessions'

export function Me() {
  const { user } = session.value!
  const mailbox = useQuery('get_email_user', { user_id: user.id }, { only: (c) => c.id === user.id })
  return (
    <Page title="My mailbox" intro={user.email}>
      <Show of={mailbox} lines={8}>
        {(u) => (
          <>
            <Expires of={u} />
            <div class="grid-2">
              <Connection of={u} />
              <AppPasswords userID={u.id} />
              <Name key={'n' + u.name + u.signature} of={u} />
              <Forward key={'f' + u.forward_to + u.forward_keep_copy} of={u} />
              <Rules userID={u.id} />
              <Vacation userID={u.id} />
              <Password />
              <Recovery key={'r' + u.recovery_email} of={u} />
              <SecondFactor />
              <Passkeys />
            </div>
            <Sessions />
          </>
        )}
      </Show>
    </Page>
  )
}

function Name({ of: u }: { of: MailboxOut }) {
  const [name, setName] = useState(u.name), [signature, setSignature] = useState(u.signature ?? '')
  const submit = async () => {
    await update(u, { name, signature: signature || null })
    await renew()
    told('Saved.')
  }
  return (
    <Card title="Name and signature">
      <Form submit="Save" onSubmit={submit} disabled={name === u.name && signature === (u.signature ?? '')}>
        <TextField label="Your name" name="name" value={name} onInput={setName} autoComplete="name" hint="Shown in the From field of what you send." maxLength={200} />
        <TextArea label="Signature" name="signature" value={signature} onInput={setSignature} rows={3} hint="Put below new messages that you write here." />
      </Form>
    </Card>
  )
}

function Forward({ of: u }: { of: MailboxOut }) {
  const [to, setTo] = useState(u.forward_to ?? ''), [keep, setKeep] = useState(u.forward_keep_copy)
  const submit = async () => {
    await update(u, { forward_to: to.trim() || null, forward_keep_copy: keep })
    told('Saved.')
  }
  return (
    <Card title="Forwarding">
      <Form submit="Save forwarding" onSubmit={submit} disabled={to.trim() === (u.forward_to ?? '') && keep === u.forward_keep_copy}>
        <TextField label="Forward to" name="forward_to" type="email" value={to} onInput={setTo} hint="Leave empty to forward nothing." />
        <Check label="Keep a copy here" checked={keep} onChange={setKeep} />
      </Form>
    </Card>
  )
}

function Password() {
  const [now, setNow] = useState(''), [next, setNext] = useState('')
  const submit = async () => {
    await call('change_my_password', { current_password: now, new_password: next })
    setNow('')
    setNext('')
    told('Password changed. Other sessions are signed out; app passwords still work.')
  }
  return (
    <Card title="Password">
      <Form submit="Change password" onSubmit={submit} disabled={!now || !next}>
        <TextField label="Current password" name="current_password" type="password" value={now} onInput={setNow} autoComplete="current-password" />
        <TextField label="New password" name="new_password" type="password" value={next} onInput={setNext} autoComplete="new-password" hint={`At least ${leastPassword} characters. Nobody else can see it.`} />
      </Form>
    </Card>
  )
}

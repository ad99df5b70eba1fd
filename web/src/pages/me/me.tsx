// My mailbox: what the person of a mailbox sets for it.
import { useState } from 'preact/hooks'
import { call, session } from '../../api/client'
import { renew } from '../../api/session'
import { useQuery } from '../../api/query'
import { choose, chosen, languages, ofBrowser, type Language } from '../../language'
import { Badge, Card, Check, Form, leastPassword, Page, Select, Show, TextArea, TextField, told, useDraft } from '../../ui'
import { t } from '../../words'
import { Connection } from '../mailboxes/connection'
import { AppPasswords } from '../mailboxes/credentials'
import { Expires } from '../mailboxes/expiry'
import { Rules, Vacation } from '../mailboxes/rules'
import type { MailboxOut } from '../mailboxes/words'
import { SecondFactor } from '../people/factor'
import { Passkeys } from '../people/passkeys'
import { Sessions } from '../people/sessions'

export function Me() {
  const { user } = session.value!
  const mailbox = useQuery('get_email_user', { user_id: user.id }, { only: (c) => c.id === user.id })
  return (
    <Page title={t('shell.me')} intro={user.email}>
      <Show of={mailbox} lines={8}>
        {(u) => (
          <>
            <Expires of={u} />
            <div class="grid-2">
              <Connection of={u} />
              <AppPasswords userID={u.id} />
              <Name of={u} reload={mailbox.reload} />
              <Forward of={u} reload={mailbox.reload} />
              <Rules userID={u.id} />
              <Vacation userID={u.id} />
              <Password />
              <Recovery of={u} reload={mailbox.reload} />
              <SecondFactor />
              <Passkeys />
              <LanguageChoice />
            </div>
            <Sessions />
          </>
        )}
      </Show>
    </Page>
  )
}

interface PartProps { of: MailboxOut; reload: () => Promise<void> }

function Name({ of: u, reload }: PartProps) {
  const { values: { name, signature }, changes, changed, set, reset } = useDraft({ name: u.name, signature: u.signature ?? '' })
  const submit = async () => {
    await call('update_me', { name, signature: signature || null })
    await Promise.all([renew(), reload()])
    reset(changes)
    told(t('me.saved'))
  }
  return (
    <Card title={t('me.name')}>
      <Form submit={t('me.save')} onSubmit={submit} disabled={!changed}>
        <TextField label={t('gate.name')} name="name" value={name} onInput={(name) => set({ name })} autoComplete="name" hint={t('me.name.hint')} maxLength={200} />
        <TextArea label={t('me.signature')} name="signature" value={signature} onInput={(signature) => set({ signature })} rows={3} hint={t('me.signature.hint')} />
      </Form>
    </Card>
  )
}

function Forward({ of: u, reload }: PartProps) {
  const { values: { to, keep }, changes, changed, set, reset } = useDraft({ to: u.forward_to ?? '', keep: u.forward_keep_copy })
  const submit = async () => {
    await call('update_me', { forward_to: to.trim() || null, forward_keep_copy: keep })
    await reload()
    reset(changes)
    told(t('me.saved'))
  }
  return (
    <Card title={t('me.forward')}>
      <Form submit={t('me.forward.save')} onSubmit={submit} disabled={!changed}>
        <TextField label={t('me.forward.to')} name="forward_to" type="email" value={to} onInput={(to) => set({ to })} hint={t('me.forward.hint')} />
        <Check label={t('me.forward.keep')} checked={keep} onChange={(keep) => set({ keep })} />
      </Form>
    </Card>
  )
}

function Recovery({ of: u, reload }: PartProps) {
  const { values: { email }, changes, set, reset } = useDraft({ email: u.recovery_email ?? '' })
  const submit = async () => {
    await call('update_me', { recovery_email: email.trim() || null })
    await reload()
    reset(changes)
    told(email.trim() ? t('me.recovery.saved') : t('me.saved'))
  }
  return (
    <Card title={t('me.recovery')} note={t('me.recovery.note')} actions={u.recovery_email && <Badge tone={u.recovery_confirmed ? 'ok' : 'warn'}>{u.recovery_confirmed ? t('me.recovery.confirmed') : t('me.recovery.unconfirmed')}</Badge>}>
      <Form submit={t('me.recovery.save')} onSubmit={submit} disabled={email.trim() === (u.recovery_email ?? '') && (email === '' || u.recovery_confirmed)}>
        <TextField label={t('gate.email')} name="recovery_email" type="email" value={email} onInput={(email) => set({ email })} hint={t('me.recovery.hint')} />
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
    told(t('me.password.changed'))
  }
  return (
    <Card title={t('ui.password')}>
      <Form submit={t('me.password.change')} onSubmit={submit} disabled={!now || !next}>
        <TextField label={t('me.password.now')} name="current_password" type="password" value={now} onInput={setNow} autoComplete="current-password" />
        <TextField label={t('me.password.new')} name="new_password" type="password" value={next} onInput={setNext} autoComplete="new-password" hint={t('me.password.hint', { n: leastPassword })} />
      </Form>
    </Card>
  )
}

/** The language of these pages, which this browser keeps. */
function LanguageChoice() {
  const all = Object.entries(languages) as [Language, string][]
  return (
    <Card title={t('me.language')}>
      <Select label={t('me.language.label')} value={chosen.value ?? ''} onChange={(to) => choose(to || undefined)} hint={t('me.language.hint')}
        options={[['', t('me.language.browser', { language: languages[ofBrowser()] })], ...all]} />
    </Card>
  )
}

// My mailbox: what the person of a mailbox sets for it.
import { useState } from 'preact/hooks'
import { call, session } from '../../api/client'
import { renew } from '../../api/session'
import { useQuery } from '../../api/query'
import { choose, chosen, languages, ofBrowser, type Language } from '../../language'
import { Card, Check, Form, leastPassword, Page, Select, Show, TextArea, TextField, told } from '../../ui'
import { t } from '../../words'
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
    <Page title={t('shell.me')} intro={user.email}>
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
              <LanguageChoice />
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
    told(t('me.saved'))
  }
  return (
    <Card title={t('me.name')}>
      <Form submit={t('me.save')} onSubmit={submit} disabled={name === u.name && signature === (u.signature ?? '')}>
        <TextField label={t('gate.name')} name="name" value={name} onInput={setName} autoComplete="name" hint={t('me.name.hint')} maxLength={200} />
        <TextArea label={t('me.signature')} name="signature" value={signature} onInput={setSignature} rows={3} hint={t('me.signature.hint')} />
      </Form>
    </Card>
  )
}

function Forward({ of: u }: { of: MailboxOut }) {
  const [to, setTo] = useState(u.forward_to ?? ''), [keep, setKeep] = useState(u.forward_keep_copy)
  const submit = async () => {
    await update(u, { forward_to: to.trim() || null, forward_keep_copy: keep })
    told(t('me.saved'))
  }
  return (
    <Card title={t('me.forward')}>
      <Form submit={t('me.forward.save')} onSubmit={submit} disabled={to.trim() === (u.forward_to ?? '') && keep === u.forward_keep_copy}>
        <TextField label={t('me.forward.to')} name="forward_to" type="email" value={to} onInput={setTo} hint={t('me.forward.hint')} />
        <Check label={t('me.forward.keep')} checked={keep} onChange={setKeep} />
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

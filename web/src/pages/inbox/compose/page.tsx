// The page on which a message is written. Its address may name recipients, subject, text and the mailbox that sends.
import { useMemo, useState } from 'preact/hooks'
import { can } from '../../../api/client'
import { go, params } from '../../../router'
import { Button, Card, Empty, LinkButton, Page } from '../../../ui'
import { t } from '../../../words'
import { splitPeople } from '../people'
import { change, draftOf, isEmpty, type Draft } from './draft'
import { ComposeForm, type Sent } from './form'
import { Fates, Undo, useWaits } from './sent'

export function ComposePage() {
  const key = keyOfAddress()
  const [sent, setSent] = useState<Sent>()
  const [round, setRound] = useState(0)
  const waits = useWaits(sent ?? null)
  useMemo(() => fill(key), [key])
  if (!can('send_email')) return <Page title={t('compose.title.new')}><Empty icon="ban" title={t('compose.barred.title')}>{t('compose.barred.text')}</Empty></Page>
  return (
    <Page title={sent ? t(sent.until === 0 && sent.status === 'scheduled' ? 'compose.scheduled' : 'compose.sent') : t(`compose.title.${draftOf(key).kind}`)} back={{ href: '/inbox', label: t('inbox.folder.inbox') }}>
      {sent ? (
        <Card title={sent.subject || t('message.no_subject')} note={`${t('compose.from')} ${sent.from}`}>
          <div class="stack">
            {waits ? <p class="muted">{t('compose.undo_soon')}</p> : <Fates sent={sent} />}
            <div class="row">
              {waits && <Undo sent={sent} onBack={() => { setSent(undefined); go('/compose?draft=' + encodeURIComponent(sent.draft.key), { replace: true }) }} />}
              <Button look="primary" icon="pencil" onClick={() => { setSent(undefined); setRound(round + 1) }}>{t('compose.another')}</Button>
              <LinkButton href="/inbox">{t('compose.back')}</LinkButton>
            </div>
          </div>
        </Card>
      ) : (
        <div class="card compose compose-page"><ComposeForm key={key + round} draft={key} onSent={setSent} onDiscard={() => history.back()} /></div>
      )}
    </Page>
  )
}

/** Which draft the address is about. One that says what to write has a draft of its own. */
function keyOfAddress(): string {
  return params.value.get('draft') || (params.value.size > 0 ? 'new ' + params.value : 'new')
}

/** Begins the draft that the address describes, if none was begun. */
function fill(key: string) {
  const p = params.value
  const people = (name: string) => splitPeople(p.getAll(name).join(','))
  const asked: Partial<Draft> = { to: people('to'), cc: people('cc'), bcc: people('bcc'), subject: p.get('subject') ?? '', text: p.get('text') ?? p.get('body') ?? '' }
  const from = p.get('from')
  if (from) asked.from = from.includes('@') ? { user_id: '', email: from } : { user_id: from, email: '' }
  if (!p.has('draft') && p.size > 0 && isEmpty(draftOf(key))) change(key, asked)
}

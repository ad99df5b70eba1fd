// Why a message was not sent, and what to do about it.
import { ApiError, can, person } from '../../../api/client'
import { useQuery } from '../../../api/query'
import { Notice, Wrong } from '../../../ui'
import { t } from '../../../words'

/** What is wrong with which field. */
export type Wrong = Partial<Record<'from' | 'to' | 'cc' | 'bcc' | 'subject' | 'attachments' | 'send_at', string>>

const fields = ['to', 'cc', 'bcc', 'subject', 'attachments', 'send_at'] as const

/** What an error says about the fields. */
export function wrongIn(error: unknown): Wrong {
  const wrong: Wrong = {}
  if (!(error instanceof ApiError)) return wrong
  for (const field of fields) {
    const text = error.of(field)
    if (text) wrong[field] = text
  }
  if (error.status === 413) wrong.attachments = error.message
  return wrong
}

export function Refusal({ error, from, known }: { error: Error | undefined; from: { user_id: string; email: string }; known: Wrong }) {
  if (!error || Object.keys(known).length > 0) return null
  const code = error instanceof ApiError ? error.code : ''
  return (
    <div class="compose-refusal">
      <Notice tone="bad" alert>
        {code === 'domain_not_ready' ? error.message : <Wrong of={error} />}{' '}
        {error instanceof ApiError && error.details[0]?.code === 'own_limit' && (can('update_email_user') ? <>{t('compose.other_mailbox')} <a href={'/mailboxes/' + from.user_id}>{t('compose.raise_limit', { email: from.email })}</a></> : t('compose.ask_for_limit'))}
        {code === 'domain_not_ready' && !person() && <DomainLink userID={from.user_id} />}
      </Notice>
    </div>
  )
}

function DomainLink({ userID }: { userID: string }) {
  const mailbox = useQuery('get_email_user', { user_id: userID }, { kinds: [] })
  if (!mailbox.data) return null
  return <>{t('compose.draft_kept')} <a href={'/domains/' + mailbox.data.domain_id}>{t('compose.domain_needs', { domain: mailbox.data.domain })}</a></>
}

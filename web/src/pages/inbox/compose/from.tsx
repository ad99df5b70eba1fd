// Chooses who a message is from: a mailbox, or an address that one may send as. There may be ten
// thousand.
import { useState } from 'preact/hooks'
import { can, person } from '../../../api/client'
import { useLate, useQuery } from '../../../api/query'
import { t } from '../../../words'
import { Choices, maySend, Picker, type Mailbox } from '../picker'

/** An address to send from. as: it is not the mailbox's own. */
interface Identity { mailbox: Mailbox; email: string; as: boolean }

interface Props { mailbox: Mailbox | undefined; email: string; onPick: (mailbox: { user_id: string; email: string }, as: string | undefined) => void }

export function From({ mailbox, email, onPick }: Props) {
  const others = can('list_email_users') && !person()
  if (!others && (mailbox?.send_as.length ?? 0) < 2) return <span class="truncate">{email}</span>
  return (
    <Picker label={t('compose.from')} value={email || t('inbox.choose_mailbox')}>
      {(close) => <Identities mailbox={mailbox} email={email} others={others} onEscape={close} onPick={(i) => { onPick({ user_id: i.mailbox.user_id, email: i.mailbox.email }, i.as ? i.email : undefined); close() }} />}
    </Picker>
  )
}

function Identities({ mailbox, email, others, onPick, onEscape }: { mailbox: Mailbox | undefined; email: string; others: boolean; onPick: (identity: Identity) => void; onEscape: () => void }) {
  const [typed, setTyped] = useState(''), q = useLate(typed.trim(), 150)
  const list = useQuery('list_email_users', { q: q || undefined, limit: 100 }, { kinds: [], when: others })
  const found = others ? (list.data?.data ?? []).filter((m) => maySend(m) && m.user_id !== mailbox?.user_id) : []
  const choices = [...identitiesOf(mailbox ? [mailbox] : [], q.toLowerCase()), ...identitiesOf(found, '')].map((i) => ({
    of: i, key: i.mailbox.user_id + i.email, name: i.email, about: i.as ? t('compose.as_of', { email: i.mailbox.email }) : i.mailbox.name, chosen: i.email === email,
  }))
  return <Choices {...{ typed, q, list, choices, onPick, onEscape }} label={t('compose.from')} search={t('compose.search_senders')} onType={setTyped} none={t('inbox.no_mailboxes_match')} />
}

/** The addresses of mailboxes that have a text; the mailbox's own first. */
function identitiesOf(mailboxes: Mailbox[], text: string): Identity[] {
  return mailboxes.flatMap((mailbox) => [mailbox.email, ...mailbox.send_as.filter((a) => a !== mailbox.email)]
    .filter((email) => email.toLowerCase().includes(text) || mailbox.name.toLowerCase().includes(text)).map((email) => ({ mailbox, email, as: email !== mailbox.email })))
}

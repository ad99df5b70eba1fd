// That a token or a password is tainted: since when, by which conversation, what that means, and how it ends.
import type { Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Button, Notice, theirList, Time, told } from '../../ui'
import { rich, t } from '../../words'
import { placeOfMessage } from '../inbox/filters'
import { saidTaint } from './policy'

type Tainted = Schemas['Tainted']

/** Says by what something is tainted. sends: it does nothing but send. clear ends the taint; without it the viewer may not. */
export function TaintNotice({ of: taint, name, sends, clear }: { of: Tainted; name: string; sends?: boolean; clear?: () => Promise<unknown> }) {
  const onClear = () => ask({
    title: `Clear taint of ${name}?`, action: 'Clear taint', danger: false,
    text: 'It can send and change things again, as its permissions and its policy allow. Read the conversation first: a program that still remembers what a stranger wrote there may still do it.',
    run: async () => {
      await clear!()
      told('Taint cleared.')
    },
  })
  return (
    <Notice tone="warn" title={t('policy.tainted')}>
      {taint.user_id
        ? rich('policy.tainted.in', { when: <Time of={taint.since} />, where: <Conversation userID={taint.user_id} threadID={taint.thread_id} /> })
        : rich('policy.tainted.since', { when: <Time of={taint.since} /> })}{' '}
      {clear ? <Button small aria-label={`Clear taint of ${name}`} onClick={onClear}>Clear taint</Button> : t('policy.tainted.clear')}
      <details class="small policies-note"><summary>{t('policy.tainted.means')}</summary>{saidTaint(sends)}</details>
    </Notice>
  )
}

/** Says, where a key is made that is to be careful, which ones have read strangers' mail that it may come to know of. */
export function Readers({ of }: { of: { name: string; tainted: Tainted | null }[] }) {
  const readers = of.filter((k) => k.tainted)
  if (readers.length === 0) return null
  return (
    <Notice tone="warn" title={t('policy.readers')}>
      {theirList(readers.slice(0, 5).map((k) => k.name))}{readers.length > 5 && ` ${t('policy.readers.more', { n: readers.length - 5 })}`}. {t('policy.readers.text')}
    </Notice>
  )
}

/** A link to the newest message of a conversation; to the inbox if it is not known or gone. */
function Conversation({ userID, threadID }: { userID: string; threadID: string | null }) {
  const mailbox = useQuery('get_email_user', { user_id: userID }, { kinds: [] })
  const newest = useQuery('list_email_user_inbox', { user_id: userID, thread_id: threadID ?? undefined, folder: 'all', limit: 1 }, { when: threadID !== null, kinds: [] })
  if (!mailbox.data || newest.loading) return <>{t('policy.some_mailbox')}</> // it may be gone, or not the viewer's to see
  const { email } = mailbox.data, m = newest.data?.data[0]
  if (!m) return <a href={`/inbox?mailbox=${encodeURIComponent(email)}`}>{email}</a>
  return <>{email} (<a href={placeOfMessage(m)}>{t('policy.open')}</a>)</>
}

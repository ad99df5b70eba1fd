// What becomes of a message that was just sent, as the sending log tells.
import { useEffect, useState } from 'preact/hooks'
import { person, serverNow } from '../../../api/client'
import { useQuery } from '../../../api/query'
import { Button } from '../../../ui'
import { t } from '../../../words'
import { StatusBadge } from '../../sent/words'
import { takeBack, type Sent } from './form'

/** Whether a message can still be taken back. */
export function useWaits(sent: Sent | null): boolean {
  const [, setNow] = useState(0)
  const left = sent && sent.until > 0 ? sent.until - serverNow() : 0
  useEffect(() => {
    if (left <= 0) return
    const timer = setTimeout(() => setNow((n) => n + 1), left + 50)
    return () => clearTimeout(timer)
  }, [sent])
  return left > 0
}

/** Takes a message back, which is a draft again. */
export function Undo({ sent, onBack }: { sent: Sent; onBack: () => void }) {
  return <Button onClick={async () => { if (await takeBack(sent)) onBack() }}>{t('ui.undo')}</Button>
}

/** The recipients of a message with the state of each, live. */
export function Fates({ sent }: { sent: Sent }) {
  const one = sent.recipients.length === 1 ? sent.recipients[0]!.email : undefined
  const log = useQuery('list_messages', { mailbox: sent.from, recipient: one, limit: 100 })
  const rows = (log.data?.data ?? []).filter((r) => r.message_id === sent.message_id)
  return (
    <ul class="compose-fates">
      {sent.recipients.map((r) => {
        const row = rows.find((x) => x.recipient.toLowerCase() === r.email.toLowerCase())
        const status = row?.status ?? r.status
        return (
          <li key={r.email}>
            {row && !person() ? <a class="truncate" href={'/sent/' + row.id}>{r.email}</a> : <span class="truncate">{r.email}</span>}
            <StatusBadge status={status} />
            {status === 'suppressed' && <span class="small muted">{t('compose.suppressed')}{!person() && <> <a href="/sent/suppressions">{t('compose.suppressions')}</a></>}</span>}
          </li>
        )
      })}
    </ul>
  )
}

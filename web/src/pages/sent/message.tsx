// One recipient's life of a sent message.
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Button, Card, Copyable, Facts, Notice, Page, plural, Show, Time, told, words } from '../../ui'
import { StatusBadge, statuses, waits } from './words'

type Detail = Schemas['SentMessageDetail']
type Attempt = Schemas['SentAttempt']

export function Message({ id }: { id: string }) {
  const message = useQuery('get_sent_message', { id }, { only: (c) => c.id === id })
  const m = message.data
  return (
    <Page title={m ? m.subject || '(no subject)' : 'Sent message'} back={{ href: '/sent', label: 'Sent' }} intro={m && `To ${m.recipient}`} actions={m && <Actions of={m} />}>
      <Show of={message}>{(m) => <Details of={m} />}</Show>
    </Page>
  )
}

function Actions({ of: m }: { of: Detail }) {
  if (!waits(m)) return null
  const cancel = () => ask({
    title: 'Cancel this message?', action: 'Cancel message', text: `${m.recipient} will not receive this message. Its other recipients still will.`,
    run: async () => {
      await call('cancel_message', { id: m.id })
      told('Message cancelled.')
    },
  })
  return (
    <>
      {can('retry_message') && <Button icon="refresh" onClick={() => retry(m.id)}>Retry now</Button>}
      {can('cancel_message') && <Button look="danger" icon="ban" onClick={cancel}>Cancel message</Button>}
    </>
  )
}

async function retry(id: string) {
  await call('retry_message', { id })
  told('Retrying now.')
}

function Details({ of: m }: { of: Detail }) {
  const { tone, means } = statuses[m.status]
  return (
    <>
      <Notice tone={tone === 'none' ? 'info' : tone} title={words(m.status) + '.'}>
        {means}{m.next_attempt_at && waits(m) && <> Next attempt <Time of={m.next_attempt_at} />.</>}
      </Notice>
      <div class="grid-2">
        <Attempts of={m} />
        <Card title="Details">
          <Facts of={[
            ['Status', <StatusBadge status={m.status} />],
            ['From', m.user_id ? <a href={`/mailboxes/${m.user_id}`}>{m.sender}</a> : m.sender],
            ['To', m.recipient],
            ['Queued', <Time of={m.queued_at} form="at" />],
            ['Updated', <Time of={m.updated_at} form="at" />],
            ['Route', m.provider ? `${m.transport} ${m.provider}` : m.transport],
            ['Message-ID', <Copyable text={m.message_id} />],
            ['Relay message ID', m.provider_message_id && <Copyable text={m.provider_message_id} />],
          ]} />
        </Card>
      </div>
    </>
  )
}

function Attempts({ of: m }: { of: Detail }) {
  return (
    <Card title={plural(m.attempts, 'attempt')} note={m.attempts_log.length > 0 && m.attempts > m.attempts_log.length ? `The newest ${m.attempts_log.length} are shown.` : undefined}>
      {m.attempts_log.length === 0 ? <p class="muted">{m.last_response ?? 'No attempts yet.'}</p> : (
        <ol class="sent-attempts" reversed>{m.attempts_log.toReversed().map((a, i) => <One key={i} attempt={a} />)}</ol>
      )}
    </Card>
  )
}

const vouchers: Record<Attempt['authenticated'], string> = {
  dane: 'verified by DANE', 'mta-sts': 'verified by MTA-STS', certificate: 'valid certificate', none: 'host not verified',
}

function One({ attempt: a }: { attempt: Attempt }) {
  const tone = a.code === null ? 'warn' : a.code < 300 ? 'ok' : a.code < 500 ? 'warn' : 'bad'
  return (
    <li class={tone}>
      <div>
        <div class="row-between"><strong>{a.host ?? 'No host reached'}</strong><span class="muted small"><Time of={a.at} form="at" /></span></div>
        <div class="muted small">{[a.ip, a.host && (a.tls ? `${a.tls}, ${vouchers[a.authenticated]}` : 'not encrypted')].filter(Boolean).join(' · ')}</div>
        {a.reply && <code class="sent-reply">{a.reply}</code>}
      </div>
    </li>
  )
}

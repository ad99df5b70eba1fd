// One recipient's life of a sent message.
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { useState } from 'preact/hooks'
import { ask, Badge, Button, Card, Copyable, Dialog, Facts, Form, Notice, Page, plural, Show, TextField, theirs, Time, told, words } from '../../ui'
import { localTime, mayRetry, StatusBadge, statuses, waits } from './words'

type Detail = Schemas['SentMessageDetail']
type Attempt = Schemas['SentAttempt']

export function Message({ id }: { id: string }) {
  const message = useQuery('get_sent_message', { id }, { only: (c) => c.id === id })
  const m = message.data
  return (
    <Page title={m ? m.subject || '(no subject)' : 'Sent message'} heading={theirs(m?.subject) || undefined} back={{ href: '/sent', label: 'Sent' }} intro={m && `To ${m.recipient}`} actions={m && <Actions of={m} />}>
      <Show of={message}>{(m) => <Details of={m} />}</Show>
    </Page>
  )
}

function Actions({ of: m }: { of: Detail }) {
  const [moving, setMoving] = useState(false)
  if (!waits(m)) return null
  const cancel = () => ask({
    title: 'Cancel this message?', action: 'Cancel message', text: m.status === 'held' && m.approval_id ? 'It is rejected, and no recipient will receive it.' : `${m.recipient} will not receive this message. Its other recipients still will.`,
    run: async () => {
      await call('cancel_message', { id: m.id })
      told('Message cancelled.')
    },
  })
  return (
    <>
      {mayRetry(m) && can('retry_message') && <Button icon="refresh" onClick={() => retry(m.id)}>Retry now</Button>}
      {m.status === 'scheduled' && can('update_scheduled_message') && <Button icon="clock" onClick={() => setMoving(true)}>Change time</Button>}
      {moving && <Move of={m} onClose={() => setMoving(false)} />}
      {can('cancel_message') && <Button look="danger" icon="ban" onClick={cancel}>Cancel message</Button>}
    </>
  )
}

function Move({ of: m, onClose }: { of: Detail; onClose: () => void }) {
  const [at, setAt] = useState(localTime(new Date(m.send_at!)))
  const submit = async () => {
    await call('update_scheduled_message', { id: m.id, send_at: new Date(at).toISOString() })
    told('The time was changed.')
    onClose()
  }
  return (
    <Dialog title="Change time" onClose={onClose}>
      <Form submit="Save" onSubmit={submit} of={at} disabled={!at}>
        <TextField label="Send at" name="send_at" type="datetime-local" value={at} onInput={setAt} hint={`For ${m.recipient} only. At most 30 days ahead.`} autoFocus />
      </Form>
    </Dialog>
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
            ['To', theirs(m.recipient)],
            ['Queued', <Time of={m.queued_at} form="at" />],
            ['Scheduled for', m.send_at && <Time of={m.send_at} form="at" />],
            ['Tags', Object.keys(m.tags).length > 0 && <span class="row">{Object.entries(m.tags).map(([name, value]) => <Badge key={name} plain>{name}: {value}</Badge>)}</span>],
            ['Approval', m.approval_id && can('get_approval') && <a href={`/approvals/${m.approval_id}`}>Show approval</a>],
            ['Encryption', m.require_tls && 'required on the whole way'],
            ['Updated', <Time of={m.updated_at} form="at" />],
            ['Route', m.provider ? `${m.transport} ${m.provider}` : m.transport],
            ['Message-ID', <Copyable text={m.message_id} />],
            ['Relay message ID', m.provider_message_id && <Copyable text={m.provider_message_id} />],
            ['API request', m.request_id && can('get_request') && <a href={`/requests/${m.request_id}`}>Show request</a>],
          ]} />
        </Card>
      </div>
    </>
  )
}

function Attempts({ of: m }: { of: Detail }) {
  return (
    <Card title={m.attempts > 0 ? plural(m.attempts, 'attempt') : 'Attempts'} note={m.attempts_log.length > 0 && m.attempts > m.attempts_log.length ? `The newest ${m.attempts_log.length} are shown.` : undefined}>
      {m.attempts_log.length === 0 ? <p class="muted">{theirs(m.last_response) ?? 'No attempts yet.'}</p> : (
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
        {a.reply && <code class="sent-reply" dir="auto">{a.reply}</code>}
      </div>
    </li>
  )
}

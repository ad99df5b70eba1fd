// One held message: everything that would be sent, and both decisions.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { theme } from '../../theme'
import { Button, bytes, Card, Copyable, Dialog, Facts, Form, LinkButton, Notice, Page, plural, Show, TextArea, theirList, theirs, Time, told, words } from '../../ui'
import { useFit } from '../inbox/frame'
import { reasons, recipientsOf, statuses, StatusBadge, ways } from './words'

type Detail = Schemas['ApprovalDetail']

export function ApprovalPage({ id }: { id: string }) {
  const read = useQuery('get_approval', { approval_id: id }, { only: (c) => c.id === id })
  const a = read.data
  return (
    <Page title={a ? a.subject || '(no subject)' : 'Held message'} heading={theirs(a?.subject) || undefined} back={{ href: '/approvals', label: 'Approvals' }} intro={a && `From ${a.email} to ${plural(recipientsOf(a).length, 'recipient')}`}
      actions={a?.status === 'pending' && <Decide of={a} onDone={read.reload} />}>
      <Show of={read} lines={10}>{(a) => <Details of={a} />}</Show>
    </Page>
  )
}

function Decide({ of: a, onDone }: { of: Detail; onDone: () => Promise<void> }) {
  const [deciding, setDeciding] = useState<'approve' | 'reject'>()
  return (
    <>
      {can('approve_message') && <Button look="primary" icon="check" onClick={() => setDeciding('approve')}>Approve</Button>}
      {can('reject_message') && <Button look="danger" icon="ban" onClick={() => setDeciding('reject')}>Reject</Button>}
      {deciding && <Decision of={a} approve={deciding === 'approve'} onClose={() => setDeciding(undefined)} onDone={onDone} />}
    </>
  )
}

function Decision({ of: a, approve, onClose, onDone }: { of: Detail; approve: boolean; onClose: () => void; onDone: () => Promise<void> }) {
  const [note, setNote] = useState('')
  const submit = async () => {
    const said = note.trim() ? { note: note.trim() } : {}
    if (approve) await call('approve_message', { approval_id: a.approval_id, content_hash: a.content_hash, ...said })
    else await call('reject_message', { approval_id: a.approval_id, ...said })
    told(approve ? 'Message approved.' : 'Message rejected.')
    onClose()
    await onDone()
  }
  return (
    <Dialog title={approve ? 'Approve this message?' : 'Reject this message?'} onClose={onClose}>
      <div class="stack">
        <p>{approve ? `It is sent to ${plural(recipientsOf(a).length, 'recipient')}, exactly as shown here.` : 'It is not sent. If it came by SMTP, its sender gets a delivery report.'}</p>
        <Form submit={approve ? 'Approve and send' : 'Reject'} danger={!approve} onSubmit={submit} of={note} optional>
          <TextArea label="Note" name="note" hint="Optional. Shown with this approval and sent to webhooks." value={note} onInput={setNote} rows={3} autoFocus />
        </Form>
      </div>
    </Dialog>
  )
}

function Details({ of: a }: { of: Detail }) {
  const { tone, means } = statuses[a.status]
  return (
    <>
      <Notice tone={tone === 'none' ? 'info' : tone} title={words(a.status) + '.'}>
        {means}{a.status === 'pending' && <> {reasons[a.reason]} It expires <Time of={a.expires_at} />.</>}
      </Notice>
      <Card title="Recipients and sender">
        <Facts of={[
          ['Status', <StatusBadge status={a.status} />],
          ['From', a.user_id ? <a href={`/mailboxes/${a.user_id}`}>{a.email}</a> : a.email],
          ['To', theirList(a.to)],
          ['Cc', theirList(a.cc)],
          ['Other recipients', theirList(a.bcc)],
          ['Sent by', [ways[a.via], a.token?.name].filter(Boolean).join(', ')],
          ['Attachments', a.attachments.length > 0 && <Files of={a} />],
          ['Size', bytes(a.size)],
          ['Held', <Time of={a.created_at} form="at" />],
          ['Decided', a.decided_at && <><Time of={a.decided_at} form="at" />{a.decided_by && ` by ${a.decided_by.name}`}</>],
          ['Note', theirs(a.note)],
          ['SHA-256', <Copyable text={a.content_hash} />],
        ]} />
      </Card>
      <Words of={a} />
      <Card title="Headers" actions={<LinkButton small icon="download" href={`/v1/approvals/${a.approval_id}/raw`} download>Download as .eml</LinkButton>}>
        <dl class="inbox-headers">
          {a.headers.map((h, i) => <div key={i}><dt>{h.name}</dt><dd><code dir="auto">{h.value}</code></dd></div>)}
        </dl>
      </Card>
    </>
  )
}

/** The files, each of which opens in a frame that can do nothing. */
function Files({ of: a }: { of: Detail }) {
  const [opened, setOpened] = useState<number>()
  const file = opened === undefined ? undefined : a.attachments[opened]
  const path = `/session/approvals/${a.approval_id}/files/${opened}`
  return (
    <>
      <ul class="approval-files">
        {a.attachments.map((f, i) => <li key={i}><Button small icon="clip" onClick={() => setOpened(i)}>{theirs(f.filename)}</Button> <span class="muted small">{f.content_type}, {bytes(f.size)}</span></li>)}
      </ul>
      {file && (
        <Dialog wide title={file.filename} onClose={() => setOpened(undefined)}>
          <div class="stack">
            <iframe class="approval-file" title={file.filename} sandbox="" src={`${path}?theme=${theme.value}`} />
            <div><LinkButton small icon="download" href={`${path}?save=true`} download>Download</LinkButton></div>
          </div>
        </Dialog>
      )}
    </>
  )
}

/** What the message says. Where it says it twice, as HTML and as plain text, both are shown: recipients may see either. */
function Words({ of: a }: { of: Detail }) {
  const frame = useFit()
  return (
    <>
      {!a.body_complete && <Notice tone="warn">Only the beginning of this message is shown. Download it to read the rest.</Notice>}
      {a.html !== null && (
        <Card title="Message" note="Images and styles are removed before it is sent." flush>
          <div class="approval-body"><iframe class="inbox-frame" key={theme.value} ref={frame} title="Message body" sandbox="allow-same-origin allow-popups allow-popups-to-escape-sandbox"
            src={`/session/approvals/${a.approval_id}/view?theme=${theme.value}`} /></div>
        </Card>
      )}
      {(a.text !== null || a.html === null) && (
        <Card title={a.html !== null ? 'Plain text version' : 'Message'}>
          {a.text?.trim() ? <div class="approval-text" dir="auto">{a.text}</div> : <p class="muted">This message has no text.</p>}
        </Card>
      )}
    </>
  )
}

import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { params, setParams } from '../../router'
import { ask, Badge, Button, Card, count, Dialog, Empty, Form, IconButton, ListBar, LongList, Page, plural, Select, TextArea, TextField, theirs, Time, told, totalOf } from '../../ui'
import { SentTabs } from './tabs'

type Suppression = Schemas['Suppression']
type Reason = Suppression['reason'] | ''

const reasons: [Reason, string][] = [['', 'Any reason'], ['bounce', 'Bounce: the address does not exist'], ['complaint', 'Complaint: reported as spam'], ['manual', 'Manual: added by your team']]

export function Suppressions() {
  const reason = (params.value.get('reason') ?? '') as Reason
  const [adding, setAdding] = useState(false), [importing, setImporting] = useState(false)
  const pages = usePages('list_suppressions', { limit: 50, reason: reason || undefined }, (s) => s.email)
  return (
    <Page title="Suppression list" heading="Sent" intro="No mail is sent to these addresses, because they bounced, reported spam or were added by your team. This protects your domains’ reputation."
      tabs={<SentTabs current="suppressions" />} actions={<>
        {can('import_suppressions') && <Button icon="upload" onClick={() => setImporting(true)}>Import</Button>}
        {can('create_suppression') && <Button icon="plus" onClick={() => setAdding(true)}>Add address</Button>}
      </>}>
      <ListBar total={totalOf(pages, 'address', 'addresses')}><Select label="Reason" hideLabel value={reason} onChange={(reason) => setParams({ reason })} options={reasons} /></ListBar>
      <Card flush>
        <LongList pages={pages} idOf={(s) => s.email} height={52} compactHeight={38} label="Suppressed addresses" row={(s) => <Line of={s} onGone={() => pages.drop(new Set([s.email]))} />}
          empty={<Empty icon="shield" title={reason ? 'No addresses match' : 'No suppressed addresses'}>Hard bounces and spam complaints are added automatically.</Empty>} />
      </Card>
      {importing && <Import onClose={() => setImporting(false)} onDone={pages.reload} />}
      {adding && <Add onClose={() => setAdding(false)} onDone={pages.reload} />}
    </Page>
  )
}

function Line({ of: s, onGone }: { of: Suppression; onGone: () => void }) {
  const remove = () => ask({
    title: `Remove ${s.email} from the list?`, action: 'Remove', danger: false,
    text: s.reason === 'complaint' ? 'The recipient reported a message from you as spam. Remove the address only if they asked you to.' : 'You can send to this address again. If it bounces again, it is added back.',
    run: async () => {
      await call('delete_suppression', { email: s.email })
      onGone()
      told(`${s.email} was removed from the suppression list.`)
    },
  })
  return (
    <div class="line">
      <span class="grow truncate"><strong>{theirs(s.email)}</strong></span>
      <Badge tone={s.reason === 'complaint' ? 'bad' : s.reason === 'bounce' ? 'warn' : 'none'}>{s.reason}</Badge>
      <span class="sent-when muted small"><Time of={s.created_at} form="short" /></span>
      {can('delete_suppression') && <IconButton look="ghost" small icon="trash" label={`Remove ${s.email} from the list`} onClick={remove} />}
    </div>
  )
}

function Import({ onClose, onDone }: { onClose: () => void; onDone: () => Promise<void> }) {
  const [text, setText] = useState(''), [reason, setReason] = useState<Suppression['reason']>('manual')
  const submit = async () => {
    const given = text.split(/[\s,;]+/).filter(Boolean)
    const { added, already, invalid } = await call('import_suppressions', { emails: given, reason })
    told(`${plural(added, 'address', 'addresses')} added, ${already} were there before${invalid.length > 0 ? `, ${invalid.length} are not valid: ${invalid.slice(0, 3).join(', ')}` : ''}.`)
    onClose()
    await onDone()
  }
  return (
    <Dialog title="Import addresses" onClose={onClose}>
      <Form submit="Import" onSubmit={submit} of={text} disabled={text.trim() === ''}>
        <TextArea label="Addresses" name="emails" value={text} onInput={setText} rows={8} mono autoFocus hint={`One per line. At most ${count(10_000)} at a time.`} />
        <Select label="Reason" name="reason" value={reason} onChange={setReason} options={reasons.slice(1) as [Suppression['reason'], string][]} />
      </Form>
    </Dialog>
  )
}

function Add({ onClose, onDone }: { onClose: () => void; onDone: () => Promise<void> }) {
  const [email, setEmail] = useState('')
  const submit = async () => {
    await call('create_suppression', { email })
    told(`${email} was added to the suppression list.`)
    onClose()
    await onDone()
  }
  return (
    <Dialog title="Add address" onClose={onClose}>
      <Form submit="Add" onSubmit={submit} of={email}>
        <TextField label="Email" name="email" type="email" value={email} onInput={setEmail} hint="None of your mailboxes can send to this address." autoFocus />
      </Form>
    </Dialog>
  )
}

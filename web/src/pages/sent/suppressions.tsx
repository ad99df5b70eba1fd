import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { params, setParams } from '../../router'
import { ask, Badge, Button, Card, Dialog, Empty, Form, IconButton, LongList, Page, Select, TextField, Time, told } from '../../ui'
import { SentTabs } from './tabs'

type Suppression = Schemas['Suppression']
type Reason = Suppression['reason'] | ''

const reasons: [Reason, string][] = [['', 'Any reason'], ['bounce', 'The address does not exist'], ['complaint', 'The recipient complained'], ['manual', 'Added by hand']]

export function Suppressions() {
  const reason = (params.value.get('reason') ?? '') as Reason
  const [adding, setAdding] = useState(false)
  const pages = usePages('list_suppressions', { limit: 50, reason: reason || undefined }, (s) => s.email)
  return (
    <Page title="Suppression list" heading="Sent" intro="Addresses to which nothing is sent, since they bounced or their owners complained. It keeps the name of your domains good."
      tabs={<SentTabs current="suppressions" />} actions={can('create_suppression') && <Button icon="plus" onClick={() => setAdding(true)}>Add an address</Button>}>
      <div class="sent-filters"><Select label="Reason" value={reason} onChange={(reason) => setParams({ reason })} options={reasons} /></div>
      <Card flush>
        <LongList pages={pages} idOf={(s) => s.email} height={52} label="Suppressed addresses" row={(s) => <Line of={s} onGone={() => pages.drop(new Set([s.email]))} />}
          empty={<Empty icon="shield" title={reason ? 'No address for this reason' : 'No address is suppressed'}>Hard bounces and complaints put addresses here by themselves.</Empty>} />
      </Card>
      {adding && <Add onClose={() => setAdding(false)} onDone={pages.reload} />}
    </Page>
  )
}

function Line({ of: s, onGone }: { of: Suppression; onGone: () => void }) {
  const remove = () => ask({
    title: `Send to ${s.email} again?`, action: 'Allow it', danger: false,
    text: s.reason === 'complaint' ? 'Its owner called a message from you spam. Allow it only if they asked for it.' : 'If it bounces again it comes back to this list.',
    run: async () => {
      await call('delete_suppression', { email: s.email })
      onGone()
      told(`${s.email} may be written to again.`)
    },
  })
  return (
    <div class="line sent-row">
      <span class="grow truncate"><strong>{s.email}</strong></span>
      <Badge plain tone={s.reason === 'complaint' ? 'bad' : s.reason === 'bounce' ? 'warn' : 'none'}>{s.reason}</Badge>
      <span class="sent-when muted small"><Time of={s.created_at} form="short" /></span>
      {can('delete_suppression') && <IconButton look="ghost" small icon="trash" label={`Take ${s.email} off the list`} onClick={remove} />}
    </div>
  )
}

function Add({ onClose, onDone }: { onClose: () => void; onDone: () => Promise<void> }) {
  const [email, setEmail] = useState('')
  const submit = async () => {
    await call('create_suppression', { email })
    told(`Nothing is sent to ${email} any more.`)
    onClose()
    await onDone()
  }
  return (
    <Dialog title="Add an address" onClose={onClose}>
      <Form submit="Add it" onSubmit={submit}>
        <TextField label="E-mail" name="email" type="email" value={email} onInput={setEmail} hint="Nothing is sent to it from any of your mailboxes." autoFocus />
      </Form>
    </Dialog>
  )
}

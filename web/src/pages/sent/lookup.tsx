// Which Message-ID a relay gave to which message.
import { useState } from 'preact/hooks'
import { call, type Output } from '../../api/client'
import { Card, Copyable, Empty, Form, Page, Select, TableWrap, TextField, theirs, Time } from '../../ui'
import { SentTabs } from './tabs'

type By = 'original_message_id' | 'provider_message_id'

export function Lookup() {
  const [by, setBy] = useState<By>('original_message_id')
  const [id, setID] = useState('')
  const [found, setFound] = useState<Output<'lookup_message'>>()
  return (
    <Page title="Message-ID lookup" heading="Sent" intro="A relay may replace a message’s Message-ID, and replies then refer to the new one. Look up either one to find the other." tabs={<SentTabs current="lookup" />}>
      <Card>
        <Form submit="Look up" disabled={!id.trim()} onSubmit={async () => setFound(await call('lookup_message', by === 'original_message_id' ? { original_message_id: id.trim() } : { provider_message_id: id.trim() }))}>
          <div class="grid-2">
            <Select label="Search by" value={by} onChange={setBy} options={[['original_message_id', 'Original Message-ID'], ['provider_message_id', 'Relay message ID']]} />
            <TextField label="Message-ID" name={by} value={id} onInput={setID} placeholder="<abc@your.domain>" mono />
          </div>
        </Form>
      </Card>
      {found && (
        <Card flush title={found.count > 0 ? 'Results' : undefined}>
          {found.count === 0 ? <Empty icon="search" title="No results">Relay message IDs appear a few minutes after the relay accepts a message, and are kept for 90 days.</Empty> : <Found found={found} />}
        </Card>
      )}
    </Page>
  )
}

function Found({ found }: { found: Output<'lookup_message'> }) {
  return (
    <TableWrap label="Messages">
      <table class="table folds">
        <thead><tr><th>Original Message-ID</th><th>Relay message ID</th><th>Relay</th><th>Recipient</th><th>Relayed</th></tr></thead>
        <tbody>
          {found.data.map((m) => (
            <tr key={m.provider_message_id + m.recipient}>
              <td data-label="Original Message-ID"><Copyable text={m.original_message_id} /></td>
              <td data-label="Relay message ID"><Copyable text={m.provider_message_id} /></td>
              <td data-label="Relay">{m.provider}</td>
              <td data-label="Recipient">{theirs(m.recipient)}</td>
              <td data-label="Relayed"><Time of={m.relayed_at} form="at" /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  )
}

// Sets of user names from which mailboxes are made.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Button, Card, Dialog, Empty, Form, LinkButton, Menu, Page, plural, Show, TextArea, TextField, told } from '../../ui'
import { MailboxTabs } from './words'

type Template = Schemas['Template']

export function Templates() {
  const templates = useQuery('list_templates', {})
  const [editing, setEditing] = useState<Template | 'new'>()
  return (
    <Page title="Templates" heading="Mailboxes" intro="Sets of names that you give to each new domain, such as info, sales and support." tabs={<MailboxTabs current="templates" />}
      actions={can('create_template') && <Button look="primary" icon="plus" onClick={() => setEditing('new')}>Make a template</Button>}>
      <Card flush>
        <Show of={templates}>
          {({ data }) => data.length === 0 ? <Empty icon="copy" title="No template yet">With one, a new domain gets all its mailboxes at once.</Empty> : (
            <div class="rows">{data.map((t) => <Line key={t.id} of={t} onEdit={() => setEditing(t)} />)}</div>
          )}
        </Show>
      </Card>
      {editing && <Edit of={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} />}
    </Page>
  )
}

function Line({ of: t, onEdit }: { of: Template; onEdit: () => void }) {
  const remove = () => ask({
    title: `Delete ${t.name}?`, action: 'Delete', text: 'Mailboxes that were made from it stay.',
    run: async () => {
      await call('delete_template', { template_id: t.id })
      told('The template was deleted.')
    },
  })
  return (
    <div class="line">
      <span class="grow truncate"><strong>{t.name}</strong> <span class="muted">{plural(t.usernames.length, 'name')}</span><br /><span class="muted small truncate">{t.usernames.join(', ')}</span></span>
      <LinkButton small href={`/mailboxes/bulk?template=${t.id}`}>Use it</LinkButton>
      {can('update_template') && (
        <Menu small label={`Actions for ${t.name}`}>
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Change</Button>
          <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
        </Menu>
      )}
    </div>
  )
}

function Edit({ of: t, onClose }: { of?: Template; onClose: () => void }) {
  const [name, setName] = useState(t?.name ?? ''), [text, setText] = useState(t?.usernames.join('\n') ?? '')
  const submit = async () => {
    const body = { name, usernames: text.split(/[\s,;]+/).filter(Boolean) }
    await (t ? call('update_template', { template_id: t.id, ...body }) : call('create_template', body))
    told('Saved.')
    onClose()
  }
  return (
    <Dialog title={t ? t.name : 'Make a template'} onClose={onClose}>
      <Form submit="Save" onSubmit={submit}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="Company" autoFocus />
        <TextArea label="User names" name="usernames" value={text} onInput={setText} rows={7} placeholder={'info\nsales\nsupport'} hint="What stands before the @, one a line, at most 50." mono />
      </Form>
    </Dialog>
  )
}

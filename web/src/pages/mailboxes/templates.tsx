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
    <Page title="Templates" heading="Mailboxes" intro="Sets of usernames for new domains, such as info, sales and support." tabs={<MailboxTabs current="templates" />}
      actions={can('create_template') && <Button look="primary" icon="plus" onClick={() => setEditing('new')}>Create template</Button>}>
      <Card flush>
        <Show of={templates}>
          {({ data }) => data.length === 0 ? <Empty icon="copy" title="No templates yet">A template creates all mailboxes of a new domain at once.</Empty> : (
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
    title: `Delete ${t.name}?`, action: 'Delete', text: 'Mailboxes created from it are kept.',
    run: async () => {
      await call('delete_template', { template_id: t.id })
      told('Template deleted.')
    },
  })
  return (
    <div class="line">
      <span class="grow truncate"><strong>{t.name}</strong><br /><span class="muted small truncate">{plural(t.usernames.length, 'username')}: {t.usernames.join(', ')}</span></span>
      <LinkButton small href={`/mailboxes/bulk?template=${t.id}`}>Use template</LinkButton>
      {can('update_template') && (
        <Menu small label={`Actions for ${t.name}`}>
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Edit</Button>
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
    <Dialog title={t ? t.name : 'Create template'} onClose={onClose}>
      <Form submit={t ? 'Save' : 'Create'} onSubmit={submit} of={[name, text]}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="Company" autoFocus />
        <TextArea label="Usernames" name="usernames" value={text} onInput={setText} rows={7} placeholder={'info\nsales\nsupport'} hint="One per line, without the @ and domain. At most 50." mono />
      </Form>
    </Dialog>
  )
}

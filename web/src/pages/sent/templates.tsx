// Texts with variables that messages are made of.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { ask, Badge, Button, Card, Dialog, Empty, Form, LongList, Menu, Page, TextArea, TextField, Time, told } from '../../ui'
import { SentTabs } from './tabs'

type Template = Schemas['MessageTemplate']

export function MessageTemplates() {
  const pages = usePages('list_message_templates', { limit: 50 }, (t) => t.id)
  const [editing, setEditing] = useState<Template | 'new'>(), [looking, setLooking] = useState<Template>()
  return (
    <Page title="Message templates" heading="Sent" intro="Texts with variables such as {{first_name}}, which the API fills in for each recipient." tabs={<SentTabs current="templates" />}
      actions={can('create_message_template') && <Button look="primary" icon="plus" onClick={() => setEditing('new')}>Create template</Button>}>
      <Card flush>
        <LongList pages={pages} idOf={(t) => t.id} height={60} label="Message templates" row={(t) => <Line of={t} onEdit={() => setEditing(t)} onLook={() => setLooking(t)} onGone={() => pages.drop(new Set([t.id]))} />}
          empty={<Empty icon="copy" title="No templates yet">Send with a template_id to write a message once and fill in names and links for each recipient.</Empty>} />
      </Card>
      {editing && <Edit of={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} onDone={pages.reload} />}
      {looking && <Preview of={looking} onClose={() => setLooking(undefined)} />}
    </Page>
  )
}

function Line({ of: t, onEdit, onLook, onGone }: { of: Template; onEdit: () => void; onLook: () => void; onGone: () => void }) {
  const remove = () => ask({
    title: `Delete ${t.name}?`, action: 'Delete', text: 'Messages that were made of it are kept. Programs that send with it get an error.',
    run: async () => {
      await call('delete_message_template', { id: t.id })
      onGone()
      told('Template deleted.')
    },
  })
  return (
    <div class="line">
      <span class="grow truncate"><strong>{t.name}</strong> <span class="muted">{t.subject}</span><br />
        <span class="small truncate">{t.variables.length === 0 ? <span class="muted">No variables</span> : t.variables.map((v) => <span key={v}><Badge plain>{v}</Badge> </span>)}</span></span>
      <span class="sent-when muted small"><Time of={t.updated_at} form="short" /></span>
      <Button small onClick={onLook}>Preview</Button>
      {can('update_message_template') && (
        <Menu small label={`Actions for ${t.name}`}>
          <Button look="ghost" small icon="pencil" onClick={onEdit}>Edit</Button>
          <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
        </Menu>
      )}
    </div>
  )
}

function Edit({ of: t, onClose, onDone }: { of?: Template; onClose: () => void; onDone: () => Promise<void> }) {
  const [name, setName] = useState(t?.name ?? ''), [subject, setSubject] = useState(t?.subject ?? ''), [text, setText] = useState(t?.text ?? ''), [html, setHtml] = useState(t?.html ?? '')
  const submit = async () => {
    if (t) await call('update_message_template', { id: t.id, name, subject, text: text || null, html: html || null })
    else await call('create_message_template', { name, subject, text, html })
    told('Saved.')
    onClose()
    await onDone()
  }
  return (
    <Dialog wide title={t ? t.name : 'Create template'} onClose={onClose}>
      <Form submit={t ? 'Save' : 'Create'} onSubmit={submit} of={[name, subject, text, html]}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="Welcome" autoFocus />
        <TextField label="Subject" name="subject" value={subject} onInput={setSubject} placeholder="Welcome, {{first_name}}" />
        <TextArea label="Text" name="text" value={text} onInput={setText} rows={7} placeholder="Hello {{first_name}}," />
        <TextArea label="HTML" name="html" value={html} onInput={setHtml} rows={7} mono hint="Leave empty to send text only. Values of variables are escaped." />
      </Form>
    </Dialog>
  )
}

function Preview({ of: t, onClose }: { of: Template; onClose: () => void }) {
  const [values, setValues] = useState<Record<string, string>>(Object.fromEntries(t.variables.map((v) => [v, ''])))
  const [made, setMade] = useState<Schemas['MessagePreview']>()
  const submit = async () => setMade(await call('preview_message_template', { id: t.id, variables: values }))
  return (
    <Dialog wide title={`Preview ${t.name}`} onClose={onClose}>
      <Form submit="Preview" onSubmit={submit} of={values} optional>
        {t.variables.map((v) => <TextField key={v} label={v} name={'variables.' + v} value={values[v]!} onInput={(text) => setValues({ ...values, [v]: text })} />)}
      </Form>
      {made && (
        <div class="stack">
          <strong>{made.subject || '(no subject)'}</strong>
          {made.text && <pre class="sent-reply">{made.text}</pre>}
          {made.html && <pre class="sent-reply">{made.html}</pre>}
        </div>
      )}
    </Dialog>
  )
}

// Credentials of mailboxes as a file for other programs.
import { useState } from 'preact/hooks'
import { call, type Input, type Output } from '../../api/client'
import { useQuery } from '../../api/query'
import { Check, Dialog, Done, Form, LinkButton, Notice, plural, Select, Show, TextArea, Time } from '../../ui'

type Format = NonNullable<Input<'create_export'>['format']>

/** Exports the mailboxes of the ids, or those that are chosen. */
export function Export({ ids, onClose }: { ids: string[]; onClose: () => void }) {
  const formats = useQuery('list_export_formats', {})
  const [format, setFormat] = useState<Format>('default')
  const [which, setWhich] = useState<'ids' | 'all' | 'domains'>(ids.length > 0 ? 'ids' : 'all')
  const [domains, setDomains] = useState('')
  const [lines, setLines] = useState('')
  const [app, setApp] = useState(false)
  const [made, setMade] = useState<Output<'create_export'>>()
  const submit = async () => {
    const what = which === 'all' ? { all: true } : which === 'ids' ? { user_ids: ids } : { domains: domains.split(/[\s,]+/).filter(Boolean) }
    setMade(await call('create_export', { format, ...(format === 'columns' ? { columns: columnsOf(lines) } : {}), app_passwords: app, ...what }))
  }
  return (
    <Dialog title="Export mailboxes" onClose={onClose}>
      {made ? <Made of={made as Made} /> : <Show of={formats} lines={3}>{(f) => (
        <Form submit="Create export" onSubmit={submit} of={[domains, lines]} optional>
          <Notice tone="warn">The file contains passwords. Store it safely and delete it when done.</Notice>
          <Select label="Format" value={format} onChange={setFormat} options={f.data.map(({ id, name }) => [id as Format, name] as const)} hint={f.data.find(({ id }) => id === format)?.columns.join(', ')} />
          {format === 'columns' && <TextArea label="Columns" hint="One a line, as header = value. In a value, {email} and the other names above stand for what the mailbox has." name="columns" value={lines} onInput={setLines} placeholder={'Login = {smtp_username}\nServer = {smtp_host}:{smtp_port}'} rows={5} />}
          <Select label="Mailboxes" value={which} onChange={setWhich} options={[...(ids.length > 0 ? [['ids', plural(ids.length, 'selected mailbox', 'selected mailboxes')] as const] : []), ['all', 'All mailboxes'], ['domains', 'All mailboxes of some domains']]} />
          <Check label="Create app passwords for it" hint="Each mailbox gets a password for this file alone, which you can revoke. Otherwise the file has the mailboxes’ own passwords, without those that people chose themselves." checked={app} onChange={setApp} />
          {which === 'domains' && <TextArea label="Domains" name="domains" value={domains} onInput={setDomains} placeholder="example.com, example.org" rows={2} />}
        </Form>
      )}</Show>}
    </Dialog>
  )
}

/** Reads columns that stand one a line as "header = value". */
function columnsOf(lines: string) {
  return lines.split('\n').filter((line) => line.trim()).map((line) => {
    const [header = '', ...value] = line.split('=')
    return { header: header.trim(), value: value.join('=').trim() }
  })
}

interface Made { count: number; filename: string; download_url: string; expires_at: string | null }

function Made({ of: e }: { of: Made }) {
  const [taken, setTaken] = useState(false)
  return (
    <div class="stack">
      <p>{plural(e.count, 'mailbox', 'mailboxes')} in <code>{e.filename}</code>. The link works once and expires on <Time of={e.expires_at} form="at" />.</p>
      <div class="form-actions" onClick={() => setTimeout(() => setTaken(true), 300)}>
        {taken ? <span class="muted">Downloaded.</span> : <LinkButton look="primary" icon="download" href={e.download_url} download>Download</LinkButton>}
      </div>
      {taken && <Done />}
    </div>
  )
}

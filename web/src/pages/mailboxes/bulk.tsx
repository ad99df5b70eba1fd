// Making many mailboxes at once: from generated names, a template, or a pasted list.
import { useEffect, useState } from 'preact/hooks'
import { call, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { wordsOf } from '../../api/wording'
import { params } from '../../router'
import { Badge, Button, Card, Empty, Form, LinkButton, Notice, Page, plural, Select, Show, TextArea, TextField } from '../../ui'
import { csv, wantedOf, type Wanted } from './csv'
import { DomainChoice } from './domains'
import { MailboxTabs, passwordAgain } from './words'

type Result = Schemas['BulkCreated']

const ways = { list: 'List', names: 'Generated names', template: 'Template' } as const
type Way = keyof typeof ways

const most = 100 // of mailboxes that one request makes

/**
 * Makes mailboxes, some at a time. Where a request fails, those before it are given still, with
 * their passwords.
 */
async function makeAll(domain: string, wanted: Wanted[]): Promise<Result> {
  const whole: Result = { domain, created: 0, failed: 0, users: [], errors: [], job_id: null }
  for (let i = 0; i < wanted.length; i += most) {
    try {
      const part = await call('create_email_users_bulk', { domain, users: wanted.slice(i, i + most) }) as Result
      whole.created += part.created
      whole.failed += part.failed
      whole.users.push(...part.users)
      whole.errors.push(...part.errors.map((e) => ({ ...e, index: e.index + i })))
    } catch (error) {
      if (whole.created === 0) throw error
      const { message } = error as Error
      const left = wanted.slice(i)
      whole.failed += left.length
      whole.errors.push(...left.map(({ username }, n) => ({ index: i + n, username, code: '', message })))
      break
    }
  }
  return whole
}

export function Bulk() {
  const [way, setWay] = useState<Way>(params.value.get('template') ? 'template' : 'list')
  const [domain, setDomain] = useState(params.value.get('domain') ?? '')
  const [wanted, setWanted] = useState<Wanted[]>([])
  const [result, setResult] = useState<Result>()
  const make = async () => setResult(await makeAll(domain, wanted))
  return (
    <Page title="Bulk create" heading="Mailboxes" tabs={<MailboxTabs current="bulk" />}>
      {result ? <Results of={result} onAgain={() => { setResult(undefined); setWanted([]) }} /> : (
          <div class="grid-2">
            <Card title="Source">
              <div class="stack">
                <DomainChoice value={domain} onChange={setDomain} />
                <div class="chips" role="group" aria-label="Source">
                  {(Object.keys(ways) as Way[]).map((w) => <Button key={w} small look={w === way ? 'plain' : 'ghost'} aria-pressed={w === way} onClick={() => { setWay(w); setWanted([]) }}>{ways[w]}</Button>)}
                </div>
                {way === 'list' && <FromList onChange={setWanted} />}
                {way === 'names' && <FromNames domain={domain} onChange={setWanted} />}
                {way === 'template' && <FromTemplate onChange={setWanted} />}
              </div>
            </Card>
            <Preview wanted={wanted} domain={domain} onChange={setWanted} onMake={make} />
          </div>
        )}
    </Page>
  )
}

function FromList({ onChange }: { onChange: (wanted: Wanted[]) => void }) {
  const [text, setText] = useState('')
  return (
    <TextArea label="Names or CSV" value={text} onInput={(t) => { setText(t); onChange(wantedOf(t)) }} rows={9} mono placeholder={'username,name,password\nanna,Anna Rossi\nben,Ben Okri'}
      hint="One mailbox per line: username or address, display name, password. Cells pasted from a spreadsheet work too. Leave out the password to generate one." />
  )
}

function FromNames({ domain, onChange }: { domain: string; onChange: (wanted: Wanted[]) => void }) {
  const [count, setCount] = useState('10'), [style, setStyle] = useState('first.last'), [locale, setLocale] = useState('')
  const submit = async () => {
    const { data } = await call('generate_names', { count: Number(count), domain: domain || undefined, styles: [style as 'first'], locale: locale || undefined })
    onChange(data.map((n) => ({ username: n.username, name: n.name })))
  }
  return (
    <Form submit="Generate names" onSubmit={submit}>
      <div class="grid-3">
        <TextField label="Number of names" name="count" type="number" min={1} max={100} value={count} onInput={setCount} />
        <Select label="Style" name="styles" value={style} onChange={setStyle} options={[['first.last', 'anna.rossi'], ['first', 'anna'], ['firstlast', 'annarossi'], ['f.last', 'a.rossi'], ['flast', 'arossi'], ['first.l', 'anna.r']]} />
        <TextField label="Language" name="locale" value={locale} onInput={setLocale} placeholder="en" />
      </div>
    </Form>
  )
}

function FromTemplate({ onChange }: { onChange: (wanted: Wanted[]) => void }) {
  const templates = useQuery('list_templates', {})
  const [id, setID] = useState(params.value.get('template') ?? '')
  const all = templates.data?.data
  useEffect(() => {
    const t = all?.find((t) => t.id === id) ?? all?.[0]
    if (!t) return
    setID(t.id)
    onChange(t.usernames.map((username) => ({ username })))
  }, [id, all?.length])
  return (
    <Show of={templates} lines={1}>
      {({ data }) => data.length === 0 ? <p class="muted">No templates yet. <a href="/mailboxes/templates">Create a template</a>.</p>
        : <Select label="Template" value={id} onChange={setID} options={data.map((t) => [t.id, `${t.name} (${t.usernames.length})`] as const)} />}
    </Show>
  )
}

const wellFormed = /^(?!.*\.\.)[a-z0-9._-]{1,64}$/

/** What is wrong with a wanted mailbox, as far as it can be told before it is made. */
function fault(w: Wanted, all: Wanted[]): string | undefined {
  if (!wellFormed.test(w.username)) return 'invalid username'
  if (all.filter((o) => o.username === w.username).length > 1) return 'duplicate'
  if (w.password && (w.password.length < 8 || w.password.length > 128)) return 'password must be 8–128 characters'
}

function Preview({ wanted, domain, onChange, onMake }: { wanted: Wanted[]; domain: string; onChange: (wanted: Wanted[]) => void; onMake: () => Promise<void> }) {
  const faults = wanted.map((w) => fault(w, wanted))
  const bad = faults.filter(Boolean).length
  return (
    <Card title="Preview" note={wanted.length > 0 ? plural(wanted.length, 'mailbox', 'mailboxes') : undefined}>
      {wanted.length === 0 ? <Empty icon="mail" title="Nothing to preview yet">The mailboxes to create appear here.</Empty> : (
        <Form submit={`Create ${plural(wanted.length, 'mailbox', 'mailboxes')}`} onSubmit={onMake} disabled={bad > 0 || !domain}
          actions={bad > 0 && <Button onClick={() => onChange(wanted.filter((_, i) => !faults[i]))}>Skip {plural(bad, 'invalid row')}</Button>}>
          <div class="mailboxes-preview" tabIndex={0} role="region" aria-label="Preview">
            <table class="table">
              <thead><tr><th>Address</th><th>Display name</th><th>Password</th></tr></thead>
              <tbody>
                {wanted.slice(0, 500).map((w, i) => (
                  <tr key={i}><td>{w.username}<span class="muted">@{domain}</span>{faults[i] && <div><Badge tone="bad">{faults[i]}</Badge></div>}</td><td>{w.name}</td><td class="muted">{w.password ? 'yours' : 'generated'}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
        </Form>
      )}
    </Card>
  )
}

function Results({ of: r, onAgain }: { of: Result; onAgain: () => void }) {
  const [href, setHref] = useState<string>()
  useEffect(() => {
    const rows = r.users.map((u) => [u.email, u.name, u.password, u.imap_host, String(u.imap_port), u.smtp_host, String(u.smtp_port)])
    const url = URL.createObjectURL(new Blob([csv([['email', 'name', 'password', 'imap_host', 'imap_port', 'smtp_host', 'smtp_port'], ...rows])], { type: 'text/csv' }))
    setHref(url)
    return () => URL.revokeObjectURL(url)
  }, [r])
  return (
    <Card title={`${plural(r.created, 'mailbox', 'mailboxes')} created`} flush actions={
      <>
        {r.created > 0 && href && <LinkButton look="primary" icon="download" href={href} download>Download with passwords</LinkButton>}
        <Button onClick={onAgain}>Create more</Button>
        <LinkButton look="ghost" href="/mailboxes">All mailboxes</LinkButton>
      </>
    }>
      <div class="stack" style={{ padding: '0 1.1rem 1.1rem' }}>
        {r.created > 0 && <Notice>Save the passwords. {passwordAgain()}</Notice>}
        {r.failed > 0 && <Notice tone="bad" title={`${plural(r.failed, 'mailbox', 'mailboxes')} could not be created.`}>{r.errors.slice(0, 20).map((e) => <div key={e.index}><strong>{e.username}</strong>: {wordsOf(e)}</div>)}</Notice>}
        {r.created > 0 && (
          <div class="mailboxes-preview" tabIndex={0} role="region" aria-label="Created mailboxes">
            <table class="table"><thead><tr><th>Address</th><th>Password</th></tr></thead><tbody>{r.users.map((u) => <tr key={u.id}><td>{u.email}</td><td><code>{u.password}</code></td></tr>)}</tbody></table>
          </div>
        )}
      </div>
    </Card>
  )
}

// The entries of lists in the settings: relays, destinations and registrars.
import { useState } from 'preact/hooks'
import { ApiError, call, type Input, type Schemas } from '../../api/client'
import { ask, Badge, Button, Card, Dialog, Facts, Form, Menu, Notice, Select, TextField, told } from '../../ui'
import { choiceOf, SecretField, SecretState, ValueField } from './setting-field'
import { draftOf, entryOf, isFixed, keyOf, nameOf, originOf, valueOf, written, type Draft, type Setting, type Value } from './setting'

/** An entry with the settings that it has. */
interface Entry { name: string; settings: Setting[] }

/** A setting of an entry, as the form of the entry has it. */
interface EntryField {
  name: string
  label: string
  type: string
  hint?: string
  /** What holds while nothing is given. */
  usual?: string | boolean
  placeholder?: (kind: string) => string | undefined
  /** What a choice of nothing is called, where that is possible. */
  none?: string
  /** For relays of which kinds it is. */
  kinds?: string[]
  required?: boolean
}

const hosts: Record<string, string> = { ses: 'email-smtp.us-east-1.amazonaws.com', postmark: 'smtp.postmarkapp.com', mailgun: 'smtp.mailgun.org', sendgrid: 'smtp.sendgrid.net', custom: 'smtp.example.com' }

const relayFields: EntryField[] = [
  { name: 'kind', label: 'Provider', type: 'ses|postmark|mailgun|sendgrid|custom', usual: 'custom' },
  { name: 'host', label: 'Host', type: 'text', placeholder: (kind) => hosts[kind], required: true },
  { name: 'port', label: 'Port', type: 'integer', usual: '587' },
  { name: 'tls', label: 'TLS', type: 'starttls|tls|none', usual: 'starttls' },
  { name: 'username', label: 'Username', type: 'text' },
  { name: 'password', label: 'Password', type: 'secret' },
  { name: 'region', label: 'Region', type: 'text', placeholder: () => 'us-east-1', kinds: ['ses'], required: true },
  { name: 'topic_arn', label: 'SNS topic', type: 'text', hint: 'The topic to which the provider’s notices of bounces and complaints come.', kinds: ['ses'] },
  { name: 'webhook_secret', label: 'Webhook secret', type: 'secret', hint: 'Proves that notices of bounces and complaints are the provider’s.', kinds: ['postmark', 'mailgun', 'sendgrid'] },
  { name: 'return_path', label: 'Return path', type: 'sender|verp', none: 'Usual for the provider' },
  { name: 'dkim', label: 'Sign with DKIM', type: 'boolean', hint: 'If this is off, the provider signs.', usual: true },
  { name: 'id_pattern', label: 'Message-ID pattern', type: 'text', hint: 'A regular expression that finds the provider’s Message-ID in its answer.', kinds: ['custom'] },
  { name: 'id_template', label: 'Message-ID template', type: 'text', placeholder: () => '<{1}@relay.example>', kinds: ['custom'] },
  { name: 'control_headers', label: 'Control headers', type: 'list', hint: 'Header fields that are commands to the provider: how their names begin, one per line. Mail of users never has them.' },
]

const destinationFields: EntryField[] = [
  { name: 'connections', label: 'Connections at a time', type: 'integer', hint: '0: no limit.' },
  { name: 'per_minute', label: 'Messages a minute', type: 'integer', hint: '0: no limit.' },
  { name: 'pause', label: 'Pause', type: 'duration', hint: 'How long nothing is sent after an answer that asks for less mail.' },
  { name: 'relay', label: 'Relay', type: 'relay', hint: 'Takes all mail for this operator.' },
]

const registrarFields: Record<string, EntryField[]> = {
  namecom: [{ name: 'username', label: 'Username', type: 'text', required: true }, { name: 'token', label: 'API token', type: 'secret', required: true }],
  cloudflare: [
    { name: 'account_id', label: 'Account ID', type: 'text', required: true },
    { name: 'token', label: 'API token', type: 'secret', hint: 'It needs the permission Account: Registrar: Domains Edit.', required: true },
  ],
}

const registrars: Record<string, string> = { namecom: 'name.com', cloudflare: 'Cloudflare' }

interface Kind {
  one: string
  add?: string
  /** Whether test_settings can try an entry. */
  tested: boolean
  empty?: string
  fields: (entry: string) => EntryField[]
  title: (entry: string) => string
}

const kinds: Record<string, Kind> = {
  relay: { one: 'relay', add: 'Add relay', tested: true, empty: 'No relays yet. Without one, mail goes straight to the servers of its recipients.', fields: () => relayFields, title: (name) => name },
  destination: { one: 'destination', add: 'Add destination', tested: false, empty: 'No destinations yet.', fields: () => destinationFields, title: (name) => name },
  registrar: { one: 'registrar', tested: true, fields: (name) => registrarFields[name]!, title: (name) => registrars[name]! },
}

/** The entries of a list among settings, in their order. */
export function entriesOf(list: string, settings: Setting[]): Entry[] {
  const out: Entry[] = []
  for (const s of settings) {
    const of = entryOf(s.key)
    if (of?.list !== list) continue
    let entry = out.find((e) => e.name === of.entry)
    if (!entry) out.push(entry = { name: of.entry, settings: [] })
    entry.settings.push(s)
  }
  return out
}

function valueIn(e: Entry | undefined, name: string): Value {
  const s = e?.settings.find((s) => entryOf(s.key)!.name === name)
  return s ? (s.value as Value) : null
}

/** Whether the entry has something; a registrar that was not set up has nothing. */
function isSet(e: Entry): boolean {
  return e.settings.some((s) => s.source !== 'default' || s.ignored !== null)
}

/** What the file sets of an entry: then all of it is the file's. */
function fixedBy(e: Entry): Setting | undefined {
  return e.settings.filter(isFixed).sort((a, b) => (a.line ?? 0) - (b.line ?? 0))[0]
}

interface ListProps { list: string; title: string; note?: string; shown: Setting[]; all: Setting[]; reload: () => Promise<void>; filtered: boolean }

/** A list with what can be done to its entries. */
export function EntryList({ list, title, note, shown, all, reload, filtered }: ListProps) {
  const kind = kinds[list]!
  const [open, setOpen] = useState<Entry | 'new'>()
  const entries = entriesOf(list, shown).map((e) => entriesOf(list, all).find((whole) => whole.name === e.name)!)
  return (
    <Card flush title={title} note={note} actions={kind.add && <Button icon="plus" onClick={() => setOpen('new')}>{kind.add}</Button>}>
      {entries.length === 0 ? <p class="settings-none muted">{filtered ? 'None of them matches.' : kind.empty}</p> : (
        <ul class="rows settings-entries">
          {entries.map((e) => <Row key={e.name} list={list} of={e} first={list === 'relay' && entriesOf(list, all)[0]!.name === e.name} onOpen={() => setOpen(e)} reload={reload} />)}
        </ul>
      )}
      {open && <EntryDialog list={list} of={open === 'new' ? undefined : open} all={all} onClose={() => setOpen(undefined)} reload={reload} />}
    </Card>
  )
}

function Row({ list, of: e, first, onOpen, reload }: { list: string; of: Entry; first: boolean; onOpen: () => void; reload: () => Promise<void> }) {
  const kind = kinds[list]!, fixed = fixedBy(e), name = kind.title(e.name), key = keyOf(list, e.name)
  const ignored = e.settings.find((s) => s.ignored)?.ignored
  const remove = () => ask({
    title: `Delete the ${kind.one} ${name}?`, action: 'Delete',
    text: list === 'relay' ? 'Mail that waits for it leaves by another way.' : list === 'registrar' ? 'Its credentials are deleted. Domains that were bought there stay.' : 'Mail to it then goes as Mailstead’s own table says.',
    run: async () => {
      await call('update_settings', { values: { [key]: null } })
      await reload()
      told(`The ${kind.one} was deleted.`)
    },
  })
  return (
    <li class="settings-entry">
      <div class="line">
        <div class="grow">
          <div class="row"><strong>{name}</strong>{first && <Badge plain tone="info">default</Badge>}{ignored && <Badge tone="warn">Ignored</Badge>}</div>
          <div class="muted small">{aboutOf(list, e)}</div>
          <div class="muted small">{isSet(e) ? fixed ? originOf(fixed) : 'Set here' : 'Not set up'}</div>
          {ignored && <div class="small">{ignored}</div>}
        </div>
        {fixed ? <Button small onClick={onOpen} aria-label={`Show ${name}`}>Show</Button> : isSet(e) ? (
          <Menu label={`Actions for ${name}`}>
            <Button look="ghost" small icon="pencil" onClick={onOpen}>Edit</Button>
            <Button look="ghost" small icon="trash" onClick={remove}>Delete</Button>
          </Menu>
        ) : <Button small onClick={onOpen} aria-label={`Set up ${name}`}>Set up</Button>}
      </div>
      {kind.tested && isSet(e) && !ignored && <div class="settings-test"><Test label={`Test ${name}`} of={{ key }} small /></div>}
    </li>
  )
}

/** An entry in a few words. */
function aboutOf(list: string, e: Entry): string {
  const said = (name: string) => written(valueIn(e, name)).join(', ')
  switch (list) {
    case 'relay':
      return [`${said('host')}:${said('port')}`, choiceOf(said('kind')), said('username') && `as ${said('username')}`].filter(Boolean).join(' · ')
    case 'destination':
      return [said('connections') && `${said('connections')} connections`, said('per_minute') && `${said('per_minute')} messages a minute`, said('pause') && `pause ${said('pause')}`, said('relay') && `through ${said('relay')}`].filter(Boolean).join(' · ')
  }
  return said('username') || said('account_id')
}

/** A button that tries something as it is, or as it would be, and what came of it. */
export function Test({ label, text = 'Test', of, small }: { label: string; text?: string; of: Input<'test_settings'>; small?: boolean }) {
  const now = JSON.stringify(of)
  const [result, setResult] = useState<{ of: string; is: Schemas['TestResult'] }>()
  const run = async () => {
    setResult(undefined)
    setResult({ of: now, is: await call('test_settings', of) })
  }
  const is = result?.of === now ? result.is : undefined
  return (
    <div class="stack-tight">
      <div><Button small={small} icon="bolt" aria-label={label} onClick={run}>{text}</Button></div>
      <div role="status">{is && <Notice tone={is.ok ? 'ok' : 'bad'}>{is.message}{is.mend && ' ' + is.mend}</Notice>}</div>
    </div>
  )
}

interface DialogProps { list: string; of?: Entry; all: Setting[]; onClose: () => void; reload: () => Promise<void> }

function EntryDialog(props: DialogProps) {
  const { list, of: e, onClose } = props
  const kind = kinds[list]!, fixed = e && fixedBy(e)
  const title = !e ? kind.add! : fixed ? kind.title(e.name) : `${isSet(e) ? 'Edit' : 'Set up'} ${kind.title(e.name)}`
  return (
    <Dialog title={title} wide={list === 'relay'} onClose={onClose}>
      {fixed ? (
        <div class="stack">
          <Notice>{originOf(fixed)}. Change it there, then reload the settings file.</Notice>
          <Facts of={e.settings.map((s) => [kind.fields(e.name).find((f) => f.name === entryOf(s.key)!.name)?.label ?? nameOf(s.key), s.secret ? <SecretState set={s.value === true} /> : written(s.value as Value).map((text) => s.type.includes('|') ? choiceOf(text) : text).join(', ')])} />
          <div class="form-actions"><Button onClick={onClose}>Close</Button></div>
        </div>
      ) : <EntryForm {...props} />}
    </Dialog>
  )
}

const names: Record<string, { label: string; hint: string; placeholder: string; form: RegExp; wrong: string }> = {
  relay: { label: 'Name', hint: 'Part of the URL for the provider’s notices. Can’t be changed later.', placeholder: 'postmark', form: /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, wrong: 'Use 1 to 64 letters, digits, dots, hyphens and underscores.' },
  destination: { label: 'Operator', hint: 'The domain that the operator’s mail servers are in.', placeholder: 'google.com', form: /^[^\s"]+\.[^\s"]+$/, wrong: 'Enter a domain, such as google.com.' },
}

const places = ['host', 'port', 'kind', 'tls'] // a secret is for one place: where one of these changes, it is not sent on

function EntryForm({ list, of: e, all, onClose, reload }: DialogProps) {
  const kind = kinds[list]!, naming = names[list]
  const [name, setName] = useState(e?.name ?? ''), [drafts, setDrafts] = useState<Record<string, Draft>>({})
  const fields = kind.fields(name)
  const before = (f: EntryField) => {
    const value = valueIn(e, f.name)
    return value === null && f.usual !== undefined ? f.usual : draftOf(f.type, value)
  }
  const now = (f: EntryField) => drafts[f.name] ?? before(f)
  const set = (f: EntryField, draft: Draft | undefined) => setDrafts(({ [f.name]: _, ...rest }) => draft === undefined || draft === before(f) && f.type !== 'secret' ? rest : { ...rest, [f.name]: draft })
  const provider = list === 'relay' ? String(now(fields[0]!)) : ''
  const shown = fields.filter((f) => !f.kinds || f.kinds.includes(provider))
  const moved = e !== undefined && places.some((place) => place in drafts)
  const again = (f: EntryField) => moved && f.type === 'secret' && valueIn(e, f.name) === true && !drafts[f.name]
  const missing = (f: EntryField) => f.required && (f.type === 'secret' ? valueIn(e, f.name) !== true && !drafts[f.name] : now(f) === '')
  const known = !e && entriesOf(list, all).some((other) => other.name === name)
  const values: Record<string, Value> = {}
  for (const f of shown) {
    const key = keyOf(list, name, f.name)
    if (f.name in drafts && (f.type !== 'secret' || drafts[f.name])) values[key] = valueOf(f.type, drafts[f.name]!) // an empty secret keeps the one that is there
    else if (!e && f.name === 'kind') values[key] = provider
    if (f.name === 'password' && drafts['username'] === '' && valueIn(e, 'password')) values[key] = null // there is no log-in any more
  }
  const ready = Object.keys(values).length > 0 && name.trim() !== '' && !known && !shown.some((f) => missing(f) || again(f))
  const save = async () => {
    if (naming && !naming.form.test(name)) throw new ApiError(400, { code: 'validation_error', message: '', details: [{ field: 'name', code: 'invalid', message: naming.wrong }] })
    await call('update_settings', { values })
    await reload()
    told(e ? 'Saved. The changes are in force.' : `The ${kind.one} was added.`)
    onClose()
  }
  const relays = entriesOf('relay', all).map((r) => [r.name, r.name] as const)
  return (
    <Form submit={e ? 'Save' : kind.add!} of={[name, drafts]} onSubmit={save} disabled={!ready}>
      {!e && naming && <TextField label={naming.label} name="name" value={name} onInput={setName} hint={naming.hint} placeholder={naming.placeholder} error={known ? `There is a ${kind.one} of this name already.` : undefined} mono autoFocus />}
      <div class={list === 'relay' ? 'grid-2' : 'stack'}>
        {shown.map((f) => {
          const key = keyOf(list, name, f.name), common = { label: f.label, name: key, hint: f.hint }
          if (f.type === 'secret') return <SecretField key={f.name} {...common} set={valueIn(e, f.name) === true} draft={drafts[f.name]} onChange={(draft) => set(f, draft)} error={again(f) ? `Enter it again: the ${kind.one} has another host, port, provider or TLS.` : undefined} />
          if (f.type === 'relay') return <Select key={f.name} {...common} value={String(now(f))} onChange={(draft) => set(f, draft)} options={[['', 'None'], ...relays]} />
          return <ValueField key={f.name} {...common} type={f.type} value={now(f)} onChange={(draft) => set(f, draft)} placeholder={f.placeholder?.(provider)} none={f.none} />
        })}
      </div>
      {kind.tested && ready && <Test label={`Test ${kind.title(name) || 'it'} as entered`} text="Test as entered" of={{ key: keyOf(list, name), values }} />}
    </Form>
  )
}

// What a mailbox does with mail by itself: its rules, and its automatic reply.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, Check, Dialog, Form, IconButton, Menu, Select, Show, TextArea, TextField, told } from '../../ui'

type Rule = Schemas['Rule']
type Condition = Schemas['ConditionInput']
type Action = Schemas['ActionInput']
type Field = Condition['field']
type Op = Condition['op']
type Kind = Action['type']

/** What a rule begins with: that of a message, or nothing. */
export interface Draft { name: string; conditions: Condition[]; actions: Action[] }

const fields: [Field, string][] = [['from', 'From'], ['to', 'To'], ['cc', 'Cc'], ['subject', 'Subject'], ['body', 'Text'], ['header', 'Header field'], ['list_id', 'Mailing list'], ['size', 'Size in bytes'], ['spam_score', 'Spam score']]
const texts: [Op, string][] = [['contains', 'contains'], ['is', 'is'], ['matches', 'matches the expression'], ['exists', 'is there']]
const numbers: [Op, string][] = [['above', 'is above'], ['below', 'is below'], ['is', 'is']]
const kinds: [Kind, string][] = [
  ['move', 'Move to'], ['copy', 'Copy to'], ['mark_read', 'Mark as read'], ['flag', 'Star'], ['forward', 'Forward to'], ['reply', 'Reply with'],
  ['discard', 'Delete for good'], ['reject', 'Refuse, saying'], ['webhook', 'Send an event'], ['stop', 'Look at no more rules'],
]
const folders = [['archive', 'Archive'], ['junk', 'Junk'], ['trash', 'Trash'], ['inbox', 'Inbox']] as const
const valued: Kind[] = ['move', 'copy', 'forward', 'reply', 'reject', 'webhook']

const isNumber = (field: Field) => field === 'size' || field === 'spam_score'
const nameIn = <T extends string>(list: readonly (readonly [T, string])[], of: T) => list.find(([id]) => id === of)?.[1] ?? of

/** A rule in one line of words. */
function said(r: Rule): string {
  const when = r.conditions.map((c) => `${c.field === 'header' ? c.header : nameIn(fields, c.field)} ${c.not ? 'not: ' : ''}${nameIn(isNumber(c.field) ? numbers : texts, c.op)} ${c.value ?? ''}`.trim())
  const then = r.actions.map((a) => `${nameIn(kinds, a.type)} ${a.type === 'move' || a.type === 'copy' ? nameIn(folders, a.value as 'inbox') : a.value ?? ''}`.trim())
  return `${when.length === 0 ? 'Every message' : when.join(r.match === 'any' ? ' or ' : ' and ')} → ${then.join(', ')}`
}

export function Rules({ userID }: { userID: string }) {
  const list = useQuery('list_rules', { user_id: userID })
  const [editing, setEditing] = useState<Rule | 'new'>(), [testing, setTesting] = useState(false)
  const may = can('create_rule')
  const change = async (r: Rule, to: { enabled?: boolean; position?: number }) => {
    await call('update_rule', { user_id: userID, rule_id: r.id, ...to })
    await list.reload()
  }
  const remove = (r: Rule) => ask({
    title: `Delete the rule ${r.name}?`, action: 'Delete', text: 'Mail that it has filed stays where it is.',
    run: async () => {
      await call('delete_rule', { user_id: userID, rule_id: r.id })
      await list.reload()
      told('Rule deleted.')
    },
  })
  return (
    <Card title="Rules" note="What is done with mail as it arrives, in this order." actions={(
      <>
        {list.data && list.data.data.length > 0 && <Button small onClick={() => setTesting(true)}>Try on stored mail</Button>}
        {may && <Button small icon="plus" onClick={() => setEditing('new')}>New rule</Button>}
      </>
    )}>
      <Show of={list} lines={2}>
        {({ data }) => data.length === 0 ? <p class="muted">No rules yet.</p> : (
          <div class="stack-tight">
            {data.map((r) => (
              <div key={r.id} class="row-between mailboxes-credential">
                <span class="grow">
                  <strong>{r.name}</strong> {!r.enabled && <Badge plain>off</Badge>}<br />
                  <span class="muted small mailboxes-rule">{said(r)}</span>
                </span>
                {may && (
                  <Menu small label={`Actions for ${r.name}`}>
                    <Button look="ghost" small icon="pencil" onClick={() => setEditing(r)}>Edit</Button>
                    <Button look="ghost" small icon={r.enabled ? 'pause' : 'play'} onClick={() => change(r, { enabled: !r.enabled })}>{r.enabled ? 'Turn off' : 'Turn on'}</Button>
                    {r.position > 0 && <Button look="ghost" small icon="back" onClick={() => change(r, { position: r.position - 1 })}>Move up</Button>}
                    {r.position < data.length - 1 && <Button look="ghost" small icon="down" onClick={() => change(r, { position: r.position + 1 })}>Move down</Button>}
                    <Button look="ghost" small icon="trash" onClick={() => remove(r)}>Delete</Button>
                  </Menu>
                )}
              </div>
            ))}
          </div>
        )}
      </Show>
      {editing && <EditRule userID={userID} of={editing === 'new' ? undefined : editing} onClose={() => setEditing(undefined)} onDone={list.reload} />}
      {testing && list.data && <Try userID={userID} rules={list.data.data} onClose={() => setTesting(false)} />}
    </Card>
  )
}

/** The dialog that makes or changes a rule. */
export function EditRule({ userID, of: r, draft, onClose, onDone }: { userID: string; of?: Rule; draft?: Draft; onClose: () => void; onDone?: () => Promise<unknown> }) {
  const [name, setName] = useState(r?.name ?? draft?.name ?? ''), [match, setMatch] = useState(r?.match ?? 'all')
  const [conditions, setConditions] = useState<Condition[]>(r?.conditions.map(({ value, ...c }) => ({ ...c, ...(value !== null && { value }) })) ?? draft?.conditions ?? [{ field: 'from', op: 'contains', value: '' }])
  const [actions, setActions] = useState<Action[]>(r?.actions.map(({ type, value }) => ({ type, value: value ?? undefined })) ?? draft?.actions ?? [{ type: 'move', value: 'archive' }])
  const own = useQuery('list_folders', { user_id: userID })
  const places: (readonly [string, string])[] = [...folders, ...(own.data?.data ?? []).filter((f) => f.role === null).map((f): [string, string] => [f.name, f.name])]
  const put = <T,>(list: T[], n: number, to: T) => list.map((was, i) => (i === n ? to : was))
  const submit = async () => {
    const form = { name, match, conditions, actions: actions.map(({ type, value }) => (value ? { type, value } : { type })) }
    if (r) await call('update_rule', { user_id: userID, rule_id: r.id, ...form })
    else await call('create_rule', { user_id: userID, ...form })
    await onDone?.()
    told('Rule saved. It is used for mail that arrives from now on.')
    onClose()
  }
  return (
    <Dialog title={r ? r.name : 'New rule'} onClose={onClose} wide>
      <Form submit="Save rule" onSubmit={submit} disabled={name.trim() === '' || actions.length === 0}>
        <TextField label="Name" name="name" value={name} onInput={setName} maxLength={100} autoFocus />
        <fieldset class="stack-tight people-fieldset">
          <legend class="label">If</legend>
          {conditions.length > 1 && <Select label="Which conditions" hideLabel name="match" value={match} onChange={setMatch} options={[['all', 'all of these fit'], ['any', 'one of these fits']]} />}
          {conditions.length === 0 && <p class="muted">Every message.</p>}
          {conditions.map((c, n) => <If key={n} n={n + 1} of={c} set={(to) => setConditions(put(conditions, n, to))} drop={() => setConditions(conditions.filter((_, i) => i !== n))} />)}
          <div><Button small icon="plus" onClick={() => setConditions([...conditions, { field: 'subject', op: 'contains', value: '' }])}>Add condition</Button></div>
        </fieldset>
        <fieldset class="stack-tight people-fieldset">
          <legend class="label">Then</legend>
          {actions.map((a, n) => <Then key={n} n={n + 1} of={a} places={places} set={(to) => setActions(put(actions, n, to))} drop={() => setActions(actions.filter((_, i) => i !== n))} />)}
          <div><Button small icon="plus" onClick={() => setActions([...actions, { type: 'mark_read' }])}>Add action</Button></div>
        </fieldset>
      </Form>
    </Dialog>
  )
}

function If({ n, of: c, set, drop }: { n: number; of: Condition; set: (to: Condition) => void; drop: () => void }) {
  const number = isNumber(c.field)
  const field = (field: Field) => set({ field, op: isNumber(field) ? 'above' : 'contains', value: isNumber(field) ? 0 : '', ...(field === 'header' && { header: '' }), not: c.not })
  const op = (op: Op) => set({ ...c, op, value: op === 'exists' ? undefined : c.value ?? '' })
  return (
    <div class="row mailboxes-condition">
      <Select label={`Field of condition ${n}`} hideLabel name={`field-${n}`} value={c.field} onChange={field} options={fields} />
      {c.field === 'header' && <TextField label={`Name of the header field of condition ${n}`} hideLabel name={`header-${n}`} value={c.header ?? ''} onInput={(header) => set({ ...c, header })} placeholder="X-Project" />}
      <Select label={`Comparison of condition ${n}`} hideLabel name={`op-${n}`} value={c.op} onChange={op} options={number ? numbers : texts} />
      {c.op !== 'exists' && <TextField label={`Value of condition ${n}`} hideLabel name={`value-${n}`} type={number ? 'number' : 'text'} step={c.field === 'spam_score' ? '0.01' : undefined} value={String(c.value ?? '')} onInput={(text) => set({ ...c, value: number ? Number(text) : text })} />}
      <Check label="Not" checked={c.not ?? false} onChange={(not) => set({ ...c, not })} />
      <IconButton look="ghost" small icon="trash" label={`Remove condition ${n}`} onClick={drop} />
    </div>
  )
}

function Then({ n, of: a, places, set, drop }: { n: number; of: Action; places: (readonly [string, string])[]; set: (to: Action) => void; drop: () => void }) {
  const type = (type: Kind) => set({ type, value: type === 'move' || type === 'copy' ? 'archive' : valued.includes(type) ? '' : undefined })
  const value = (value: string) => set({ ...a, value })
  return (
    <div class="row mailboxes-condition">
      <Select label={`Action ${n}`} hideLabel name={`type-${n}`} value={a.type} onChange={type} options={kinds} />
      {a.type === 'move' || a.type === 'copy'
        ? <Select label={`Folder of action ${n}`} hideLabel name={`folder-${n}`} value={a.value ?? 'archive'} onChange={value} options={places.some(([id]) => id === a.value) ? places : [...places, [a.value ?? '', a.value ?? '']]} />
        : valued.includes(a.type) && <TextField label={`Value of action ${n}`} hideLabel name={`action-value-${n}`} type={a.type === 'forward' ? 'email' : 'text'} value={a.value ?? ''} onInput={value} />}
      <IconButton look="ghost" small icon="trash" label={`Remove action ${n}`} onClick={drop} />
    </div>
  )
}

/** What the rules would do with the latest mail of the inbox. */
function Try({ userID, rules, onClose }: { userID: string; rules: Rule[]; onClose: () => void }) {
  const mail = useQuery('list_email_user_inbox', { user_id: userID, limit: 20 })
  return (
    <Dialog title="What the rules would do" onClose={onClose} wide>
      <p class="muted">With the latest messages of the inbox, if they arrived now. Nothing is changed.</p>
      <Show of={mail} lines={4}>
        {({ data }) => data.length === 0 ? <p class="muted">The inbox is empty.</p> : <div class="stack-tight">{data.map((m) => <Tried key={m.uid} userID={userID} uid={m.uid} subject={m.subject} rules={rules} />)}</div>}
      </Show>
    </Dialog>
  )
}

function Tried({ userID, uid, subject, rules }: { userID: string; uid: string; subject: string; rules: Rule[] }) {
  const tested = useQuery('test_rules', { user_id: userID, message_id: uid })
  const name = (id: string) => rules.find((r) => r.id === id)?.name ?? id
  return (
    <div class="mailboxes-credential">
      <strong class="truncate" style={{ display: 'block' }}>{subject || '(no subject)'}</strong>
      <Show of={tested} lines={1}>
        {(t) => (
          <span class="muted small">
            {t.matched.length === 0 ? 'No rule fits.' : `${t.matched.map(name).join(', ')}: ${t.actions.map((a) => `${nameIn(kinds, a.type as Kind)} ${a.value ?? ''}`.trim()).join(', ') || 'nothing'}`}
            {t.skipped.length > 0 && ` No time for: ${t.skipped.map(name).join(', ')}.`}
          </span>
        )}
      </Show>
    </div>
  )
}

export function Vacation({ userID }: { userID: string }) {
  const vacation = useQuery('get_vacation', { user_id: userID })
  return (
    <Card title="Automatic reply" note="Once a week to each person who writes to you; never to lists and machines.">
      <Show of={vacation} lines={4}>{(v) => <Reply key={JSON.stringify(v)} of={v} userID={userID} reload={vacation.reload} />}</Show>
    </Card>
  )
}

/** A time of the server as a field for dates has it, and back: a day begins and ends where the viewer is. */
const day = (at: string | null, last = false) => {
  if (at === null) return ''
  const d = new Date(new Date(at).getTime() - (last ? 1000 : 0))
  return `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, '0')}-${String(d.getDate()).padStart(2, '0')}`
}
const instant = (day: string, last = false) => {
  if (day === '') return null
  const d = new Date(`${day}T00:00:00`)
  if (last) d.setDate(d.getDate() + 1)
  return d.toISOString()
}

function Reply({ of: v, userID, reload }: { of: Schemas['Vacation']; userID: string; reload: () => Promise<unknown> }) {
  const [on, setOn] = useState(v.enabled), [subject, setSubject] = useState(v.subject ?? ''), [text, setText] = useState(v.text), [from, setFrom] = useState(day(v.starts_at)), [to, setTo] = useState(day(v.ends_at, true))
  const submit = async () => {
    await call('set_vacation', { user_id: userID, enabled: on, subject: subject.trim() || null, text, from: v.from, starts_at: instant(from), ends_at: instant(to, true) })
    await reload()
    told(on ? 'Saved. New mail is answered.' : 'Saved. Nothing is answered.')
  }
  if (!can('set_vacation')) return <p class="muted">{v.enabled ? v.text : 'Off.'}</p>
  return (
    <Form submit="Save automatic reply" onSubmit={submit} disabled={on && text.trim() === ''}>
      <Check label="Answer new mail" checked={on} onChange={setOn} />
      <TextField label="Subject" name="subject" value={subject} onInput={setSubject} maxLength={200} hint="Leave empty for “Auto:” and the subject of the message." />
      <TextArea label="Text" name="text" value={text} onInput={setText} rows={4} />
      <fieldset class="mailboxes-part">
        <legend>Away</legend>
        <div class="grid-2">
          <TextField label="First day" name="starts_at" type="date" value={from} onInput={setFrom} hint="Leave empty to start now." />
          <TextField label="Last day" name="ends_at" type="date" value={to} onInput={setTo} hint="Leave empty for no end." />
        </div>
      </fieldset>
    </Form>
  )
}

// What a mailbox does with mail by itself: its rules, and its automatic reply.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, Check, Dialog, Form, IconButton, Menu, PartError, Select, Show, TextArea, TextField, told, useDraft } from '../../ui'
import { makeFolder } from '../inbox/folders'
import { language, locale, t, type Key } from '../../words'

type Rule = Schemas['Rule']
type Condition = Schemas['ConditionInput']
type Action = Schemas['ActionInput']
type Field = Condition['field']
type Op = Condition['op']
type Kind = Action['type']

/** What a rule begins with: that of a message, or nothing. */
export interface Draft { name: string; conditions: Condition[]; actions: Action[] }

const fields: Field[] = ['from', 'to', 'cc', 'subject', 'body', 'header', 'list_id', 'size', 'spam_score']
const texts: Op[] = ['contains', 'is', 'matches', 'exists']
const numbers: Op[] = ['above', 'below', 'is']
const kinds: Kind[] = ['move', 'copy', 'mark_read', 'flag', 'forward', 'reply', 'discard', 'reject', 'webhook', 'stop']
const folders = ['archive', 'junk', 'trash', 'inbox'] as const
const valued: Kind[] = ['move', 'copy', 'forward', 'reply', 'reject', 'webhook']

const fresh = '\n' // begins the value of an action whose folder is made as the rule is saved; no name has it
const mostRadios = 12

const isNumber = (field: Field) => field === 'size' || field === 'spam_score'
const megabyte = 1_000_000 // bytes

/** What a comparison is called. A size is larger or smaller than another. */
function nameOfOp(field: Field, op: Op): string {
  if (field === 'size' && (op === 'above' || op === 'below')) return t(op === 'above' ? 'rule.op.larger' : 'rule.op.smaller')
  return t(`rule.op.${op}`)
}

/** What a folder is called, by its role or its name. */
function nameOfFolder(folder: string): string {
  const role = folders.find((role) => role === folder.toLowerCase())
  return role ? t(`inbox.folder.${role}`) : folder
}

const sizes: Partial<Record<Op, [is: Key, not: Key]>> = { above: ['rule.size.larger', 'rule.size.most'], below: ['rule.size.smaller', 'rule.size.least'] }

/** A condition in words: the first of a sentence, or a later one. */
function saidIf(c: Condition, first: boolean): string {
  const start = (text: string) => (first ? text : text.charAt(0).toLocaleLowerCase(language.value) + text.slice(1))
  const size = c.field === 'size' ? t('rule.megabytes', { n: (Number(c.value) / megabyte).toLocaleString(locale.value, { maximumFractionDigits: 6 }) }) : ''
  const key = sizes[c.op]
  if (size && key) return start(t(key[c.not ? 1 : 0], { size }))
  if (c.field === 'list_id' && c.op === 'exists') return start(t(c.not ? 'rule.list.none' : 'rule.list.any'))
  if (c.field === 'list_id' && c.op === 'is' && !c.not) return start(t('rule.list.one', { list: c.value ?? '' }))
  const op = c.not ? t(`rule.op.${c.op}.not`) : nameOfOp(c.field, c.op)
  return `${c.field === 'header' ? c.header : t(`rule.field.${c.field}`)} ${op} ${size || (c.value ?? '')}`.trim()
}

/** An action in words. */
function saidThen({ type, value }: { type: Kind; value?: string | null }): string {
  return `${t(`rule.do.${type}`)} ${type === 'move' || type === 'copy' ? nameOfFolder(value ?? '') : value ?? ''}`.trim()
}

/** A rule in one line of words. */
function said(r: Rule): string {
  const list = new Intl.ListFormat(language.value, { type: r.match === 'any' ? 'disjunction' : 'conjunction' })
  const when = r.conditions.map(({ value, ...c }, i) => saidIf({ ...c, ...(value !== null && { value }) }, i === 0))
  return `${when.length === 0 ? t('rule.every') : list.format(when)} → ${r.actions.map(saidThen).join(', ')}`
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
    title: t('rule.delete.title', { name: r.name }), action: t('inbox.delete'), text: t('rule.delete.text'),
    run: async () => {
      await call('delete_rule', { user_id: userID, rule_id: r.id })
      await list.reload()
      told(t('rule.deleted'))
    },
  })
  return (
    <Card title={t('rule.title')} note={t('rule.note')} actions={(
      <>
        {list.data && list.data.data.length > 0 && <Button small onClick={() => setTesting(true)}>{t('rule.try')}</Button>}
        {may && <Button small icon="plus" onClick={() => setEditing('new')}>{t('rule.new')}</Button>}
      </>
    )}>
      <Show of={list} lines={2}>
        {({ data }) => data.length === 0 ? <p class="muted">{t('rule.none')}</p> : (
          <div class="stack-tight">
            {data.map((r) => (
              <div key={r.id} class="row-between mailboxes-credential">
                <span class="grow">
                  <strong>{r.name}</strong> {!r.enabled && <Badge plain>{t('rule.off')}</Badge>}<br />
                  <span class="muted small mailboxes-rule">{said(r)}</span>
                </span>
                {may && (
                  <Menu small label={t('rule.actions', { name: r.name })}>
                    <Button look="ghost" small icon="pencil" onClick={() => setEditing(r)}>{t('rule.edit')}</Button>
                    <Button look="ghost" small icon={r.enabled ? 'pause' : 'play'} onClick={() => change(r, { enabled: !r.enabled })}>{r.enabled ? t('factor.turn_off') : t('factor.turn_on')}</Button>
                    {r.position > 0 && <Button look="ghost" small icon="back" onClick={() => change(r, { position: r.position - 1 })}>{t('rule.up')}</Button>}
                    {r.position < data.length - 1 && <Button look="ghost" small icon="down" onClick={() => change(r, { position: r.position + 1 })}>{t('rule.down')}</Button>}
                    <Button look="ghost" small icon="trash" onClick={() => remove(r)}>{t('inbox.delete')}</Button>
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
  const places: (readonly [string, string])[] = [...folders.map((role) => [role, nameOfFolder(role)] as const), ...(own.data?.data ?? []).filter((f) => f.role === null).map((f): [string, string] => [f.name, f.name])]
  const put = <T,>(list: T[], n: number, to: T) => list.map((was, i) => (i === n ? to : was))
  const submit = async () => {
    const ready: Action[] = []
    for (const a of actions) {
      const folder = a.value?.startsWith(fresh) ? a.value.trim() : undefined
      const known = folder === undefined || [...places.map(([id]) => id), ...ready.map((a) => a.value)].includes(folder)
      ready.push({ ...a, value: folder === undefined || known ? folder ?? a.value : (await makeFolder(userID, folder)).name })
    }
    setActions(ready)
    const form = { name, match, conditions, actions: ready.map(({ type, value }) => (value ? { type, value } : { type })) }
    if (r) await call('update_rule', { user_id: userID, rule_id: r.id, ...form })
    else await call('create_rule', { user_id: userID, ...form })
    await onDone?.()
    told(t('rule.saved'))
    onClose()
  }
  return (
    <Dialog title={r ? r.name : t('rule.new')} onClose={onClose} wide>
      <Form submit={t('rule.save')} onSubmit={submit} of={[name, match, conditions, actions]} optional={draft !== undefined} disabled={name.trim() === '' || actions.length === 0 || actions.some((a) => a.value?.startsWith(fresh) && a.value.trim() === '')}>
        <TextField label={t('passkeys.name')} name="name" value={name} onInput={setName} maxLength={100} autoFocus />
        <fieldset class="stack-tight people-fieldset">
          <legend class="label">{t('rule.if')}</legend>
          {conditions.length > 1 && <Select label={t('rule.match')} hideLabel name="match" value={match} onChange={setMatch} options={[['all', t('rule.match.all')], ['any', t('rule.match.any')]]} />}
          {conditions.length === 0 && <p class="muted">{t('rule.every')}</p>}
          {conditions.map((c, n) => <If key={n} n={n + 1} of={c} set={(to) => setConditions(put(conditions, n, to))} drop={() => setConditions(conditions.filter((_, i) => i !== n))} />)}
          <div><Button small icon="plus" onClick={() => setConditions([...conditions, { field: 'subject', op: 'contains', value: '' }])}>{t('rule.add_condition')}</Button></div>
        </fieldset>
        <fieldset class="stack-tight people-fieldset">
          <legend class="label">{t('rule.then')}</legend>
          {actions.map((a, n) => <Then key={n} n={n + 1} of={a} places={places} radios={draft !== undefined} set={(to) => setActions(put(actions, n, to))} drop={() => setActions(actions.filter((_, i) => i !== n))} />)}
          <div><Button small icon="plus" onClick={() => setActions([...actions, { type: 'mark_read' }])}>{t('rule.add_action')}</Button></div>
        </fieldset>
      </Form>
    </Dialog>
  )
}

function If({ n, of: c, set, drop }: { n: number; of: Condition; set: (to: Condition) => void; drop: () => void }) {
  const number = isNumber(c.field)
  const field = (field: Field) => set({ field, op: isNumber(field) ? 'above' : 'contains', value: isNumber(field) ? 0 : '', ...(field === 'header' && { header: '' }), not: c.not })
  const op = (op: Op) => set({ ...c, op, value: op === 'exists' ? undefined : c.value ?? '' })
  const unit = c.field === 'size' ? megabyte : 1
  const numberIn = (text: string) => (unit === 1 ? Number(text) : Math.round(Number(text) * unit))
  const [typed, setTyped] = useState('') // as it stands in the field, such as '0.' on the way to 0.5
  const shown = !number ? String(c.value ?? '') : numberIn(typed) === c.value ? typed : String(Number(c.value ?? 0) / unit)
  const value = (text: string) => {
    setTyped(text)
    set({ ...c, value: number ? numberIn(text) : text })
  }
  return (
    <div class="row mailboxes-condition">
      <Select label={t('rule.condition.field', { n })} hideLabel value={c.field} onChange={field} options={fields.map((f) => [f, t(`rule.field.${f}`)] as const)} />
      {c.field === 'header' && <TextField label={t('rule.condition.header', { n })} hideLabel value={c.header ?? ''} onInput={(header) => set({ ...c, header })} placeholder="X-Project" />}
      <Select label={t('rule.condition.op', { n })} hideLabel name={c.op === 'exists' ? `conditions.${n - 1}` : undefined} value={c.op} onChange={op} options={(number ? numbers : texts).map((op) => [op, nameOfOp(c.field, op)] as const)} />
      {c.op !== 'exists' && <TextField label={t('rule.condition.value', { n })} hideLabel name={`conditions.${n - 1}`} type={number ? 'number' : 'text'} step={number ? 'any' : undefined} after={c.field === 'size' && t('rule.megabytes.unit')} value={shown} onInput={value} />}
      <Check label={t('rule.not')} checked={c.not ?? false} onChange={(not) => set({ ...c, not })} />
      <IconButton look="ghost" small icon="trash" label={t('rule.condition.remove', { n })} onClick={drop} />
    </div>
  )
}

function Then({ n, of: a, places, radios, set, drop }: { n: number; of: Action; places: (readonly [string, string])[]; radios: boolean; set: (to: Action) => void; drop: () => void }) {
  const type = (type: Kind) => set({ type, value: type === 'move' || type === 'copy' ? 'archive' : valued.includes(type) ? '' : undefined })
  const value = (value: string) => set({ ...a, value })
  return (
    <div class="row mailboxes-condition mailboxes-deed">
      <Select label={t('rule.action', { n })} hideLabel name={valued.includes(a.type) ? undefined : `actions.${n - 1}`} value={a.type} onChange={type} options={kinds.map((k) => [k, t(`rule.do.${k}`)] as const)} />
      {a.type === 'move' || a.type === 'copy'
        ? <Place n={n} value={a.value ?? 'archive'} set={value} places={places} radios={radios} />
        : valued.includes(a.type) && <TextField label={t('rule.action.value', { n })} hideLabel name={`actions.${n - 1}`} type={a.type === 'forward' ? 'email' : 'text'} value={a.value ?? ''} onInput={value} />}
      {a.type === 'stop' && <span class="small muted">{t('rule.stop.note')}</span>}
      <IconButton look="ghost" small icon="trash" label={t('rule.action.remove', { n })} onClick={drop} />
    </div>
  )
}

/**
 * The folder of an action, or a new one. radios: where there are few, each is in view, since the
 * folder is all that one chooses.
 */
function Place({ n, value, set, places, radios }: { n: number; value: string; set: (value: string) => void; places: (readonly [string, string])[]; radios: boolean }) {
  const label = t('rule.action.folder', { n }), isNew = value.startsWith(fresh)
  const options = [...places, ...(isNew || places.some(([id]) => id === value) ? [] : [[value, value] as const]), ...(can('create_folder') ? [[fresh, t('inbox.folder.make')] as const] : [])]
  const now = isNew ? fresh : value
  return (
    <>
      {radios && options.length <= mostRadios ? (
        <div class="row grow" role="radiogroup" aria-label={label}>
          {options.map(([id, text]) => <label key={id} class="check"><input type="radio" name={`folder ${n}`} checked={id === now} onChange={() => set(id)} /> <span>{text}</span></label>)}
          {!isNew && <PartError name={`actions.${n - 1}`} />}
        </div>
      ) : <Select label={label} hideLabel name={isNew ? undefined : `actions.${n - 1}`} value={now} onChange={set} options={options} />}
      {isNew && <TextField label={t('inbox.folder.new')} hideLabel name={`actions.${n - 1}`} value={value.slice(fresh.length)} onInput={(name) => set(fresh + name)} maxLength={255} placeholder={t('inbox.folder.new')} autoFocus />}
    </>
  )
}

/** What the rules would do with the latest mail of the inbox. */
function Try({ userID, rules, onClose }: { userID: string; rules: Rule[]; onClose: () => void }) {
  const mail = useQuery('list_email_user_inbox', { user_id: userID, limit: 20 })
  return (
    <Dialog title={t('rule.try.title')} onClose={onClose} wide>
      <div class="stack">
        <p class="muted">{t('rule.try.text')}</p>
        <Show of={mail} lines={4}>
          {({ data }) => data.length === 0 ? <p class="muted">{t('rule.try.empty')}</p> : <div class="stack-tight">{data.map((m) => <Tried key={m.uid} userID={userID} uid={m.uid} subject={m.subject} rules={rules} />)}</div>}
        </Show>
      </div>
    </Dialog>
  )
}

function Tried({ userID, uid, subject, rules }: { userID: string; uid: string; subject: string; rules: Rule[] }) {
  const tested = useQuery('test_rules', { user_id: userID, message_id: uid })
  const name = (id: string) => rules.find((r) => r.id === id)?.name ?? id
  return (
    <div class="mailboxes-credential">
      <strong class="truncate" style={{ display: 'block' }}>{subject || t('message.no_subject')}</strong>
      <Show of={tested} lines={1}>
        {(would) => (
          <span class="muted small">
            {would.matched.length === 0 ? t('rule.try.none') : `${would.matched.map(name).join(', ')} → ${would.actions.map((a) => saidThen({ ...a, type: a.type as Kind })).join(', ') || t('rule.try.nothing')}`}
            {would.skipped.length > 0 && ` ${t('rule.try.skipped', { names: would.skipped.map(name).join(', ') })}`}
          </span>
        )}
      </Show>
    </div>
  )
}

export function Vacation({ userID }: { userID: string }) {
  const vacation = useQuery('get_vacation', { user_id: userID })
  return (
    <Card title={t('away.title')} note={t('away.note')}>
      <Show of={vacation} lines={4}>{(v) => <Reply of={v} userID={userID} reload={vacation.reload} />}</Show>
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

type Reply = Schemas['Vacation']

/** An automatic reply as its fields have it. */
export interface ReplyForm { on: boolean; subject: string; text: string; from: string; to: string }

export function replyOf(v: Reply | undefined): ReplyForm {
  return { on: v?.enabled ?? false, subject: v?.subject ?? '', text: v?.text ?? '', from: day(v?.starts_at ?? null), to: day(v?.ends_at ?? null, true) }
}

/**
 * Sets the automatic reply, and gives what to tell the viewer. before is the present one, which
 * has more than its fields.
 */
export async function saveReply(userID: string, before: Reply, f: ReplyForm): Promise<string> {
  await call('set_vacation', { user_id: userID, enabled: f.on, subject: f.subject.trim() || null, text: f.text, from: before.from, starts_at: instant(f.from), ends_at: instant(f.to, true) })
  return f.on ? t('away.saved.on') : t('away.saved.off')
}

export function ReplyFields({ of: f, set }: { of: ReplyForm; set: (change: Partial<ReplyForm>) => void }) {
  return (
    <>
      <Check label={t('away.on')} checked={f.on} onChange={(on) => set({ on })} />
      <TextField label={t('compose.subject')} name="subject" value={f.subject} onInput={(subject) => set({ subject })} maxLength={200} hint={t('away.subject.hint')} />
      <TextArea label={t('away.text')} name="text" value={f.text} onInput={(text) => set({ text })} rows={4} />
      <fieldset class="mailboxes-part">
        <legend>{t('away.when')}</legend>
        <div class="grid-2">
          <TextField label={t('away.first')} name="starts_at" type="date" value={f.from} onInput={(from) => set({ from })} hint={t('away.first.hint')} />
          <TextField label={t('away.last')} name="ends_at" type="date" value={f.to} onInput={(to) => set({ to })} hint={t('away.last.hint')} />
        </div>
      </fieldset>
    </>
  )
}

function Reply({ of: v, userID, reload }: { of: Reply; userID: string; reload: () => Promise<unknown> }) {
  const { values: form, changes, changed, set, reset } = useDraft(replyOf(v))
  const submit = async () => {
    const text = await saveReply(userID, v, form)
    await reload()
    reset(changes)
    told(text)
  }
  if (!can('set_vacation')) return <p class="muted">{v.enabled ? v.text : t('factor.off')}</p>
  return (
    <Form submit={t('away.save')} onSubmit={submit} disabled={!changed}>
      <ReplyFields of={form} set={set} />
    </Form>
  )
}

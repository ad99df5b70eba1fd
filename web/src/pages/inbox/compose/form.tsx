// The form in which a message is written.
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { ApiError, call, callOnce, offline, person, serverNow, session, type Schemas } from '../../../api/client'
import { useQuery } from '../../../api/query'
import { ask, Button, bytes, failed, Failure, focusWrong, IconButton, Notice } from '../../../ui'
import { language, t } from '../../../words'
import { emailOf, isEmail } from '../people'
import { part } from '../../lazy'
import { localTime } from '../../sent/words'
import { maySend } from '../picker'
import { Chips } from './chips'
import { attach, change, changed, discard, draftOf, filesOf, isEmpty, lastSender, randomHex, rememberSender, type Draft } from './draft'
import type { EditorProps } from './editor'
import { DropZone, FileList, FilePicker, list, mostBytes, sizeOf } from './files'
import { From } from './from'
import { htmlOfLines } from './quote'
import { Refusal, wrongIn, type Wrong } from './refusal'
import { bodyOf, forgetSaved, settled, useSaving, type Saving } from './saving'

/** A message that was sent. Until then (ms since 1970, by the server's clock) it waits, and can be taken back. */
export type Sent = Schemas['EmailQueued'] & { subject: string; until: number; draft: Draft }

/** The part of the script that has the editor. */
export const editor = part(() => import('./editor'))

interface Props { draft: string; onSent: (sent: Sent) => void; onDiscard: () => void }

export function ComposeForm({ draft: key, onSent, onDiscard }: Props) {
  void changed.value
  const d = draftOf(key)
  const set = (to: Partial<Draft>) => change(key, to)
  const [error, setError] = useState<Error>()
  const [wrong, setWrong] = useState<Wrong>({})
  const [busy, setBusy] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  const [copies, setCopies] = useState({ cc: false, bcc: false })
  useFirstMailbox(d, set)
  const mailbox = useMailbox(d)
  const saving = useSaving(key, busy)

  const send = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await settled(key)
      const draft = draftOf(key)
      const { sent, until } = await post(draft)
      rememberSender(draft.from.email)
      if (draft.saved && draft.saved.user_id !== draft.from.user_id) void forgetSaved(draft) // of the mailbox before
      discard(key)
      onSent({ ...sent, subject: draft.subject, until, draft: { ...draft, saved: undefined } })
    } catch (e) {
      setError(e as Error)
      setWrong(wrongIn(e))
      setTimeout(() => focusWrong(form.current))
    }
    setBusy(false)
  }
  const submit = (e: Event) => {
    e.preventDefault()
    if (busy || d.fetching || d.foreign) return
    if (asked(form.current)) return void setTimeout(() => form.current?.requestSubmit(), 100)
    const found = check(draftOf(key))
    setWrong(found)
    setError(undefined)
    if (Object.keys(found).length > 0) return void setTimeout(() => focusWrong(form.current))
    if (d.lost?.length) return ask({ title: t('compose.lost.title', { files: list(d.lost) }), text: t('compose.lost.text'), action: t('compose.send_anyway'), danger: false, run: send })
    if (d.subject.trim() !== '') return void send()
    ask({ title: t('compose.no_subject.title'), text: t('compose.no_subject.text'), action: t('compose.send_anyway'), danger: false, run: send })
  }
  const throwAway = () => {
    if (isEmpty(d)) return drop()
    ask({ title: t('compose.discard.title'), text: t('compose.discard.text'), action: t('compose.discard.action'), run: async () => drop() })
  }
  const drop = () => {
    const draft = draftOf(key)
    void settled(key).then(() => forgetSaved({ ...draft, saved: draft.saved ?? draftOf(key).saved })).then(() => discard(key))
    discard(key)
    onDiscard()
  }
  const add = (files: File[]) => attach(key, files)
  const keys = (e: KeyboardEvent) => {
    if (e.key !== 'Enter' || !(e.ctrlKey || e.metaKey)) return
    e.preventDefault()
    setTimeout(() => form.current?.requestSubmit()) // what is typed in a field of people is taken first
  }
  return (
    <form ref={form} class="compose-form" noValidate onSubmit={submit} onKeyDown={keys}>
      <DropZone onFiles={add}>
        <div class={'compose-line' + (wrong.from ? ' wrong' : '')}>
          <span class="label">{t('compose.from')}</span>
          <From mailbox={mailbox} email={d.as ?? d.from.email} onPick={(from, as) => set({ from, as })} />
          {wrong.from && <span class="compose-wrong">{wrong.from}</span>}
        </div>
        <People draft={d} set={set} wrong={wrong} copies={copies} setCopies={setCopies} />
        <Subject value={d.subject} onInput={(subject) => set({ subject })} wrong={wrong.subject} />
        {(d.dropped?.length ?? 0) > 0 && <Kept draft={d} onSeen={() => set({ dropped: [] })} />}
        <Text key={key} draft={key} words={{ text: d.text, html: d.html }} foreign={d.foreign === true} autoFocus={d.to.length > 0} onChange={({ text, html }) => set({ text, html })}
          onTaken={({ text, html }, dropped) => set({ text, html, dropped, foreign: undefined })} onFiles={add} />
        <FileList files={filesOf(d).attached} fetching={d.fetching} lost={d.lost} onForget={() => set({ lost: [] })} wrong={wrong.attachments} onRemove={(file) => set({ files: d.files.filter((f) => f !== file) })} />
        <Refusal error={error} from={d.from} known={wrong} />
      </DropZone>
      {d.send_at !== undefined && <Later value={d.send_at} onInput={(send_at) => set({ send_at })} wrong={wrong.send_at} />}
      <Foot draft={d} busy={busy} saving={saving} onFiles={add} onDiscard={throwAway} onLater={() => set({ send_at: d.send_at === undefined ? inAnHour() : undefined })} />
    </form>
  )
}

/** Whether a field of recipients still asks who is meant. */
function asked(form: HTMLFormElement | null): boolean {
  return [...form?.querySelectorAll<HTMLInputElement>('.compose-chips input') ?? []].some((input) => input.value.trim() !== '')
}

/** Says what of another program's formatting is not kept. */
function Kept({ draft: d, onSeen }: { draft: Draft; onSeen: () => void }) {
  const what = new Intl.ListFormat(language.value).format(d.dropped!.map((name) => t(`compose.dropped.${name}`)))
  return (
    <div class="compose-refusal">
      <Notice tone="warn">{t(d.kind === 'draft' ? 'compose.dropped.draft' : 'compose.dropped.forward', { what })} <button type="button" class="inbox-link" onClick={onSeen}>{t('compose.ok')}</button></Notice>
    </div>
  )
}

interface PeopleProps { draft: Draft; set: (to: Partial<Draft>) => void; wrong: Wrong; copies: { cc: boolean; bcc: boolean }; setCopies: (to: { cc: boolean; bcc: boolean }) => void }

function People({ draft: d, set, wrong, copies, setCopies }: PeopleProps) {
  const cc = copies.cc || d.cc.length > 0, bcc = copies.bcc || d.bcc.length > 0
  const more = !(cc && bcc) && (
    <span class="compose-more">
      {!cc && <button type="button" class="inbox-link" onClick={() => setCopies({ ...copies, cc: true })}>{t('compose.cc')}</button>}
      {!bcc && <button type="button" class="inbox-link" onClick={() => setCopies({ ...copies, bcc: true })}>{t('compose.bcc')}</button>}
    </span>
  )
  return (
    <>
      <Chips label={t('compose.to')} userID={d.from.user_id} people={d.to} onChange={(to) => set({ to })} wrong={wrong.to} autoFocus={d.to.length === 0} beside={more} />
      {cc && <Chips label={t('compose.cc')} userID={d.from.user_id} people={d.cc} onChange={(cc) => set({ cc })} wrong={wrong.cc} autoFocus={copies.cc} />}
      {bcc && <Chips label={t('compose.bcc')} userID={d.from.user_id} people={d.bcc} onChange={(bcc) => set({ bcc })} wrong={wrong.bcc} autoFocus={copies.bcc} />}
    </>
  )
}

function Subject({ value, onInput, wrong }: { value: string; onInput: (v: string) => void; wrong?: string }) {
  const id = useId()
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>{t('compose.subject')}</label>
      <input id={id} type="text" dir="auto" value={value} maxLength={900} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined} onInput={(e) => onInput(e.currentTarget.value)} />
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

/**
 * The editor. Until its part of the script is there, plain text is written in a simple field: who
 * answers types at once.
 */
function Text(props: EditorProps) {
  const [there, setThere] = useState(editor.now)
  const [error, setError] = useState(false)
  const field = useRef<HTMLTextAreaElement>(null)
  const caret = useRef<number | undefined>(props.autoFocus ? 0 : undefined) // where it was when the editor came
  const load = () => editor.load().then((m) => {
    caret.current = document.activeElement === field.current ? field.current!.selectionStart : undefined
    setError(false)
    setThere(m)
  }, () => setError(true))
  useEffect(() => { if (!there) void load() }, [])
  useLayoutEffect(() => {
    if (there || !props.autoFocus) return
    field.current!.focus()
    field.current!.setSelectionRange(0, 0)
  }, [])
  if (there) return <there.Editor {...props} autoFocus={caret.current !== undefined} caret={caret.current} />
  if (error) return <Failure error={offline()} retry={load} />
  return <textarea ref={field} class="compose-text" dir="auto" aria-label={t('compose.message')} readOnly={props.words.html !== undefined} value={props.words.text} onInput={(e) => props.onChange({ text: e.currentTarget.value })} />
}

/** The mailbox that sends. Its signature is put below a message that has just been begun. */
function useMailbox(d: Draft): Schemas['EmailUser'] | undefined {
  const { data } = useQuery('get_email_user', { user_id: d.from.user_id }, { kinds: [], when: d.from.user_id !== '' })
  const mailbox = data?.user_id === d.from.user_id ? data : undefined
  const signature = mailbox?.signature
  useEffect(() => {
    if (!signature || d.signature !== undefined || d.saved) return
    const below = `\n\n-- \n${signature}\n`, begun = d.text === ''
    if (!begun && !(d.text.startsWith('\n\n') && d.text.trim() !== '')) return change(d.key, { signature: '' })
    change(d.key, { text: below + d.text, html: d.html === undefined ? undefined : htmlOfLines(below) + d.html, signature: begun ? below : '' })
  }, [signature, d.key])
  return mailbox
}

function inAnHour(): string {
  return localTime(new Date(serverNow() + 3_600_000))
}

function Later({ value, onInput, wrong }: { value: string; onInput: (v: string) => void; wrong?: string }) {
  const id = useId()
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>{t('compose.send_at')}</label>
      <input id={id} type="datetime-local" value={value} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined} onInput={(e) => onInput(e.currentTarget.value)} />
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

/** What is said of the draft on the server. */
const states = { saving: 'compose.saving', saved: 'compose.saved', failed: 'compose.failed' } as const

function Foot({ draft: d, busy, saving, onFiles, onDiscard, onLater }: { draft: Draft; busy: boolean; saving: Saving; onFiles: (files: File[]) => void; onDiscard: () => void; onLater: () => void }) {
  const size = sizeOf(d)
  return (
    <div class="compose-foot">
      <Button type="submit" look="primary" icon="send" busy={busy} disabled={d.fetching || d.foreign} title={`${t('ui.key.ctrl')} + ${t('ui.key.enter')}`}>{t(d.send_at ? 'compose.schedule' : 'compose.send')}</Button>
      <FilePicker onFiles={onFiles} />
      <IconButton look="ghost" icon="clock" label={t(d.send_at === undefined ? 'compose.choose_time' : 'compose.remove_time')} onClick={onLater} />
      {d.files.length > 0 && <span class={'small ' + (size > mostBytes ? 'compose-wrong' : 'muted')}>{t('compose.size', { size: bytes(size), most: bytes(mostBytes) })}</span>}
      <span class="grow truncate small muted" role="status">{saving && t(states[saving])}</span>
      <IconButton look="ghost" icon="trash" label={t('compose.discard')} onClick={onDiscard} />
    </div>
  )
}

/** Gives a draft the mailbox that is asked for, else the last that sent, else the first by name. */
function useFirstMailbox(d: Draft, set: (to: Partial<Draft>) => void) {
  const { user_id, email } = d.from
  useEffect(() => {
    if (user_id !== '' && email !== '') return
    let over = false
    firstMailbox(user_id, email).then((m) => {
      if (m && !over) set({ from: { user_id: m.user_id, email: m.email } })
    }).catch(() => { /* the viewer chooses one */ })
    return () => { over = true }
  }, [user_id, email])
}

type Sender = Pick<Schemas['EmailUser'], 'user_id' | 'email'>

async function firstMailbox(userID: string, asked: string): Promise<Sender | undefined> {
  if (person()) return { user_id: session.value!.user.id, email: session.value!.user.email }
  if (userID !== '') return call('get_email_user', { user_id: userID })
  for (const email of [asked, lastSender()]) {
    if (email === '') continue
    const { data } = await call('list_email_users', { q: email, limit: 100 })
    const found = data.find((m) => m.email === email && maySend(m))
    if (found) return found
  }
  return (await call('list_email_users', { limit: 100 })).data.filter(maySend).sort((a, b) => a.email.localeCompare(b.email))[0]
}

const mostPeople = 50

/** What the server would refuse. */
function check(d: Draft): Wrong {
  const wrong: Wrong = {}
  if (!d.from.user_id) wrong.from = t('compose.wrong.from')
  for (const field of ['to', 'cc', 'bcc'] as const) {
    const bad = d[field].find((p) => !isEmail(p))
    if (bad) wrong[field] = t('compose.wrong.address', { address: bad })
  }
  const n = new Set([...d.to, ...d.cc, ...d.bcc].map((p) => emailOf(p).toLowerCase())).size
  if (n === 0) wrong.to = t('compose.wrong.nobody')
  if (n > mostPeople) wrong.to = t('compose.wrong.many', { most: mostPeople, over: n - mostPeople })
  if (sizeOf(d) > mostBytes) wrong.attachments = t('compose.wrong.size', { most: bytes(mostBytes) })
  return wrong
}

const undoFor = 10_000 // ms in which a message that was sent can be taken back

interface Unsure { key: string; send_at: number; uid?: string }

const unsure = new WeakMap<Draft, Unsure>() // drafts that may have been sent, though no answer came: what they were sent with

/** Sends a draft; one that was sent before and has not changed since goes out once. */
async function post(d: Draft): Promise<{ sent: Schemas['EmailQueued']; until: number }> {
  const with_ = unsure.get(d) ?? {
    key: randomHex(16),
    send_at: d.send_at ? new Date(d.send_at).getTime() : serverNow() + undoFor,
  }
  unsure.set(d, with_)
  try {
    const user_id = d.from.user_id, body = { ...(await bodyOf(d)), send_at: new Date(with_.send_at).toISOString() }
    if (d.saved?.user_id === user_id) with_.uid ??= (await call('update_draft', { user_id, message_id: d.saved.uid, ...body }).catch((error) => { if (error.status !== 404) throw error }))?.uid
    const sent = with_.uid ? await callOnce(with_.key, 'send_draft', { user_id, message_id: with_.uid }) // it leaves Drafts as it is sent
      : await callOnce(with_.key, 'send_email', { user_id, ...body, to: body.to ?? [] })
    return { sent, until: d.send_at ? 0 : with_.send_at }
  } catch (error) {
    if (!(error instanceof ApiError) || (error.status > 0 && error.status < 500 && error.code !== 'idempotency_in_progress')) unsure.delete(d)
    throw error
  }
}

/** Takes back a message that waits. It is a draft again; false tells that it has left. */
export async function takeBack(sent: Sent): Promise<boolean> {
  try {
    for (const r of sent.recipients) await call('cancel_message', { id: r.id })
  } catch (error) {
    failed(error)
    return false
  }
  const { key, ...rest } = sent.draft
  change(key, rest)
  return true
}

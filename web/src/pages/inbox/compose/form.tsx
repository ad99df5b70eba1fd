// The form in which a message is written.
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { ApiError, call, callOnce, person, serverNow, session, type Schemas } from '../../../api/client'
import { useQuery } from '../../../api/query'
import { ask, Button, bytes, failed, IconButton, plural } from '../../../ui'
import { emailOf, isEmail } from '../people'
import { localTime } from '../../sent/words'
import { MailboxPicker, maySend } from '../picker'
import { Chips } from './chips'
import { change, changed, discard, draftOf, isEmpty, lastSender, rememberSender, type Draft } from './draft'
import { DropZone, FileList, FilePicker, list, mostBytes, sizeOf } from './files'
import { Refusal, wrongIn, type Wrong } from './refusal'
import { bodyOf, forgetSaved, settled, useSaving, type Saving } from './saving'

/** A message that was sent. Until then (ms since 1970, by the server's clock) it waits, and can be taken back. */
export type Sent = Schemas['EmailQueued'] & { subject: string; until: number; draft: Draft }

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
      focusWrong(form.current)
    }
    setBusy(false)
  }
  const submit = (e: Event) => {
    e.preventDefault()
    if (busy || d.fetching) return
    const found = check(draftOf(key))
    setWrong(found)
    setError(undefined)
    if (Object.keys(found).length > 0) return focusWrong(form.current)
    if (d.lost?.length) return ask({ title: `Send without ${list(d.lost)}?`, text: 'Your browser did not keep every attachment. Attach the missing files again, or send the message without them.', action: 'Send anyway', danger: false, run: send })
    if (d.subject.trim() !== '') return void send()
    ask({ title: 'Send without a subject?', text: 'Messages without a subject are often marked as spam.', action: 'Send anyway', danger: false, run: send })
  }
  const throwAway = () => {
    if (isEmpty(d)) return drop()
    ask({ title: 'Discard draft?', text: 'It can’t be recovered.', action: 'Discard', run: async () => drop() })
  }
  const drop = () => {
    const draft = draftOf(key)
    void settled(key).then(() => forgetSaved({ ...draft, saved: draft.saved ?? draftOf(key).saved })).then(() => discard(key))
    discard(key)
    onDiscard()
  }
  const add = (files: File[]) => set({ files: [...draftOf(key).files, ...files], lost: draftOf(key).lost?.filter((name) => !files.some((f) => f.name === name)) })
  const keys = (e: KeyboardEvent) => {
    if (e.key !== 'Enter' || !(e.ctrlKey || e.metaKey)) return
    e.preventDefault()
    setTimeout(() => form.current?.requestSubmit()) // what is typed in a field of people is taken first
  }
  return (
    <form ref={form} class="compose-form" noValidate onSubmit={submit} onKeyDown={keys}>
      <DropZone onFiles={add}>
        <div class={'compose-line' + (wrong.from ? ' wrong' : '')}>
          <span class="label">From</span>
          <span class="compose-from">
            {person() ? <span class="truncate">{d.from.email}</span> : <MailboxPicker label="From" value={d.from.email} active onPick={(m) => { if (m) set({ from: { user_id: m.user_id, email: m.email }, as: undefined }) }} />}
            <SendAs draft={d} onPick={(as) => set({ as })} />
          </span>
          {wrong.from && <span class="compose-wrong">{wrong.from}</span>}
        </div>
        <People draft={d} set={set} wrong={wrong} copies={copies} setCopies={setCopies} />
        <Subject value={d.subject} onInput={(subject) => set({ subject })} wrong={wrong.subject} />
        <Words value={d.text} onInput={(text) => set({ text })} autoFocus={d.to.length > 0} />
        <FileList files={d.files} fetching={d.fetching} lost={d.lost} onForget={() => set({ lost: [] })} wrong={wrong.attachments} onRemove={(at) => set({ files: d.files.filter((_, i) => i !== at) })} />
        <Refusal error={error} from={d.from} known={wrong} />
      </DropZone>
      {d.send_at !== undefined && <Later value={d.send_at} onInput={(send_at) => set({ send_at })} wrong={wrong.send_at} />}
      <Foot draft={d} busy={busy} saving={saving} onFiles={add} onDiscard={throwAway} onLater={() => set({ send_at: d.send_at === undefined ? inAnHour() : undefined })} />
    </form>
  )
}

interface PeopleProps { draft: Draft; set: (to: Partial<Draft>) => void; wrong: Wrong; copies: { cc: boolean; bcc: boolean }; setCopies: (to: { cc: boolean; bcc: boolean }) => void }

function People({ draft: d, set, wrong, copies, setCopies }: PeopleProps) {
  const cc = copies.cc || d.cc.length > 0, bcc = copies.bcc || d.bcc.length > 0
  const more = (
    <span class="compose-more">
      {!cc && <button type="button" class="inbox-link" onClick={() => setCopies({ ...copies, cc: true })}>Cc</button>}
      {!bcc && <button type="button" class="inbox-link" onClick={() => setCopies({ ...copies, bcc: true })}>Bcc</button>}
    </span>
  )
  return (
    <>
      <Chips label="To" userID={d.from.user_id} people={d.to} onChange={(to) => set({ to })} wrong={wrong.to} autoFocus={d.to.length === 0} after={cc && bcc ? undefined : more} />
      {cc && <Chips label="Cc" userID={d.from.user_id} people={d.cc} onChange={(cc) => set({ cc })} wrong={wrong.cc} autoFocus={copies.cc} />}
      {bcc && <Chips label="Bcc" userID={d.from.user_id} people={d.bcc} onChange={(bcc) => set({ bcc })} wrong={wrong.bcc} autoFocus={copies.bcc} />}
    </>
  )
}

function Subject({ value, onInput, wrong }: { value: string; onInput: (v: string) => void; wrong?: string }) {
  const id = useId()
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>Subject</label>
      <input id={id} type="text" dir="auto" value={value} maxLength={900} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined} onInput={(e) => onInput(e.currentTarget.value)} />
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

function Words({ value, onInput, autoFocus }: { value: string; onInput: (v: string) => void; autoFocus: boolean }) {
  const area = useRef<HTMLTextAreaElement>(null)
  useLayoutEffect(() => { // at once: who answers types at once
    if (!autoFocus) return
    area.current!.focus()
    area.current!.setSelectionRange(0, 0)
    area.current!.scrollTop = 0
  }, [])
  return <textarea ref={area} class="compose-text" dir="auto" aria-label="Message" placeholder="Write your message" value={value} onInput={(e) => onInput(e.currentTarget.value)} />
}

/** Chooses among the addresses that the mailbox may send as. */
function SendAs({ draft: d, onPick }: { draft: Draft; onPick: (as: string | undefined) => void }) {
  const mailbox = useQuery('get_email_user', { user_id: d.from.user_id }, { kinds: [], when: d.from.user_id !== '' })
  const addresses = mailbox.data?.user_id === d.from.user_id ? mailbox.data.send_as : []
  useSignature(d, mailbox.data?.user_id === d.from.user_id ? mailbox.data.signature : null)
  if (addresses.length < 2) return null
  return (
    <select class="compose-as" aria-label="Send as" value={d.as ?? addresses[0]} onChange={(e) => onPick(e.currentTarget.value === addresses[0] ? undefined : e.currentTarget.value)}>
      {addresses.map((a) => <option key={a} value={a} selected={a === (d.as ?? addresses[0])}>as {a}</option>)}
    </select>
  )
}

/** Puts the mailbox's signature below a message that has just been begun. */
function useSignature(d: Draft, signature: string | null) {
  useEffect(() => {
    if (!signature || d.signature !== undefined || d.saved) return
    const below = `\n\n-- \n${signature}\n`
    const at = d.text.startsWith('\n\n') && d.text.trim() !== '' ? below + d.text : d.text === '' ? below : undefined
    change(d.key, at === undefined ? { signature: '' } : { text: at, signature: d.text === '' ? below : '' })
  }, [signature, d.key])
}

function inAnHour(): string {
  return localTime(new Date(Date.now() + 3_600_000))
}

function Later({ value, onInput, wrong }: { value: string; onInput: (v: string) => void; wrong?: string }) {
  const id = useId()
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>Send at</label>
      <input id={id} type="datetime-local" value={value} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined} onInput={(e) => onInput(e.currentTarget.value)} />
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

const savings: Record<Saving, string> = { '': '', saving: 'Saving…', saved: 'Saved in Drafts', failed: 'Not saved on the server yet' }

function Foot({ draft: d, busy, saving, onFiles, onDiscard, onLater }: { draft: Draft; busy: boolean; saving: Saving; onFiles: (files: File[]) => void; onDiscard: () => void; onLater: () => void }) {
  const size = sizeOf(d.files, d.text)
  return (
    <div class="compose-foot">
      <Button type="submit" look="primary" icon="send" busy={busy} disabled={d.fetching} title="Ctrl + Enter">{d.send_at ? 'Schedule' : 'Send'}</Button>
      <FilePicker onFiles={onFiles} />
      <IconButton look="ghost" icon="clock" label={d.send_at === undefined ? 'Choose a time' : 'Remove the time'} onClick={onLater} />
      {d.files.length > 0 && <span class={'small ' + (size > mostBytes ? 'compose-wrong' : 'muted')}>{bytes(size)} of {bytes(mostBytes)}</span>}
      <span class="grow truncate small muted" role="status">{savings[saving]}</span>
      <IconButton look="ghost" icon="trash" label="Discard draft" onClick={onDiscard} />
    </div>
  )
}

/** Gives a draft the mailbox that is asked for, else the last that sent, else the newest one. */
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
  return (await call('list_email_users', { limit: 100 })).data.find(maySend)
}

const mostPeople = 50

/** What the server would refuse. */
function check(d: Draft): Wrong {
  const wrong: Wrong = {}
  if (!d.from.user_id) wrong.from = 'Choose a mailbox to send from.'
  for (const field of ['to', 'cc', 'bcc'] as const) {
    const bad = d[field].find((p) => !isEmail(p))
    if (bad) wrong[field] = `“${bad}” is not a valid email address. Correct or remove it.`
  }
  const n = new Set([...d.to, ...d.cc, ...d.bcc].map((p) => emailOf(p).toLowerCase())).size
  if (n === 0) wrong.to = 'Add at least one recipient.'
  if (n > mostPeople) wrong.to = `A message can have at most ${plural(mostPeople, 'recipient')}. Remove ${n - mostPeople}.`
  if (sizeOf(d.files, d.text) > mostBytes) wrong.attachments = `A message can be at most ${bytes(mostBytes)}. Remove a file, or send a link to it.`
  return wrong
}

const undoFor = 10_000 // ms in which a message that was sent can be taken back

interface Unsure { key: string; send_at: number; uid?: string }

const unsure = new WeakMap<Draft, Unsure>() // drafts that may have been sent, though no answer came: what they were sent with

/** Sends a draft; one that was sent before and has not changed since goes out once. */
async function post(d: Draft): Promise<{ sent: Schemas['EmailQueued']; until: number }> {
  const with_ = unsure.get(d) ?? {
    key: [...crypto.getRandomValues(new Uint8Array(16))].map((n) => n.toString(16).padStart(2, '0')).join(''),
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

function focusWrong(form: HTMLFormElement | null) {
  setTimeout(() => form?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus())
}

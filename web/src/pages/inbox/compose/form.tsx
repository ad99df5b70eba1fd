// The form in which a message is written.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { ApiError, call, callOnce, type Schemas } from '../../../api/client'
import { ask, Button, bytes, IconButton, plural } from '../../../ui'
import { emailOf, isEmail } from '../people'
import { localTime } from '../../sent/words'
import { MailboxPicker, maySend } from '../picker'
import { Chips } from './chips'
import { change, changed, discard, draftOf, isEmpty, lastSender, rememberSender, type Draft } from './draft'
import { DropZone, encode, FileList, FilePicker, list, mostBytes, sizeOf } from './files'
import { Refusal, wrongIn, type Wrong } from './refusal'

export type Sent = Schemas['EmailQueued'] & { subject: string }

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

  const send = async () => {
    setBusy(true)
    setError(undefined)
    try {
      const { from } = draftOf(key)
      const sent = await post(draftOf(key))
      rememberSender(from.email)
      discard(key)
      onSent({ ...sent, subject: d.subject })
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
          <MailboxPicker label="From" value={d.from.email} active onPick={(m) => { if (m) set({ from: { user_id: m.user_id, email: m.email } }) }} />
          {wrong.from && <span class="compose-wrong">{wrong.from}</span>}
        </div>
        <People draft={d} set={set} wrong={wrong} copies={copies} setCopies={setCopies} />
        <Subject value={d.subject} onInput={(subject) => set({ subject })} wrong={wrong.subject} />
        <Words value={d.text} onInput={(text) => set({ text })} autoFocus={d.to.length > 0} />
        <FileList files={d.files} fetching={d.fetching} lost={d.lost} onForget={() => set({ lost: [] })} wrong={wrong.attachments} onRemove={(at) => set({ files: d.files.filter((_, i) => i !== at) })} />
        <Refusal error={error} from={d.from} known={wrong} />
      </DropZone>
      {d.send_at !== undefined && <Later value={d.send_at} onInput={(send_at) => set({ send_at })} wrong={wrong.send_at} />}
      <Foot draft={d} busy={busy} onFiles={add} onDiscard={throwAway} onLater={() => set({ send_at: d.send_at === undefined ? inAnHour() : undefined })} />
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
      <Chips label="To" people={d.to} onChange={(to) => set({ to })} wrong={wrong.to} autoFocus={d.to.length === 0} after={cc && bcc ? undefined : more} />
      {cc && <Chips label="Cc" people={d.cc} onChange={(cc) => set({ cc })} wrong={wrong.cc} autoFocus={copies.cc} />}
      {bcc && <Chips label="Bcc" people={d.bcc} onChange={(bcc) => set({ bcc })} wrong={wrong.bcc} autoFocus={copies.bcc} />}
    </>
  )
}

function Subject({ value, onInput, wrong }: { value: string; onInput: (v: string) => void; wrong?: string }) {
  const id = useId()
  return (
    <div class={'compose-line' + (wrong ? ' wrong' : '')}>
      <label for={id}>Subject</label>
      <input id={id} type="text" value={value} maxLength={900} aria-invalid={wrong ? 'true' : undefined} aria-describedby={wrong ? id + 'w' : undefined} onInput={(e) => onInput(e.currentTarget.value)} />
      {wrong && <span class="compose-wrong" id={id + 'w'}>{wrong}</span>}
    </div>
  )
}

function Words({ value, onInput, autoFocus }: { value: string; onInput: (v: string) => void; autoFocus: boolean }) {
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => {
    if (!autoFocus) return
    area.current!.focus()
    area.current!.setSelectionRange(0, 0)
    area.current!.scrollTop = 0
  }, [])
  return <textarea ref={area} class="compose-text" aria-label="Message" placeholder="Write your message" value={value} onInput={(e) => onInput(e.currentTarget.value)} />
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

function Foot({ draft: d, busy, onFiles, onDiscard, onLater }: { draft: Draft; busy: boolean; onFiles: (files: File[]) => void; onDiscard: () => void; onLater: () => void }) {
  const size = sizeOf(d.files, d.text)
  return (
    <div class="compose-foot">
      <Button type="submit" look="primary" icon="send" busy={busy} disabled={d.fetching} title="Ctrl + Enter">{d.send_at ? 'Schedule' : 'Send'}</Button>
      <FilePicker onFiles={onFiles} />
      <IconButton look="ghost" icon="clock" label={d.send_at === undefined ? 'Choose a time' : 'Remove the time'} onClick={onLater} />
      {d.files.length > 0 && <span class={'small ' + (size > mostBytes ? 'compose-wrong' : 'muted')}>{bytes(size)} of {bytes(mostBytes)}</span>}
      <span class="grow" />
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

const unsure = new WeakMap<Draft, string>() // drafts that may have been sent, though no answer came: the keys they were sent with

/** Sends a draft; one that was sent before and has not changed since goes out once. */
async function post(d: Draft): Promise<Schemas['EmailQueued']> {
  const key = unsure.get(d) ?? [...crypto.getRandomValues(new Uint8Array(16))].map((n) => n.toString(16).padStart(2, '0')).join('')
  unsure.set(d, key)
  try {
    return await postOnce(key, d)
  } catch (error) {
    if (!(error instanceof ApiError) || (error.status > 0 && error.status < 500 && error.code !== 'idempotency_in_progress')) unsure.delete(d)
    throw error
  }
}

async function postOnce(key: string, d: Draft): Promise<Schemas['EmailQueued']> {
  const attachments = []
  for (const f of d.files) attachments.push(await encode(f))
  return callOnce(key, 'send_email', {
    user_id: d.from.user_id, to: d.to.length > 0 ? d.to : [], cc: d.cc.length > 0 ? d.cc : undefined, bcc: d.bcc.length > 0 ? d.bcc : undefined,
    subject: d.subject, text: d.text, in_reply_to: d.in_reply_to, references: d.references?.length ? d.references : undefined,
    send_at: d.send_at ? new Date(d.send_at).toISOString() : undefined,
    attachments: attachments.length > 0 ? attachments : undefined,
  })
}

function focusWrong(form: HTMLFormElement | null) {
  setTimeout(() => form?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus())
}

// Drafts are saved in the Drafts folder of the mailbox, once their writer pauses.
import { useEffect, useRef, useState } from 'preact/hooks'
import { call, can, type Input } from '../../../api/client'
import { change, draftOf, filesOf, isEmpty, sentHTML, type Draft } from './draft'
import { encode } from './files'
import { isEmail } from '../people'

const pause = 2000, pauseWithFiles = 15_000 // ms without a change

export type Saving = '' | 'saving' | 'saved' | 'failed'

type Body = Omit<Input<'send_email'>, 'user_id'>

/** What a draft says, as send_email and create_draft take it. */
export async function bodyOf(d: Draft): Promise<Body> {
  const { attached, images } = filesOf(d)
  const attachments: NonNullable<Body['attachments']> = []
  for (const { cid, file } of images) attachments.push({ ...await encode(file), content_id: cid })
  for (const f of attached) attachments.push(await encode(f))
  return {
    from: d.as || undefined, to: d.to, cc: d.cc.length > 0 ? d.cc : undefined, bcc: d.bcc.length > 0 ? d.bcc : undefined, subject: d.subject, text: d.text, html: sentHTML(d), in_reply_to: d.in_reply_to,
    references: d.references?.length ? d.references : undefined, attachments: attachments.length > 0 ? attachments : undefined,
  }
}

const writing = new Map<string, Promise<unknown>>() // saves under way, by the draft's key

/** Waits until a draft is not being saved any more. */
export async function settled(key: string) {
  await writing.get(key)?.catch(() => { /* it is told elsewhere */ })
}

async function save(key: string) {
  const d = draftOf(key)
  const user_id = d.from.user_id
  const fine = (list: string[]) => list.filter(isEmail) // what is no address yet is kept in the browser alone
  const body = await bodyOf({ ...d, to: fine(d.to), cc: fine(d.cc), bcc: fine(d.bcc) })
  if (d.saved && d.saved.user_id !== user_id) await forgetSaved(d) // another mailbox sends it now
  const before = d.saved?.user_id === user_id ? d.saved : undefined
  const saved = before ? await call('update_draft', { user_id, message_id: before.uid, ...body }).catch((error) => {
    if (error.status !== 404) throw error
    return call('create_draft', { user_id, ...body }) // it was deleted elsewhere
  }) : await call('create_draft', { user_id, ...body })
  change(key, { saved: { user_id, uid: saved.uid } })
}

/** Deletes what is saved of a draft on the server. */
export async function forgetSaved(d: Draft) {
  if (!d.saved) return
  await call('delete_message', { user_id: d.saved.user_id, message_id: d.saved.uid, folder: 'drafts' }).catch(() => { /* it is gone, or stays in Drafts */ })
}

/** Saves a draft whenever its writer pauses or leaves it. busy: it is being sent, so not now. */
export function useSaving(key: string, busy: boolean): Saving {
  const [state, setState] = useState<Saving>('')
  const d = draftOf(key)
  const says = JSON.stringify([d.from.user_id, d.as, d.to, d.cc, d.bcc, d.subject, d.text, d.html, d.files.map((f) => [f.name, f.size])])
  const [known, setKnown] = useState(says) // what it said when it was opened or saved
  const foreign = useRef(d.foreign)
  useEffect(() => { // the editor has taken what another program wrote: only what its writer changes is saved
    if (!foreign.current || d.foreign) return
    foreign.current = false
    setKnown(says)
  })
  const unsaved = !busy && can('create_draft') && !d.fetching && !d.foreign && !foreign.current && d.from.user_id !== '' && says !== known && (!isEmpty(d) || d.saved !== undefined)
  const run = async () => {
    await settled(key)
    const saving = save(key)
    writing.set(key, saving)
    setState('saving')
    try {
      await saving
      setKnown(says)
      setState('saved')
    } catch {
      setState('failed')
    }
    if (writing.get(key) === saving) writing.delete(key)
  }
  useEffect(() => {
    if (!unsaved) return
    const timer = setTimeout(run, d.files.length > 0 ? pauseWithFiles : pause)
    return () => clearTimeout(timer)
  }, [says, busy, d.fetching, known, d.foreign])
  const leave = useRef(() => {})
  leave.current = () => { if (unsaved && !isEmpty(draftOf(key))) void run() }
  useEffect(() => () => leave.current(), [])
  return says === known ? state : state === 'saving' ? 'saving' : ''
}

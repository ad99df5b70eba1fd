// Files of messages that are being written, kept in the browser so that they outlive a reload of the page. They go when the
// message is sent or discarded, when somebody signs out, and after two days.
import { beforeSignOut } from '../../../api/session'

const mostBytes = 100 * 1024 * 1024 // of all drafts
const longest = 48 * 3600 * 1000 // ms

interface Kept { place: string; files: File[]; size: number; at: number }

/** Names this tab: the texts of its drafts are its own too. */
function tab(): string {
  let id = sessionStorage.getItem('tab')
  if (!id) sessionStorage.setItem('tab', id = crypto.getRandomValues(new Uint32Array(4)).join('-'))
  return id
}

let opened: Promise<IDBDatabase> | undefined

function database(): Promise<IDBDatabase> {
  opened ??= new Promise((done, fail) => {
    const request = indexedDB.open('drafts', 1)
    request.onupgradeneeded = () => request.result.createObjectStore('files', { keyPath: 'place' })
    request.onsuccess = () => done(request.result)
    request.onerror = () => fail(request.error)
  })
  return opened
}

let queue: Promise<unknown> = Promise.resolve() // one after the other, in the order of what was done

/** Does one thing with the store. Where the browser keeps nothing, or has no room, the answer is undefined. */
function within<T>(act: (store: IDBObjectStore) => IDBRequest<T> | void): Promise<T | undefined> {
  const next = queue.then(async () => {
    const transaction = (await database()).transaction('files', 'readwrite')
    const request = act(transaction.objectStore('files'))
    await new Promise((done, fail) => {
      transaction.oncomplete = done
      transaction.onerror = transaction.onabort = () => fail(transaction.error)
    })
    return request?.result
  }).catch(() => undefined)
  queue = next
  return next
}

/** Keeps the files of a draft in place of those before. */
export function keepFiles(draft: string, files: File[]) {
  if (files.length === 0) return dropFiles(draft)
  const size = files.reduce((sum, f) => sum + f.size, 0)
  void within((store) => {
    const place = tab() + draft
    if (size > mostBytes) return void store.delete(place)
    const all = store.getAll() as IDBRequest<Kept[]>
    all.onsuccess = () => {
      let room = mostBytes - size
      for (const k of all.result.filter((k) => k.place !== place).sort((a, b) => b.at - a.at)) {
        room -= k.size
        if (room < 0 || k.at < Date.now() - longest) store.delete(k.place)
      }
      store.put({ place, files, size, at: Date.now() } satisfies Kept)
    }
  })
}

/** The files of a draft that are kept. */
export async function keptFiles(draft: string): Promise<File[]> {
  return ((await within((store) => store.get(tab() + draft) as IDBRequest<Kept | undefined>))?.files) ?? []
}

export function dropFiles(draft: string) {
  void within((store) => store.delete(tab() + draft))
}

beforeSignOut(() => within((store) => store.clear()))

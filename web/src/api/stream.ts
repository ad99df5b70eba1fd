// What changes on the server, told by one stream of server-sent events.
import { signal } from '@preact/signals'

export type Kind =
  | 'domain' | 'mailbox' | 'inbox' | 'job' | 'message' | 'webhook' | 'delivery' | 'suppression' | 'approval' | 'token' | 'user'
  | 'account' | 'template' | 'record' | 'export' | 'event'

export interface Change { kind: Kind; id: string }

type Listener = (changes: Change[] | 'all') => void

const listeners = new Set<Listener>()

/** Whether changes reach the page at the moment. */
export const live = signal(false)

/** Set once the server runs another version than the page. */
export const outdated = signal(false)

/** Calls the listener with what changed; 'all' after a gap, when anything may have. Returns how to stop. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

let source: EventSource | undefined
let build = ''
let retry: ReturnType<typeof setTimeout> | undefined

// A page that nobody sees needs no stream: browsers open few connections to one host over HTTP/1.1.
const unseen = 30_000
let hidden: ReturnType<typeof setTimeout> | undefined
let wanted = false
let refused = () => {}

const patience = 1000 // ms that a page waits for the stream before it reads without
let late = false
let greet = () => {}

// Once the network is back the stream is opened anew, which reads everything again: the old one may
// hang for minutes.
addEventListener('offline', close)
addEventListener('online', () => {
  close()
  if (wanted) open()
})

const longest = 50_000 // ms of silence; the server sends a ping every 20 s
let silence: ReturnType<typeof setTimeout> | undefined

/** Opens the stream anew if nothing comes through it, as after a change of networks. */
function watch() {
  clearTimeout(silence)
  silence = setTimeout(() => {
    close()
    open()
  }, longest)
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(hidden)
  if (document.visibilityState === 'hidden') rest()
  else if (wanted) open()
})

let needed = 0 // how many want the stream also while nobody sees the page

function rest() {
  if (needed === 0) hidden = setTimeout(close, unseen)
}

/** Keeps the stream open also while nobody sees the page. Returns how to stop. */
export function keepOpen(): () => void {
  needed++
  clearTimeout(hidden)
  return () => {
    needed--
    if (document.visibilityState === 'hidden') rest()
  }
}

/**
 * Opens the stream, if it is not open, and keeps it open while the page is seen. Calls whenRefused if the server gives none.
 * What is read once the promise is kept is told of all that changes after it; else everything is read anew.
 */
export function listen(whenRefused: () => void): Promise<void> {
  wanted = true
  refused = whenRefused
  late = false
  open()
  return new Promise((done) => {
    greet = done
    if (live.value) done()
    setTimeout(() => {
      late = true
      done()
    }, patience)
  })
}

function open() {
  if (source) return
  clearTimeout(retry)
  watch()
  let greeted = false
  source = new EventSource('/session/stream')
  source.addEventListener('hello', (e) => {
    const hello = JSON.parse(e.data) as { build: string }
    if (build !== '' && build !== hello.build) outdated.value = true
    if (build !== '' || greeted || late) tell('all')
    build = hello.build
    greeted = true
    live.value = true
    greet()
    watch()
  })
  source.addEventListener('ping', watch)
  source.addEventListener('change', (e) => {
    watch()
    tell(JSON.parse(e.data) as Change[])
  })
  source.addEventListener('reset', () => tell('all'))
  source.onerror = () => {
    live.value = false
    if (source?.readyState !== EventSource.CLOSED) return // the browser tries again by itself
    close()
    retry = setTimeout(open, 5000)
    greet()
    refused()
  }
}

/** Closes the stream for good. */
export function hush() {
  wanted = false
  close()
}

function close() {
  clearTimeout(retry)
  clearTimeout(silence)
  source?.close()
  source = undefined
  live.value = false
}

function tell(changes: Change[] | 'all') {
  for (const listener of [...listeners]) listener(changes)
}

// Calls of /v1 and /session. Every operation is called by its name with one object that holds path parameters, query
// parameters and body fields alike, as `mailstead call` does.
import { signal } from '@preact/signals'
import { setClock } from './clock'
import { operations } from './generated/operations'
import type { components, operations as Operations } from './generated/schema'
import { signedInAgain } from './proof'
import { mendOf, wordsOf, wrongWith, type Fault, type Mend } from './wording'

export { serverNow } from './clock'

export type Schemas = components['schemas']
export type Operation = keyof typeof operations & keyof Operations

type Filled<T> = [T] extends [never] ? {} : T extends object ? T : {}
type Json<T> = [T] extends [{ content: { 'application/json': infer B } }] ? ([T] extends [never] ? {} : B) : {}
type Params<O extends Operation> = Operations[O]['parameters']
type Body<O extends Operation> = Operations[O] extends { requestBody?: infer B } ? Json<NonNullable<B>> : {}

/** What an operation takes. */
export type Input<O extends Operation> = Filled<Params<O>['path']> & Filled<NonNullable<Params<O>['query']>> & Body<O>

type Answers<O extends Operation> = Operations[O]['responses']
type Success<R> = R extends { 200: infer A } ? Json<A> : R extends { 201: infer A } ? Json<A> : R extends { 202: infer A } ? Json<A> : unknown

// list_jobs answers one job too, if it is asked for one; pages ask get_job.
type Listed<T> = [Extract<T, { pagination: unknown }>] extends [never] ? T : Extract<T, { pagination: unknown }>

/** What an operation answers. */
export type Output<O extends Operation> = Listed<Success<Answers<O>>>

export interface Session {
  kind: 'team' | 'mailbox'
  /** A member who sees some mailboxes alone. */
  limited: boolean
  /** Runs the installation. */
  operator: boolean
  /**
   * Who runs the installation has signed in by a link, and neither sees nor changes who has
   * access.
   */
  by_operator: boolean
  /** The password is another's choice: the user has to choose one before anything else. */
  choose_password: boolean
  /** Who is signed in; for the person of a mailbox, the mailbox. */
  user: {
    id: string; name: string; email: string; role: 'owner' | 'admin' | 'member' | 'person'
    totp_enabled: boolean; recovery_codes_left: number
    passkeys: { id: string; name: string; created_at: string; last_used_at: string | null }[]
  }
  account: { id: string; name: string; plan: string }
  permissions: string[]
  sandbox: boolean
  outbound: 'capture' | 'relay' | 'direct'
  smtp_port: number
  hostname: string
  version: string
  api_base: string
  expires_at: string
}

/** Who is signed in: undefined until it is known, null if nobody is. */
export const session = signal<Session | null | undefined>(undefined)

/** Whether the person of a mailbox is signed in, who sees that mailbox alone. */
export function person(): boolean {
  return session.value?.kind === 'mailbox'
}

let ended = 0
session.subscribe((s) => { if (s === null) ended++ })

/** Gives a function that tells whether the session is still the one of now: a late answer says nothing about another. */
export function sameSession(): () => boolean {
  const before = ended
  return () => ended === before
}

/** An answer that is no success, in the dashboard's words. */
export class ApiError extends Error {
  /** When what failed is tried again automatically, in ms since 1970; 0 if it is not. */
  again = 0
  readonly code: string
  readonly details: NonNullable<Fault['details']>
  readonly requestId: string
  readonly retryAfter: number
  readonly mend: Mend | undefined

  constructor(readonly status: number, fault: Fault) {
    super(wordsOf(fault))
    this.code = fault.code
    this.details = fault.details ?? []
    this.requestId = fault.requestId ?? ''
    this.retryAfter = fault.retryAfter ?? 0
    this.mend = mendOf(fault)
  }

  /** What is wrong with a field of the form, if the error is about it. */
  of(field: string): string | undefined {
    const detail = this.detailOf(field)
    return detail && wrongWith(detail, this.code)
  }

  /** The detail that is about a field of the form. */
  detailOf(field: string) {
    return this.details.find((d) => isAbout(d, field))
  }
}

/** Whether a detail is about a field of a form, or a part of it. */
export function isAbout({ field: of }: { field: string }, field: string): boolean {
  return of === field || of.startsWith(field + '.') || of.startsWith(field + '[')
}

/** The error where the server cannot be reached. */
export function offline(): ApiError {
  return new ApiError(0, { code: 'offline', message: '' })
}

/** Tells whether the signed-in user's role lets them use the operation; the server refuses it as well. */
export function can(operation: Operation): boolean {
  const s = session.value
  return !!s && operations[operation][3].includes(s.limited ? 'l' : s.user.role[0]!)
}

/** Calls one operation of /v1. */
export function call<O extends Operation>(operation: O, ...[input]: {} extends Input<O> ? [Input<O>?] : [Input<O>]): Promise<Output<O>> {
  return callBy(operation, input ?? {})
}

/** Calls one that must not happen twice: a second call with the key gets the first one's answer. */
export function callOnce<O extends Operation>(key: string, operation: O, input: Input<O>): Promise<Output<O>> {
  return callBy(operation, input, { 'Idempotency-Key': key })
}

function callBy<O extends Operation>(operation: O, input: object, headers?: Record<string, string>): Promise<Output<O>> {
  const [method, template, , , ...queryNames] = operations[operation] as readonly string[]
  const rest: Record<string, unknown> = { ...input }
  const path = template!.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = encodeURIComponent(String(rest[name]))
    delete rest[name]
    return value
  })
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(rest)) {
    if (method !== 'GET' && !queryNames.includes(name)) continue
    delete rest[name]
    if (value !== undefined && value !== null && value !== '') query.set(name, String(value))
  }
  const search = query.size > 0 ? '?' + query : ''
  const body = method === 'GET' || method === 'DELETE' ? undefined : rest
  const ask = () => request(method!, path + search, body, headers) as Promise<Output<O>>
  return ask().catch(async (error: ApiError) => {
    if (error.code !== 'sign_in_again' || !await signedInAgain()) throw error
    return ask()
  })
}

let leaving = false // then a request goes on without the page
addEventListener('pagehide', () => { leaving = true }, { capture: true })
addEventListener('pageshow', () => { leaving = false })

let began = 0 // sessions that this page has begun: each ends the one before it
let beginning: Promise<unknown> = Promise.resolve()

/** Begins a session by what is sent to the path, and has enter show it. */
export function beginSession(path: string, body: unknown, enter: (session: unknown) => Promise<void>): Promise<void> {
  const entered = send('POST', path, body).then(enter)
  beginning = entered.then(() => { began++ }, () => { /* the session before goes on */ })
  return entered
}

/** Sends one request of the page's own origin and gives its JSON. */
export async function request(method: string, path: string, body?: unknown, more?: Record<string, string>): Promise<unknown> {
  const still = sameSession(), before = began, who = session.value?.user.id
  try {
    return await send(method, path, body, more)
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'unauthorized' || !session.value || !still()) throw error
    await beginning
    if (!still() || session.value.user.id !== who) throw error
    if (began !== before) return request(method, path, body, more) // it was sent in the session before
    session.value = null
    throw error
  }
}

async function send(method: string, path: string, body?: unknown, more?: Record<string, string>): Promise<unknown> {
  const headers: Record<string, string> = { Accept: 'application/json', ...more }
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  let response: Response, text: string
  const asked = Date.now()
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'same-origin', keepalive: leaving })
    setClock(response.headers.get('Date'), asked, Date.now())
    text = await response.text()
  } catch {
    throw offline()
  }
  const answer = parse(text)
  if (response.ok) return answer
  throw errorOf(response, answer, path)
}

/**
 * Fetches something of the page's own origin that is no JSON, such as a file. Its errors are those
 * of request.
 */
export async function fetched(path: string, more?: RequestInit): Promise<Response> {
  const response = await fetch(path, { credentials: 'same-origin', ...more }).catch(() => { throw offline() })
  if (!response.ok) throw errorOf(response, parse(await response.text()), path)
  return response
}

function parse(text: string): unknown {
  try {
    return text === '' ? {} : JSON.parse(text)
  } catch {
    return undefined
  }
}

function errorOf(response: Response, answer: unknown, path: string): ApiError {
  const e = (answer as { error?: Schemas['ErrorDetails'] } | undefined)?.error
  const retryAfter = e?.retry_after ?? Number(response.headers.get('Retry-After') ?? 0)
  if (!e) return new ApiError(response.status, { code: 'unreadable', message: '', retryAfter })
  const code = e.code === 'not_found' && path.startsWith('/session/welcome') ? 'link_expired' : e.code
  return new ApiError(response.status, { code, message: e.message, details: e.details, requestId: e.request_id, retryAfter })
}

// Reads that stay fresh: what a page shows is read again when the stream tells that it changed.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Again } from './again'
import { call, can, type ApiError, type Input, type Operation, type Output } from './client'
import { onChange, type Change, type Kind } from './stream'

/** A read: its answer, or why there is none. Both are set when a later read failed. */
export interface Query<T> {
  data: T | undefined
  error: ApiError | undefined
  loading: boolean
  reload: () => Promise<void>
}

interface Options {
  /** Reads again when one of these changed; by default those that the operation is about. */
  kinds?: Kind[]
  /** Narrows to changes of these things. */
  only?: (change: Change) => boolean
  /** Reads nothing while false. */
  when?: boolean
  /** The least milliseconds between two reads because of changes. */
  pause?: number
}

const usualPause = 2000 // a busy account changes all the time, and requests are limited

const kindsOf: Partial<Record<Operation, Kind[]>> = {
  get_account: ['account', 'domain', 'mailbox', 'user', 'webhook'],
  get_usage: ['account', 'domain', 'mailbox', 'inbox', 'message'],
  list_domains: ['domain'], get_domain: ['domain'], get_dns_status: ['domain'], get_dns_records: ['domain'],
  list_custom_dns_records: ['record'],
  list_email_users: ['mailbox'], list_domain_email_users: ['mailbox'], get_email_user: ['mailbox', 'inbox', 'message'],
  list_templates: ['template'],
  list_inbox: ['inbox'], list_email_user_inbox: ['inbox'], get_message: ['inbox'],
  list_messages: ['message'], get_reputation: ['message', 'mailbox', 'domain'], get_sent_message: ['message'], list_suppressions: ['suppression'],
  list_approvals: ['approval'], get_approval: ['approval'],
  list_webhooks: ['webhook'], get_webhook: ['webhook'], list_webhook_deliveries: ['delivery'],
  list_jobs: ['job'], get_job: ['job'], list_events: ['event'],
  list_tokens: ['token'], list_team_users: ['user'],
}

const answers = new Map<string, { answer: unknown; weight: number }>() // the last one of each read, shown at once when a page is opened again
const mostAnswers = 200
const mostWeight = 16_000_000 // of all answers together, in characters: one message may have two million
let weight = 0
let epoch = 0 // rises when they are forgotten

/** Keeps the answer to a read that began in an epoch. What was asked by somebody who is gone is not for who comes next. */
function remember(key: string, answer: unknown, of: number) {
  if (of !== epoch) return
  drop(key)
  answers.set(key, { answer, weight: weigh(answer) })
  weight += answers.get(key)!.weight
  while (answers.size > mostAnswers || (weight > mostWeight && answers.size > 1)) drop(answers.keys().next().value!)
}

function drop(key: string) {
  weight -= answers.get(key)?.weight ?? 0
  answers.delete(key)
}

function weigh(value: unknown): number {
  if (typeof value === 'string') return value.length
  return value === null || typeof value !== 'object' ? 4 : Object.values(value).reduce<number>((sum, v) => sum + weigh(v), 16)
}

const begun = new Map<string, { at: number; answer: Promise<unknown> }>()
const together = 100 // milliseconds within which parts of a page that read the same share one request

function shared<T>(key: string, read: () => Promise<T>): Promise<T> {
  const other = begun.get(key)
  if (other && Date.now() - other.at < together) return other.answer as Promise<T>
  const answer = read().finally(() => { if (begun.get(key)?.answer === answer) begun.delete(key) })
  begun.set(key, { at: Date.now(), answer })
  return answer
}

// What was begun before a change may not know of it.
onChange(() => begun.clear())

/** Forgets all answers, when somebody signs in or out. */
export function forget() {
  answers.clear()
  begun.clear()
  weight = 0
  epoch++
}

/** Reads by one operation, again when what it is about changed. */
export function useQuery<O extends Operation>(operation: O, input: Input<O>, options: Options = {}): Query<Output<O>> {
  const key = operation + JSON.stringify(input)
  return useRead(key, () => call(operation, ...([input] as never)) as Promise<Output<O>>, { kinds: kindsOf[operation], ...options })
}

/** Reads by a function of one's own. The key says what is read: with another one it is read anew. */
export function useRead<T>(key: string, read: () => Promise<T>, { kinds, only, when = true, pause }: Options = {}): Query<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: ApiError; loading: boolean }>({ key: '', loading: true })
  const latest = useRef({ key, read, only, turn: 0 })
  latest.current = { key, read, only, turn: latest.current.turn }

  const again = useMemo(() => new Again(), [])
  const look = useMemo(() => async () => {
    const turn = ++latest.current.turn
    const { key, read } = latest.current
    const now = epoch
    again.stop()
    try {
      const data = await shared(key, read)
      remember(key, data, now)
      if (turn !== latest.current.turn) return
      again.done()
      setState({ key, data, loading: false })
    } catch (error) {
      if (turn !== latest.current.turn) return
      again.after(error, look)
      setState((s) => ({ key, data: s.key === key ? s.data : undefined, error: error as ApiError, loading: false }))
    }
  }, [])
  const reload = useMemo(() => () => {
    begun.delete(latest.current.key) // it is called after something was done, which an earlier request may not know of
    return look()
  }, [])

  useLayoutEffect(() => { // asks before the first picture, not after it
    if (!when) return
    void look()
    return () => {
      latest.current.turn++
      again.done()
    }
  }, [key, when])
  useFresh(kinds, (change) => latest.current.only?.(change) ?? true, () => { if (!again.waits) void look() }, when, pause)

  if (state.key === key) return { data: state.data, error: state.error, loading: state.loading, reload }
  const before = answers.get(key)?.answer as T | undefined
  return { data: before, error: undefined, loading: when && before === undefined, reload }
}

/** Calls reload at once after a change of the kinds, and then at most once in a pause. */
function useFresh(kinds: Kind[] | undefined, only: (change: Change) => boolean, reload: () => void, when: boolean, pause = usualPause) {
  const names = kinds?.join() ?? ''
  const narrow = useRef(only)
  narrow.current = only
  useEffect(() => {
    if (!when || names === '') return
    let timer: ReturnType<typeof setTimeout> | undefined
    let last = 0
    const stop = onChange((changes) => {
      const concerned = changes === 'all' || changes.some((c) => kinds!.includes(c.kind) && narrow.current(c))
      if (!concerned || timer) return
      timer = setTimeout(() => {
        timer = undefined
        last = Date.now()
        reload()
      }, Math.max(0, last + pause - Date.now()))
    })
    return () => {
      stop()
      clearTimeout(timer)
    }
  }, [names, when])
}

/** A value that follows once it has been still for some milliseconds, such as what is typed. */
export function useLate<T>(value: T, ms: number): T {
  const [late, setLate] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setLate(value), ms)
    return () => clearTimeout(timer)
  }, [value])
  return late
}

interface Page<T> { data: T[]; pagination: { cursor: string | null; has_more: boolean } }
type Item<O extends Operation> = Output<O> extends { data: (infer T)[] } ? T : never

/** A list that is read page by page, as far as it is looked at. */
export interface Pages<T> {
  items: T[]
  error: ApiError | undefined
  loading: boolean // the first page
  more: boolean
  loadMore: () => void
  reload: () => Promise<void>
  /** Takes rows out at once, before the server has been asked again. */
  drop: (ids: Set<string>) => void
  /** Changes rows at once, likewise. */
  patch: (ids: Set<string>, change: Partial<T>) => void
}

interface Loaded<T> { key: string; items: T[]; pages: number; cursor: string | null; error?: ApiError; loading: boolean }

const firstPage = 25 // rows, which fill the screen: the first page is shorter, so that it is there soon

function pageOf<T>(operation: Operation, input: { limit?: number }, cursor: string | null): Promise<Page<T>> {
  const part = cursor === null ? { ...input, limit: Math.min(input.limit ?? firstPage, firstPage) } : { ...input, cursor }
  return call(operation as 'list_inbox', part as never) as unknown as Promise<Page<T>>
}

/** Reads the first page of a list, which then is there at once when usePages is first asked for it, and is read again. */
export async function readAhead<O extends Operation>(operation: O, input: Input<O>) {
  const key = 'pages of ' + operation + JSON.stringify(input), now = epoch
  if (answers.has(key) || !can(operation)) return
  const page = await pageOf<Item<O>>(operation, input as object, null)
  if (!answers.has(key)) remember(key, page.data, now)
}

const freshPages = 3 // so many pages are read again when something changed; rows below stay as they were read

const mostKept = 500 // rows that nobody scrolled to but that new ones pushed down

/** The rows of a list that lie below those that were read anew; none if the two do not meet. */
function below<T>(items: T[], before: T[], idOf: (item: T) => string): T[] {
  const seen = new Set(items.map(idOf))
  const places = new Map(before.map((item, i) => [idOf(item), i]))
  const last = items.findLast((item) => places.has(idOf(item)))
  return last === undefined ? [] : before.slice(places.get(idOf(last))! + 1).filter((item) => !seen.has(idOf(item)))
}

const known = new WeakMap<object, Set<string>>() // the ids of rows: with a hundred thousand, to collect them for each page takes long

/** The rows with those of the next page, but for those that are there already. */
function joined<T>(items: T[], page: T[], idOf: (item: T) => string): T[] {
  const ids = known.get(items) ?? new Set(items.map(idOf))
  const fresh = page.filter((item) => !ids.has(idOf(item)))
  for (const item of fresh) ids.add(idOf(item))
  const all = items.concat(fresh)
  known.delete(items)
  known.set(all, ids)
  return all
}

/**
 * Reads a long list page by page. When its kind changed the first pages are read again: new rows appear, changed ones
 * change, and those that are gone go.
 */
export function usePages<O extends Operation>(operation: O, input: Input<O>, idOf: (item: Item<O>) => string, options: Options = {}): Pages<Item<O>> {
  type T = Item<O>
  const key = operation + JSON.stringify(input)
  const { when = true } = options
  const [state, setState] = useState<Loaded<T>>({ key: '', items: [], pages: 0, cursor: null, loading: true })
  const latest = useRef({ key, state, turn: 0, busy: false })
  latest.current = { ...latest.current, key, state }
  const mine = state.key === key

  const again = useMemo(() => new Again(), [])
  const actions = useMemo(() => {
    const read = (cursor: string | null) => pageOf<T>(operation, JSON.parse(latest.current.key.slice(operation.length)), cursor)

    /** Reads the first pages, and on until one that was known comes; what lies below that is kept. */
    async function reload() {
      const turn = ++latest.current.turn
      again.stop()
      const { key, state: before } = latest.current
      const now = epoch
      const known = new Set(before.key === key ? before.items.map(idOf) : [])
      const shown = known.size > 0 ? before.pages : 1
      const meets = (items: T[]) => known.size === 0 || items.some((item) => known.has(idOf(item)))
      try {
        const items: T[] = []
        let cursor: string | null = null
        let pages = 0
        do {
          const page = await read(cursor)
          items.push(...page.data)
          cursor = page.pagination.cursor
          pages++
        } while (cursor !== null && pages < freshPages && (pages < shown || !meets(items)))
        if (turn !== latest.current.turn) return
        again.done()
        remember('pages of ' + key, items, now)
        setState((s) => { // more may have been read meanwhile
          const kept = s.key === key && cursor !== null ? below(items, s.items, idOf) : []
          if (kept.length === 0 || (s.pages <= pages && kept.length > mostKept)) return { key, items, pages, cursor, loading: false }
          return { key, items: [...items, ...kept], pages: s.pages, cursor: s.cursor, loading: false }
        })
      } catch (error) {
        if (turn !== latest.current.turn) return
        again.after(error, reload)
        setState((s) => ({ ...(s.key === key ? s : { key, items: [], pages: 0, cursor: null }), error: error as ApiError, loading: false }))
      }
    }

    async function more() {
      const { state, key, busy } = latest.current
      if (busy || state.key !== key || state.cursor === null) return
      latest.current.busy = true
      again.stop()
      const turn = latest.current.turn
      try {
        const page = await read(state.cursor)
        if (turn !== latest.current.turn) return
        again.done()
        setState((s) => ({ ...s, items: joined(s.items, page.data, idOf), pages: s.pages + 1, cursor: page.pagination.cursor, error: undefined }))
      } catch (error) {
        if (turn !== latest.current.turn) return
        again.after(error, more)
        setState((s) => ({ ...s, error: error as ApiError }))
      } finally {
        latest.current.busy = false
      }
    }

    return {
      reload,
      loadMore: () => void more(),
      drop: (ids: Set<string>) => setState((s) => ({ ...s, items: s.items.filter((item) => !ids.has(idOf(item))) })),
      patch: (ids: Set<string>, change: Partial<T>) => setState((s) => ({ ...s, items: s.items.map((item) => (ids.has(idOf(item)) ? { ...(item as object), ...change } as T : item)) })),
    }
  }, [operation])

  useLayoutEffect(() => {
    if (!when) return
    void actions.reload()
    return () => {
      latest.current.turn++
      again.done()
    }
  }, [key, when])
  useFresh(options.kinds ?? kindsOf[operation], options.only ?? (() => true), () => { if (!again.waits) void actions.reload() }, when, options.pause)

  const before = mine ? undefined : (answers.get('pages of ' + key)?.answer as T[] | undefined)
  return {
    items: mine ? state.items : (before ?? []), error: mine ? state.error : undefined,
    loading: mine ? state.loading : when && before === undefined, more: mine && state.cursor !== null, ...actions,
  }
}

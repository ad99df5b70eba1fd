// Signing in and out.
import { effect, signal } from '@preact/signals'
import { forget } from './query'
import { ApiError, beginSession, request, sameSession, session, type Session } from './client'
import { hush, listen, onChange } from './stream'

type Known = Omit<Session, 'user'> & {
  user: Session['user'] | null
  mailbox: { user_id: string; email: string; name: string } | null
  security: Pick<Session['user'], 'totp_enabled' | 'recovery_codes_left' | 'passkeys'>
}

/** A session as the pages have it: the person of a mailbox is a user too. */
function sessionOf(answer: unknown): Session {
  const s = answer as Known
  if (s.kind !== 'mailbox') return s as Session
  const { user_id, email, name } = s.mailbox!
  return { ...s, account: { id: user_id, name: email, plan: '' }, user: { id: user_id, name, email, role: 'person', ...s.security } }
}

/** Shows the pages of who is signed in, once they hear of what changes. */
async function enter(s: unknown) {
  await listen(check)
  session.value = sessionOf(s)
}

// Whoever ended the session, here or elsewhere: nothing of it stays in the page.
effect(() => {
  if (session.value !== null) return
  hush()
  forget()
})

// Roles and names change, and people are removed.
onChange((changes) => {
  const me = session.value?.user.id
  if (me && (changes === 'all' || changes.some((c) => (c.kind === 'user' || c.kind === 'mailbox') && c.id === me))) renew().catch(() => { /* as it was */ })
})

/** Leaves if the session has ended, elsewhere or by its age. */
async function check() {
  const still = sameSession()
  try {
    const here = (await request('GET', '/session/here')) as { session: unknown }
    if (!here.session && still()) session.value = null
  } catch {
    // the server cannot be reached, which does not end the session
  }
}

/** Finds out who is signed in, as often as it takes. */
export async function resume() {
  for (let pause = 1000; ; pause = Math.min(2 * pause, 15_000)) {
    try {
      const here = (await request('GET', '/session/here')) as { session: unknown }
      if (here.session) await enter(here.session)
      else session.value = null
      return
    } catch (error) {
      if (!(error instanceof ApiError) || error.code === 'https_required') { // the gate says so when one tries to sign in
        session.value = null
        return
      }
      unreachable.value = error
    }
    await new Promise((done) => setTimeout(done, pause))
  }
}

/** Why it is not yet known who is signed in. */
export const unreachable = signal<ApiError | undefined>(undefined)

/**
 * Signs in. The code is that of the second factor, if there is one; as says as whom, where the
 * address is both a team user's and a mailbox's.
 */
export async function signIn(email: string, password: string, code?: string, as?: Session['kind']) {
  forget()
  await beginSession('/session', { email, password, code, as }, enter)
}

/** Signs in by what the browser answered for a passkey. */
export async function signInByPasskey(credential: unknown) {
  forget()
  await beginSession('/session/passkey', { credential }, enter)
}

/** Takes what a link for a first sign-in offers. */
export async function welcome(form: { token: string; email?: string; name?: string; password: string; code?: string }) {
  forget()
  await beginSession('/session/welcome', form, enter)
}

/** Reads the session again after its user changed. */
export async function renew() {
  const still = sameSession()
  const answer = sessionOf(await request('GET', '/session'))
  if (still()) session.value = answer
}

const unfinished = new Set<() => Promise<unknown>>()

/** Has something done before one signs out. Returns how to take that back. */
export function beforeSignOut(run: () => Promise<unknown>): () => void {
  unfinished.add(run)
  return () => unfinished.delete(run)
}

/** Signs out here, or everywhere. */
export async function signOut(everywhere = false) {
  await Promise.all([...unfinished].map((run) => run()))
  await request('DELETE', '/session' + (everywhere ? '?everywhere=true' : ''))
  session.value = null
}

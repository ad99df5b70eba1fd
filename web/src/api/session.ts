// Signing in and out.
import { effect, signal } from '@preact/signals'
import { forget } from './query'
import { ApiError, request, session, type Session } from './client'
import { hush, listen, onChange } from './stream'

function enter(s: unknown): Session {
  session.value = s as Session
  listen(check)
  return session.value
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
  if (me && (changes === 'all' || changes.some((c) => c.kind === 'user' && c.id === me))) renew().catch(() => { /* as it was */ })
})

/** Leaves if the session has ended, elsewhere or by its age. */
async function check() {
  try {
    const here = (await request('GET', '/session/here')) as { session: Session | null }
    if (!here.session) session.value = null
  } catch {
    // the server cannot be reached, which does not end the session
  }
}

/** Finds out who is signed in, as often as it takes. */
export async function resume() {
  for (let pause = 1000; ; pause = Math.min(2 * pause, 15_000)) {
    try {
      const here = (await request('GET', '/session/here')) as { session: Session | null }
      if (here.session) enter(here.session)
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

/** Signs in. The code is that of the second factor, if there is one. */
export async function signIn(email: string, password: string, code?: string) {
  forget()
  return enter(await request('POST', '/session', { email, password, code }))
}

/** Signs in by what the browser answered for a passkey. */
export async function signInByPasskey(credential: unknown) {
  forget()
  return enter(await request('POST', '/session/passkey', { credential }))
}

/** Takes what a link for a first sign-in offers. */
export async function welcome(form: { token: string; email?: string; name?: string; password: string; code?: string }) {
  forget()
  return enter(await request('POST', '/session/welcome', form))
}

/** Reads the session again after its user changed. */
export async function renew() {
  session.value = (await request('GET', '/session')) as Session
}

const leaving: (() => Promise<unknown>)[] = []

/** Does something whenever somebody signs out by their own will. */
export function onSignOut(act: () => Promise<unknown>) {
  leaving.push(act)
}

/** Signs out here, or everywhere. */
export async function signOut(everywhere = false) {
  await Promise.all(leaving.map((act) => act()))
  await request('DELETE', '/session' + (everywhere ? '?everywhere=true' : ''))
  session.value = null
}

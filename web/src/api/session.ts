// Signing in and out.
import { forget } from './query'
import { request, session, type Session } from './client'
import { hush, listen } from './stream'

function enter(s: unknown): Session {
  session.value = s as Session
  listen()
  return session.value
}

/** Finds out who is signed in. */
export async function resume() {
  try {
    const here = (await request('GET', '/session/here')) as { session: Session | null }
    if (here.session) enter(here.session)
    else session.value = null
  } catch (error) {
    session.value = null
    throw error
  }
}

/** Signs in. The code is that of the second factor, if there is one. */
export async function signIn(email: string, password: string, code?: string) {
  forget()
  return enter(await request('POST', '/session', { email, password, code }))
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

/** Signs out here, or everywhere. */
export async function signOut(everywhere = false) {
  await request('DELETE', '/session' + (everywhere ? '?everywhere=true' : ''))
  leave()
}

/** Forgets who was signed in. */
export function leave() {
  hush()
  forget()
  session.value = null
}

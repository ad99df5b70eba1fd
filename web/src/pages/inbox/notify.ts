// Notifications of the browser about new mail. They come where the person has allowed them, while a
// page with the inbox is open and nobody sees it. They name sender and subject, and nothing of the
// text.
import { signal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { serverNow, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { keepOpen } from '../../api/stream'
import { go } from '../../router'
import { t, tn } from '../../words'
import type { Message } from './actions'
import { placeOf } from './filters'

const place = () => `notify ${session.value?.user.id}`

/** Whether the browser can notify. */
export const canNotify = 'Notification' in window

function stored(): boolean {
  try {
    return canNotify && Notification.permission === 'granted' && localStorage.getItem(place()) === 'on'
  } catch {
    return false // storage may be forbidden
  }
}

/** Whether the person is notified. */
export const notifies = signal(false)
session.subscribe(() => { notifies.value = stored() })

/** Turns notifications on, which asks the person, or off. */
export async function turnNotifications(on: boolean) {
  if (on && await Notification.requestPermission() !== 'granted') throw new Error(t('inbox.notify.blocked'))
  try {
    if (on) localStorage.setItem(place(), 'on')
    else localStorage.removeItem(place())
  } catch {
    // then it holds for this page alone
  }
  notifies.value = on
}

const most = 3 // messages that are named one by one

/**
 * Notifies of messages that come to the inbox of a mailbox, '' for all, while nobody sees the page.
 */
export function useNotifications(mailbox: string) {
  const on = notifies.value
  const { data } = useQuery('list_inbox', { mailbox: mailbox || undefined, is_read: false, limit: 10 }, { when: on })
  const known = useRef({ mailbox: '', until: '' }) // messages that came until then are known
  useEffect(() => (on ? keepOpen() : undefined), [on])
  useEffect(() => {
    if (!on) known.current = { mailbox: '', until: '' }
    if (!on || !data) return
    const first = known.current.until === '' || known.current.mailbox !== mailbox
    const since = first ? new Date(serverNow()).toISOString() : known.current.until
    const fresh = data.data.filter((m) => m.received_at > since)
    known.current = { mailbox, until: fresh.reduce((last, m) => (m.received_at > last ? m.received_at : last), since) }
    if (!first && document.visibilityState === 'hidden' && fresh.length > 0) tell(fresh)
  }, [on, data, mailbox])
}

function tell(fresh: Message[]) {
  try {
    if (fresh.length > most) show(tn('inbox.notify.new', fresh.length), { tag: 'new mail' }, '/inbox')
    else for (const m of fresh) show(m.from_name || m.from_email, { body: m.subject || t('message.no_subject'), tag: m.id }, placeOf(m))
  } catch {
    notifies.value = false // browsers of phones let only service workers notify
  }
}

function show(title: string, options: NotificationOptions, href: string) {
  const shown = new Notification(title, { icon: ICON, ...options })
  shown.onclick = () => {
    shown.close()
    window.focus()
    go(href)
  }
}

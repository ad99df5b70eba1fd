// An invitation to an event: when and where it is, who comes, and the answers to it.
import { useEffect, useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { Button, Facts, Icon, theirs, told } from '../../ui'
import { locale, t, tn, type Key } from '../../words'
import { inFolder } from './actions'
import type { Detail } from './types'

type Event = Schemas['Invitation']
type Answer = NonNullable<Event['answer']>

const answers: [Answer, does: Key, done: Key, said: Key][] = [
  ['accepted', 'message.invitation.yes', 'message.invitation.accepted', 'message.invitation.comes'],
  ['tentative', 'message.invitation.maybe', 'message.invitation.tentative', 'message.invitation.may_come'],
  ['declined', 'message.invitation.no', 'message.invitation.declined', 'message.invitation.stays_away'],
]

export function Invited({ message: m }: { message: Detail }) {
  const [now, setNow] = useState<Answer>()
  const i = m.invitation
  useEffect(() => setNow(undefined), [i?.answer]) // it may have been answered elsewhere since
  if (!i) return null
  const given = now ?? i.answer
  const answer = async (to: Answer) => {
    await call('answer_invitation', { user_id: m.user_id, message_id: m.uid, folder: inFolder(m), answer: to })
    setNow(to)
    told(t('message.invitation.answered'))
  }
  return (
    <section class="inbox-event" aria-label={t('message.invitation')}>
      <DayOf event={i} />
      <div class="grow stack-tight">
        <strong class="inbox-event-title" dir="auto">{i.summary || t('message.invitation.event')}</strong>
        <Facts of={[
          [t('message.invitation.when'), <When event={i} />],
          [t('message.invitation.where'), theirs(i.location)],
          [t('message.invitation.organizer'), i.organizer && <Person name={i.organizer_name} email={i.organizer} />],
          [t('message.invitation.people'), i.attendees.length > 0 && <People of={given ? i.attendees.map((a) => (a.email.toLowerCase() === m.mailbox ? { ...a, answer: given } : a)) : i.attendees} />],
        ]} />
        {can('answer_invitation') && i.organizer && (
          <div class="row" role="group" aria-label={t('message.invitation.answer')}>
            {answers.map(([to, does]) => <Button key={to} small aria-pressed={given === to} onClick={() => answer(to)}>{t(does)}</Button>)}
            {given && <span class="small muted" role="status">{t(answers.find(([a]) => a === given)![2])}</span>}
          </div>
        )}
      </div>
    </section>
  )
}

/**
 * The options that show a date of an event: that of one with dates alone is the same in every zone.
 */
const zoneOf = (e: Event): Intl.DateTimeFormatOptions => (e.all_day ? { timeZone: 'UTC' } : {})

/** The day as a leaf of a calendar. */
function DayOf({ event: e }: { event: Event }) {
  if (!e.starts_at) return <Icon name="clock" />
  const part = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(locale.value, { ...options, ...zoneOf(e) }).format(new Date(e.starts_at!))
  return <span class="inbox-event-day" aria-hidden="true"><span>{part({ month: 'short' })}</span><strong>{part({ day: 'numeric' })}</strong></span>
}

/** When an event is, in the reader's zone. */
function When({ event: e }: { event: Event }) {
  if (!e.starts_at) return <>{t('message.invitation.no_time')}</>
  const starts = new Date(e.starts_at)
  const day: Intl.DateTimeFormatOptions = { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric', ...zoneOf(e) }
  const format = new Intl.DateTimeFormat(locale.value, e.all_day ? day : { ...day, hour: 'numeric', minute: '2-digit', timeZoneName: 'short' })
  const last = e.ends_at && (e.all_day ? new Date(Date.parse(e.ends_at) - 86_400_000) : new Date(e.ends_at)) // a day that ends is over at the next one's beginning
  return <time dateTime={e.starts_at}>{last && last > starts ? format.formatRange(starts, last) : format.format(starts)}</time>
}

function Person({ name, email }: { name: string; email: string }) {
  return <span title={email || undefined}>{theirs(name || email)}</span>
}

const atOnce = 8 // people that are named before one asks for the others

function People({ of }: { of: Event['attendees'] }) {
  const one = (a: Event['attendees'][number], i: number) => {
    const said = answers.find(([to]) => to === a.answer)?.[3]
    return <li key={i}><Icon name={a.answer === 'accepted' ? 'check' : a.answer === 'declined' ? 'x' : 'clock'} /> <span class="grow"><Person name={a.name} email={a.email} /> <span class="muted small">{said ? t(said) : t('message.invitation.unanswered')}</span></span></li>
  }
  return (
    <>
      <ul class="inbox-event-people">{of.slice(0, atOnce).map(one)}</ul>
      {of.length > atOnce && <details><summary class="small">{tn('message.invitation.more', of.length - atOnce)}</summary><ul class="inbox-event-people">{of.slice(atOnce).map(one)}</ul></details>}
    </>
  )
}

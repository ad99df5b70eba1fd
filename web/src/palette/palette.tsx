// A field from which one gets anywhere by the keyboard: pages and functions by their names and the
// words for them, and mailboxes, domains and messages as the server finds them while one types.
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { barred } from '../access'
import { can, person } from '../api/client'
import { useLate, useQuery } from '../api/query'
import { placeOfFolder, placeOfMessage } from '../pages/inbox/filters'
import { everyFolder, nameOfFolder } from '../pages/inbox/folders'
import { go } from '../router'
import { Dialog, Icon, type IconName } from '../ui'
import { t } from '../words'
import { deeds, wordsOf } from './functions'

/** A page of the navigation. */
export interface PageLink { href: string; name: string; icon: IconName }

/** A page that the navigation does not name. */
type More = [href: string, name: string, icon: IconName]

const teamPages: More[] = [
  ['/domains/add', 'Add domain', 'plus'], ['/mailboxes/bulk', 'Bulk create mailboxes', 'plus'], ['/mailboxes/templates', 'Mailbox templates', 'mail'], ['/mailboxes/groups', 'Groups', 'team'],
  ['/sent/suppressions', 'Suppressions', 'ban'], ['/sent/reputation', 'Reputation', 'shield'], ['/sent/templates', 'Message templates', 'send'], ['/sent/lookup', 'Message-ID lookup', 'search'],
  ['/webhooks/events', 'Events', 'bolt'], ['/account/dns', 'DNS credentials', 'key'], ['/profile', 'Profile', 'user'],
]

/**
 * The pages that the viewer may open. Those of the person of a mailbox are the folders in the place
 * of the inbox.
 */
function pagesOf(navigation: PageLink[]): PageLink[] {
  const more = person() ? [] : teamPages.map(([href, name, icon]) => ({ href, name, icon }))
  const own = everyFolder.map(([folder, icon]) => ({ href: placeOfFolder(folder), name: nameOfFolder(folder), icon }))
  const write = can('send_email') ? [{ href: '/compose', name: t('palette.compose'), icon: 'pencil' as const }] : []
  return [...(person() ? [...own, ...navigation.filter((p) => p.href !== '/inbox')] : navigation), ...write, ...more].filter((p) => !barred(p.href))
}

interface Choice { href: string; name: string; note?: string; icon: IconName; run?: () => void }
interface Group { name: string; choices: Choice[] }

/** Whether every word that is typed begins a word of the name. */
function fits(name: string, typed: string): boolean {
  const words = name.toLowerCase().split(/[\s-]+/)
  return typed.toLowerCase().split(/\s+/).every((part) => words.some((word) => word.startsWith(part)))
}

/** The pages and functions that fit: those by their names first. */
function placesFor(typed: string, navigation: PageLink[]): Choice[] {
  const pages = pagesOf(navigation)
  if (typed === '') return pages
  const all = [...pages.map((p) => ({ ...p, words: wordsOf(p.href) })), ...deeds().filter((d) => !barred(d.href) || d.run)]
  const named = all.filter((p) => fits(p.name, typed))
  return [...named, ...all.filter((p) => !named.includes(p) && fits(`${p.name} ${p.words}`, typed))]
}

const most = 6 // of each kind

/** What fits, in groups, and whether more may come. */
function useGroups(typed: string, navigation: PageLink[]): { groups: Group[]; waits: boolean } {
  const now = typed.trim(), q = useLate(now, 120)
  const when = q !== ''
  const mailboxes = useQuery('list_email_users', { q, limit: most }, { when: when && !person() && can('list_email_users'), kinds: [] })
  const domains = useQuery('list_domains', { q, limit: most }, { when: when && !person() && can('list_domains'), kinds: [] })
  const mail = useQuery('list_inbox', { q, folder: 'all', limit: most }, { when: when && can('list_inbox'), kinds: [] })
  const found = now === q && when // what was found for other words is not shown
  const groups: Group[] = [
    { name: t('palette.pages'), choices: placesFor(now, navigation) },
    { name: t('palette.mailboxes'), choices: (found ? mailboxes.data?.data ?? [] : []).map((m) => ({ href: '/mailboxes/' + m.user_id, name: m.email, note: m.name, icon: 'mail' })) },
    { name: t('palette.domains'), choices: (found ? domains.data?.data ?? [] : []).map((d) => ({ href: '/domains/' + d.domain_id, name: d.domain, icon: 'globe' })) },
    { name: t('palette.messages'), choices: (found ? mail.data?.data ?? [] : []).map((m) => ({ href: placeOfMessage(m), name: m.subject || t('message.no_subject'), note: m.from_name || m.from_email, icon: 'mail-open' })) },
  ]
  return { groups: groups.filter((g) => g.choices.length > 0), waits: now !== q || mailboxes.loading || domains.loading || mail.loading }
}

export function Palette({ navigation, onClose }: { navigation: PageLink[]; onClose: () => void }) {
  const [typed, setTyped] = useState('')
  const [at, setAt] = useState(0)
  const { groups, waits } = useGroups(typed, navigation)
  const choices = groups.flatMap((g) => g.choices)
  const here = Math.min(at, choices.length - 1)
  const id = useId()
  const input = useRef<HTMLInputElement>(null)
  const hasty = useRef(false) // Enter came before anything was found
  useEffect(() => input.current?.focus(), [])
  useEffect(() => setAt(0), [typed])
  useEffect(() => document.getElementById(id + here)?.scrollIntoView({ block: 'nearest' }), [here])

  const pick = (choice: Choice | undefined) => {
    if (!choice) return
    onClose()
    if (choice.run) choice.run()
    else go(choice.href)
  }
  useEffect(() => {
    if (hasty.current && choices.length > 0) pick(choices[0])
    hasty.current &&= waits
  })
  const press = (e: KeyboardEvent) => {
    if (e.isComposing) return
    if (e.key === 'ArrowDown') setAt(choices.length > 0 ? (here + 1) % choices.length : 0)
    else if (e.key === 'ArrowUp') setAt(choices.length > 0 ? (here - 1 + choices.length) % choices.length : 0)
    else if (e.key === 'Enter' && choices.length > 0) pick(choices[here])
    else if (e.key === 'Enter') hasty.current = waits
    else return
    e.preventDefault()
  }
  let n = 0
  return (
    <Dialog title={t('palette.title')} onClose={onClose}>
      <div class="palette">
        <input ref={input} class="input" type="text" role="combobox" autofocus aria-expanded="true" aria-autocomplete="list" aria-controls={id} aria-activedescendant={here >= 0 ? id + here : undefined} aria-label={t('palette.title')}
          placeholder={person() ? t('palette.placeholder.own') : t('palette.placeholder')} value={typed} dir="auto" maxLength={200} spellcheck={false} autocapitalize="off" autocomplete="off" onInput={(e) => { hasty.current = false; setTyped(e.currentTarget.value) }} onKeyDown={press} />
        <div role="listbox" id={id} class="palette-choices" aria-label={t('palette.results')} onMouseDown={(e) => e.preventDefault() /* the field keeps the focus */}>
          {groups.map((g) => (
            <div key={g.name} role="group" aria-label={g.name}>
              <div class="palette-group" aria-hidden="true">{g.name}</div>
              {g.choices.map((c) => {
                const i = n++
                return (
                  <div key={c.href + i} id={id + i} role="option" aria-selected={i === here} class={i === here ? 'at' : ''} onPointerMove={() => setAt(i)} onClick={() => pick(c)}>
                    <Icon name={c.icon} /><span class="grow truncate" dir="auto">{c.name}</span>{c.note && <span class="small muted truncate palette-note" dir="auto">{c.note}</span>}
                  </div>
                )
              })}
            </div>
          ))}
        </div>
        <p class="small muted palette-state" role="status">{choices.length === 0 && !waits ? t('palette.nothing') : waits && typed.trim() !== '' ? t('inbox.searching') : ''}</p>
      </div>
    </Dialog>
  )
}

// The frame around every page: navigation, who is signed in, and what is true of the whole server.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { barred } from './access'
import { aside } from './aside'
import { person, session, type Session } from './api/client'
import { useQuery } from './api/query'
import { live, outdated } from './api/stream'
import { signOut } from './api/session'
import { SignInAgain } from './pages/gate/again'
import { lazy } from './pages/lazy'
import { palette } from './pages/parts'
import { leave, params, path } from './router'
import { theme, turnTheme } from './theme'
import { Badge, Button, Icon, IconButton, LinkButton, Questions, Time, Toasts, type IconName } from './ui'
import { t } from './words'

const groups: { name: string; links: [href: string, name: string, icon: IconName][] }[] = [
  { name: '', links: [['/', 'Overview', 'home']] },
  { name: 'Mail', links: [['/inbox', 'Inbox', 'inbox'], ['/mailboxes', 'Mailboxes', 'mail'], ['/sent', 'Sent', 'send'], ['/approvals', 'Approvals', 'check']] },
  { name: 'Infrastructure', links: [['/domains', 'Domains', 'globe'], ['/webhooks', 'Webhooks', 'hook'], ['/jobs', 'Jobs', 'bolt']] },
  { name: 'Account', links: [['/team', 'Team', 'team'], ['/tokens', 'API tokens', 'key'], ['/account', 'Account', 'cog'], ['/connect', 'Connect', 'spark'], ['/audit', 'Audit log', 'book']] },
]

const requests: (typeof groups)[0]['links'][0] = ['/requests', 'Requests', 'list']
const server: (typeof groups)[0] = { name: 'Server', links: [['/settings', 'Settings', 'wrench'], ['/host', 'Host', 'server'], ['/backups', 'Backups', 'archive'], ['/accounts', 'Accounts', 'building'], requests] }

/** The navigation of the person of a mailbox. */
const ownGroups = (): typeof groups => [{ name: '', links: [['/inbox', t('shell.mail'), 'inbox'], ['/me', t('shell.me'), 'user']] }]

/** The navigation of who is signed in. */
function groupsOf(): typeof groups {
  if (person()) return ownGroups()
  if (session.value!.operator) return [...groups, server]
  return groups.map((g) => (g.name === 'Account' ? { ...g, links: [...g.links, requests] } : g))
}

const mac = /Mac|iPhone|iPad/.test(navigator.userAgent)

function isWithin(href: string, at: string): boolean {
  return href === '/' ? at === '/' : at === href || at.startsWith(href + '/')
}

export function Shell({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false)
  const [finding, setFinding] = useState(false)
  const at = path.value
  useEffect(() => setOpen(false), [at, params.value.get('folder')])
  useFindKey(() => setFinding(true))
  return (
    <>
      <a class="button skip" href="#main">{t('shell.skip')}</a>
      <div class="shell">
        <aside class={'side' + (open ? ' open' : '')} id="side" aria-label={t('shell.side')} onKeyDown={(e) => { if (e.key === 'Escape') setOpen(false) }}>
          <Brand />
          <Navigation at={at} onFind={() => { setOpen(false); setFinding(true) }} />
          <Foot />
        </aside>
        <button type="button" class="scrim" aria-label={t('shell.close')} tabIndex={-1} onClick={() => setOpen(false)} />
        <div class="main">
          <header class="topbar">
            <IconButton look="ghost" icon="menu" label={t('shell.navigation')} aria-expanded={open} aria-controls="side" onClick={() => setOpen(!open)} />
            <Brand />
          </header>
          <Banners />
          <main id="main">{children}</main>
        </div>
      </div>
      <Toasts />
      <Questions />
      <SignInAgain />
      {finding && <Palette navigation={linksOf().map(([href, name, icon]) => ({ href, name, icon }))} onClose={() => setFinding(false)} />}
    </>
  )
}

const Palette = lazy(palette, (m) => m.Palette)

/**
 * Calls find when Ctrl-K or Cmd-K is pressed, but not where the key means something else, as in a
 * text with links.
 */
function useFindKey(find: () => void) {
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.key.toLowerCase() !== 'k' || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || e.defaultPrevented) return
      if ((e.target as HTMLElement).isContentEditable || document.querySelector('dialog[open]')) return
      e.preventDefault()
      find()
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
}

/** The links of the navigation. */
function linksOf() {
  return groupsOf().flatMap((g) => g.links)
}

function Brand() {
  return <a class="brand" href="/"><img src={ICON} alt="" /> Mailstead</a>
}

function Navigation({ at, onFind }: { at: string; onFind: () => void }) {
  return (
    <nav aria-label={t('shell.main')}>
      <button type="button" class="find-button" aria-haspopup="dialog" onClick={onFind}><Icon name="search" /> <span class="grow truncate">{t('palette.title')}</span> <kbd aria-hidden="true">{mac ? '⌘ K' : `${t('ui.key.ctrl')} K`}</kbd></button>
      {groupsOf().map((g) => (
        <div key={g.name}>
          {g.name && <h2>{g.name}</h2>}
          <ul>
            {g.links.filter(([href]) => !barred(href)).map(([href, name, icon]) => (
              <li key={href}>
                <a href={href} aria-current={isWithin(href, at) ? 'page' : undefined}>
                  <Icon name={icon} /> {name}
                  {href === '/jobs' && <RunningJobs />}
                  {href === '/approvals' && <WaitingApprovals />}
                </a>
                {href === '/inbox' && isWithin(href, at) && aside.value}
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  )
}

function RunningJobs() {
  const { data } = useQuery('list_jobs', { status: 'in_progress', limit: 100 })
  const n = data?.data.length ?? 0
  return n > 0 ? <Badge tone="info" plain>{n === 100 ? '100+' : n}<span class="visually-hidden"> running</span></Badge> : null
}

function WaitingApprovals() {
  const { data } = useQuery('list_approvals', { status: 'pending', limit: 100 })
  const n = data?.data.length ?? 0
  return n > 0 ? <Badge tone="warn" plain>{n === 100 ? '100+' : n}<span class="visually-hidden"> waiting</span></Badge> : null
}

function Foot() {
  const { user } = session.value!
  const next = theme.value === 'dark' ? 'light' : 'dark'
  return (
    <div class="side-foot">
      <a class="who" href={person() ? '/me' : '/profile'}>
        <span class="avatar" aria-hidden="true">{(user.name || user.email).charAt(0)}</span>
        <span class="grow truncate"><span class="truncate" style={{ display: 'block' }}>{user.name || user.email}</span><span class="small muted truncate">{person() ? user.email : user.role}</span></span>
      </a>
      <div class="row-between">
        <IconButton look="ghost" small icon={next === 'dark' ? 'moon' : 'sun'} label={next === 'dark' ? t('shell.dark') : t('shell.light')} onClick={turnTheme} />
        {!person() && <LinkButton look="ghost" small icon="book" href="/docs" target="_blank" rel="noopener">Docs</LinkButton>}
        <Button look="ghost" small icon="out" onClick={() => leave(signOut)}>{t('shell.sign_out')}</Button>
      </div>
    </div>
  )
}

/** What becomes of mail to other people, where that is not what one would think. */
function fateOf(s: Session): string {
  if (!s.sandbox) return 'Mail to external recipients is captured, not sent.'
  if (s.outbound === 'capture') return 'Sandbox: mail to external recipients is captured, not sent.'
  return `This sandbox sends real mail to external recipients${s.outbound === 'relay' ? ' through a relay' : ''}.`
}

function Banners() {
  const s = session.value!
  const offline = useOffline()
  return (
    <>
      {!person() && (s.sandbox || s.outbound === 'capture') && <div class="banner" role="region" aria-label="Notice"><Icon name={s.outbound === 'capture' ? 'info' : 'alert'} /> {fateOf(s)}</div>}
      {s.by_operator && <div class="banner" role="region" aria-label="Signed in by a link"><Icon name="key" /> <span>Signed in to {s.account.name} by a link, until <Time of={s.expires_at} form="short" />. You can’t see or change who has access.</span></div>}
      {offline && <div class="banner" role="status"><Icon name="alert" /> {t('shell.offline')}</div>}
      {outdated.value && <div class="banner info" role="status">{t('shell.updated')} <Button small look="ghost" onClick={() => location.reload()}>{t('shell.reload')}</Button></div>}
    </>
  )
}

/** Tells whether changes have not come through for some seconds. */
function useOffline(): boolean {
  const [offline, setOffline] = useState(false)
  const on = live.value
  useEffect(() => {
    if (on) {
      setOffline(false)
      return
    }
    const timer = setTimeout(() => setOffline(true), 6000)
    return () => clearTimeout(timer)
  }, [on])
  return offline
}

// The frame around every page: navigation, who is signed in, and what is true of the whole server.
import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { barred } from './access'
import { person, session, type Session } from './api/client'
import { useQuery } from './api/query'
import { live, outdated } from './api/stream'
import { signOut } from './api/session'
import { path } from './router'
import { theme, turnTheme } from './theme'
import { Badge, Button, Icon, IconButton, Questions, Toasts, type IconName } from './ui'

const groups: { name: string; links: [href: string, name: string, icon: IconName][] }[] = [
  { name: '', links: [['/', 'Overview', 'home']] },
  { name: 'Mail', links: [['/inbox', 'Inbox', 'inbox'], ['/mailboxes', 'Mailboxes', 'mail'], ['/sent', 'Sent', 'send'], ['/approvals', 'Approvals', 'check']] },
  { name: 'Infrastructure', links: [['/domains', 'Domains', 'globe'], ['/webhooks', 'Webhooks', 'hook'], ['/jobs', 'Jobs', 'bolt']] },
  { name: 'Account', links: [['/team', 'Team', 'team'], ['/tokens', 'API tokens', 'key'], ['/account', 'Account', 'cog'], ['/connect', 'Connect', 'spark']] },
]

const ownGroups: typeof groups = [{ name: '', links: [['/inbox', 'Mail', 'inbox'], ['/me', 'My mailbox', 'user']] }]

function isWithin(href: string, at: string): boolean {
  return href === '/' ? at === '/' : at === href || at.startsWith(href + '/')
}

export function Shell({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false)
  const at = path.value
  useEffect(() => setOpen(false), [at])
  return (
    <>
      <a class="button skip" href="#main">Skip to content</a>
      <div class="shell">
        <div class={'side' + (open ? ' open' : '')} id="side" onKeyDown={(e) => { if (e.key === 'Escape') setOpen(false) }}>
          <Brand />
          <Navigation at={at} />
          <Foot />
        </div>
        <button type="button" class="scrim" aria-label="Close navigation" tabIndex={-1} onClick={() => setOpen(false)} />
        <div class="main">
          <div class="topbar">
            <IconButton look="ghost" icon="menu" label="Navigation" aria-expanded={open} aria-controls="side" onClick={() => setOpen(!open)} />
            <Brand />
          </div>
          <Banners />
          <main id="main">{children}</main>
        </div>
      </div>
      <Toasts />
      <Questions />
    </>
  )
}

function Brand() {
  return <a class="brand" href="/"><img src={ICON} alt="" /> Mailstead</a>
}

function Navigation({ at }: { at: string }) {
  return (
    <nav aria-label="Main">
      {(person() ? ownGroups : groups).map((g) => (
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
        <IconButton look="ghost" small icon={next === 'dark' ? 'moon' : 'sun'} label={`Use ${next} theme`} onClick={turnTheme} />
        <Button look="ghost" small icon="out" onClick={() => signOut()}>Sign out</Button>
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
      {!person() && (s.sandbox || s.outbound === 'capture') && <div class="banner"><Icon name={s.outbound === 'capture' ? 'info' : 'alert'} /> {fateOf(s)}</div>}
      {offline && <div class="banner" role="status"><Icon name="alert" /> Connection lost. This page may be out of date.</div>}
      {outdated.value && <div class="banner info" role="status">Mailstead was updated. <Button small look="ghost" onClick={() => location.reload()}>Reload</Button></div>}
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

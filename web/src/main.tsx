import 'uplot/dist/uPlot.min.css'
import './ui/theme.css'
import './ui/ui.css'
import './shell.css'
import './palette/palette.css'
import './pages/overview/overview.css'
import './pages/mailboxes/mailboxes.css'
import './pages/inbox/inbox.css'
import './pages/inbox/message.css'
import './pages/inbox/compose/compose.css'
import './pages/domains/domains.css'
import './pages/domains/zone.css'
import './pages/domains/in-use.css'
import './pages/jobs/jobs.css'
import './pages/people/people.css'
import './pages/policies/policies.css'
import './pages/operator/operator.css'
import './pages/operator/settings.css'
import './pages/operator/logs.css'
import './pages/sent/sent.css'
import './pages/approvals/approvals.css'
import './pages/webhooks/webhooks.css'
import { render, Component, type ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { barred, type Bar } from './access'
import { person, session } from './api/client'
import { resume, unreachable } from './api/session'
import { ownPlaces, places } from './pages'
import { Gate } from './pages/gate'
import { ChoosePassword } from './pages/gate/choose'
import type { Part } from './pages/lazy'
import { domains, mail, operator, own, palette, team } from './pages/parts'
import { cameFrom, go, match, path, startRouter } from './router'
import { Shell } from './shell'
import { settled } from './language'
import { Button, Empty, Failure, LinkButton, Loading, Page } from './ui'
import { t } from './words'

const gates = ['/sign-in', '/forgot', '/welcome']

function find(at: string) {
  for (const place of person() ? ownPlaces : places) {
    const found = match(place.path, at)
    if (found) return { place, found }
  }
}

function App() {
  const at = path.value
  if (!settled.value) return <Loading />
  if (session.value === undefined) return unreachable.value ? <Failure error={unreachable.value} /> : <Loading />
  if (session.value === null || at === '/welcome') return <Gate at={at} />
  if (session.value.choose_password) return <ChoosePassword />
  if (cameFrom()) return <Back to={cameFrom()!} />
  if (gates.includes(at)) return <Elsewhere to="/" />
  if (at === '/' && person()) return <Elsewhere to="/inbox" />
  const here = find(at), bar = person() ? undefined : barred(at)
  const kept = here?.place.keep?.replace(/:(\w+)/g, (_, name: string) => here.found[name]!)
  return (
    <Shell>
      <Fence key={kept ?? at}>
        {bar ? <Barred by={bar} /> : here ? <here.place.page key={kept ?? here.place.path} {...here.found} /> : <NotFound />}
      </Fence>
    </Shell>
  )
}

const soon = 1000 // ms after the sign-in, when what the first page needs was asked for

/** Fetches the other parts of the script, and what their lists begin with, before they are needed. */
session.subscribe((s) => {
  if (!s) return
  const rest: Part<object>[] = person() ? [mail, own, palette] : [team, domains, mail, palette, ...(barred('/requests') ? [] : [operator])]
  const prepare = async (part: Part<{ readAhead?: () => Promise<unknown> }>) => (await part.load()).readAhead?.()
  setTimeout(() => { for (const part of rest) prepare(part).catch(() => { /* it is fetched when it is needed */ }) }, soon)
})

/** Leads on from a place that is not for those who are signed in. */
function Elsewhere({ to }: { to: string }) {
  useEffect(() => go(to, { replace: true }), [to])
  return <Loading />
}

/** Asks the server for the page from which the viewer was sent to sign in. */
function Back({ to }: { to: string }) {
  useEffect(() => location.replace(to), [to])
  return <Loading />
}

function NotFound() {
  return (
    <Page title={t('ui.not_found')}>
      <Empty icon="search" title={t('shell.no_page')} action={<LinkButton href="/">{person() ? t('shell.to_inbox') : 'Back to overview'}</LinkButton>}>
        {t('shell.no_page.text')}
      </Empty>
    </Page>
  )
}

function Barred({ by: { deed, operator } }: { by: Bar }) {
  return (
    <Page title={`Your role can’t ${deed}`}>
      <Empty icon="shield" title={operator ? 'Only the operator of this server can do this' : 'Only the account’s owner or an admin can do this'} action={<LinkButton href="/">Back to overview</LinkButton>}>
        {operator ? 'The operator is the owner of the first account on this server, or an admin whom the owner allows it.' : <>See the <a href="/team">team</a> to find out who they are.</>}
      </Empty>
    </Page>
  )
}

/** Keeps a fault of one page from taking the others with it. */
class Fence extends Component<{ children: ComponentChildren }, { error?: Error }> {
  static getDerivedStateFromError(error: Error) {
    return { error }
  }
  override componentDidCatch(error: Error) {
    console.error(error)
  }
  render() {
    if (!this.state.error) return this.props.children
    return (
      <Page title={t('shell.wrong')}>
        <Empty icon="alert" title={t('shell.crashed')} action={<Button onClick={() => location.reload()}>{t('shell.reload')}</Button>}>
          {this.state.error.message}
        </Empty>
      </Page>
    )
  }
}

startRouter((path) => gates.includes(path) || find(path) !== undefined)
render(<App />, document.getElementById('app')!)
find(path.value)?.place.page.load().catch(() => { /* it is fetched when it is shown */ }) // while the server says who is signed in
void resume()

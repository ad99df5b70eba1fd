// Where one is signed in.
import { person, request } from '../../api/client'
import { useRead } from '../../api/query'
import { signOut } from '../../api/session'
import { ask, Badge, Button, Card, IconButton, Show, theirs, Time } from '../../ui'
import { rich, t } from '../../words'

interface Session { id: string; ip: string; user_agent: string; created_at: string; last_used_at: string | null; current: boolean }

/** The sessions of who is signed in. */
export function Sessions() {
  const list = useRead('sessions', () => request('GET', '/session/list') as Promise<{ data: Session[] }>, { kinds: ['token'] })
  const end = async (s: Session) => {
    await request('DELETE', '/session/list/' + s.id)
    await list.reload()
  }
  const everywhere = () => ask({
    title: t('sessions.end_all.title'), action: t('sessions.end_all'), text: person() ? t('sessions.end_all.text') : 'This ends the session on this device too. API tokens keep working.', run: () => signOut(true),
  })
  return (
    <Card title={t('sessions.title')} flush actions={<Button small icon="out" onClick={everywhere}>{t('sessions.end_all')}</Button>}>
      <Show of={list}>
        {({ data }) => (
          <div class="rows">
            {data.map((s) => (
              <div key={s.id} class="line">
                <span class="grow">{theirs(browserOf(s.user_agent))} {s.current && <Badge tone="ok">{t('sessions.this')}</Badge>}<br /><span class="muted small">{rich('sessions.since', { ip: s.ip || t('sessions.server'), begun: <Time of={s.created_at} form="date" />, used: <Time of={s.last_used_at ?? s.created_at} /> })}</span></span>
                {!s.current && <IconButton look="ghost" small icon="x" label={t('sessions.end', { browser: browserOf(s.user_agent) })} onClick={() => end(s)} />}
              </div>
            ))}
          </div>
        )}
      </Show>
    </Card>
  )
}

const browsers: [RegExp, string][] = [[/Edg\//, 'Edge'], [/OPR\//, 'Opera'], [/Firefox\//, 'Firefox'], [/Chrome\//, 'Chrome'], [/Safari\//, 'Safari']]
const systems: [RegExp, string][] = [[/iPhone|iPad/, 'iOS'], [/Android/, 'Android'], [/Windows/, 'Windows'], [/Mac OS/, 'macOS'], [/Linux/, 'Linux']]

/** Names the browser of a User-Agent, roughly. */
function browserOf(agent: string): string {
  const browser = browsers.find(([p]) => p.test(agent))?.[1], system = systems.find(([p]) => p.test(agent))?.[1]
  return browser ? (system ? t('sessions.browser', { browser, system }) : browser) : agent.slice(0, 60) || t('sessions.unknown')
}

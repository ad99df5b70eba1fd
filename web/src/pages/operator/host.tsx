// The host that the server runs on: whether it is well, and what to do where it is not.
import { call, serverNow } from '../../api/client'
import { Badge, Button, bytes, Card, count, Facts, Icon, LinkButton, Notice, Page, plural, Show, Stat, theirs, Time, told } from '../../ui'
import { fixOf, nameOf, outcomeOf, problemsOf, standings, useHealth, withCode, type Check, type Health } from './checks'
import { spanOf } from './spans'

export function Host() {
  const health = useHealth(true, 15_000)
  const check = async (code?: string) => {
    await call('check_health', { code })
    await health.reload()
    told(code ? 'Checked again.' : 'All checks done.')
  }
  return (
    <Page title="Host" intro={health.data?.hostname} actions={<Button icon="refresh" onClick={() => check()}>Check now</Button>}>
      <Show of={health} lines={8}>
        {(h) => (
          <>
            <Checks of={h} onCheck={check} />
            <div class="grid-2">
              <Server of={h} />
              <Storage of={h} />
              <Queue of={h} />
              <Certificate of={h} />
            </div>
          </>
        )}
      </Show>
    </Page>
  )
}

function Checks({ of: h, onCheck }: { of: Health; onCheck: (code: string) => Promise<void> }) {
  const [tone, name] = standings[h.status]
  const problems = problemsOf(h.checks)
  return (
    <Card title="Checks" flush note={<>{outcomeOf(h.checks)} · Last checked <Time of={h.checked_at} /></>} actions={<Badge tone={tone}>{name}</Badge>}>
      {problems.length === 0 ? <p class="line muted">No problems found.</p> : <ul class="rows operator-problems">{problems.map((c) => <Problem key={c.code + c.subject + c.message} of={c} onCheck={onCheck} />)}</ul>}
      <Others of={h.checks.filter((c) => c.status === 'ok')} name="passed" />
      <Others of={h.checks.filter((c) => c.status === 'skipped')} name="skipped" />
    </Card>
  )
}

function Problem({ of: c, onCheck }: { of: Check; onCheck: (code: string) => Promise<void> }) {
  const fix = fixOf(c)
  return (
    <li class={'line' + (c.status === 'error' ? ' bad' : '')}>
      <Icon name="alert" />
      <div class="grow stack-tight">
        <h3>{nameOf(c)}<span class="visually-hidden"> ({c.status})</span> <span class="muted small">{theirs(c.subject)}</span></h3>
        <p>{withCode(c.message)}</p>
        {c.mend && <p class="small"><strong>What to do:</strong> {withCode(c.mend)}</p>}
      </div>
      <div class="row">
        {fix && <LinkButton small href={fix.href}>{fix.link}</LinkButton>}
        <Button small look="ghost" icon="refresh" aria-label={`Check again: ${nameOf(c)}`} onClick={() => onCheck(c.code)}>Check again</Button>
      </div>
    </li>
  )
}

/** Checks that need nothing of anybody. */
function Others({ of, name }: { of: Check[]; name: string }) {
  if (of.length === 0) return null
  return (
    <details class="operator-checks">
      <summary>{plural(of.length, 'check')} {name}</summary>
      <ul>
        {of.map((c) => (
          <li key={c.code + c.subject}><strong>{nameOf(c)}</strong> <span class="muted small">{theirs(c.subject)}</span><br /><span class="small">{withCode(c.message)}</span></li>
        ))}
      </ul>
    </details>
  )
}

const roles: Record<Health['role'], string | undefined> = { single: undefined, primary: 'Primary, followed by a standby', standby: 'Standby' }

function Server({ of: h }: { of: Health }) {
  return (
    <Card title="Server">
      <Facts of={[
        ['Version', h.version],
        ['Uptime', spanOf(serverNow() - Date.parse(h.started_at!))],
        ['Started', <Time of={h.started_at} form="at" />],
        ['Role', roles[h.role]],
        ['Standby lag', h.standby && plural(h.standby.lag_seconds, 'second')],
      ]} />
    </Card>
  )
}

function Storage({ of: { store, objects } }: { of: Health }) {
  return (
    <Card title="Disk">
      <div class="stack">
        {store.read_only && <Notice tone="bad" title="The server takes no more changes.">The checks above say why.</Notice>}
        <div class="stats">
          <Stat name="Used by Mailstead" value={bytes(store.bytes)} note={plural(store.messages, 'message')} />
          <Stat name="Free" value={bytes(store.free_bytes)} />
        </div>
        {objects && <Facts of={[['Bucket', objects.reachable ? 'reachable' : 'not reachable'], ['Waiting for upload', count(objects.pending)], ['Local cache', bytes(objects.cache_bytes)]]} />}
      </div>
    </Card>
  )
}

function Queue({ of: { queue } }: { of: Health }) {
  return (
    <Card title="Outgoing queue" actions={<a href="/sent?status=queued">Queued messages</a>}>
      <div class="stats">
        <Stat name="Recipients" value={count(queue.depth)} note={queue.depth === 0 && 'nothing is waiting'} />
        {queue.oldest_seconds !== null && <Stat name="Oldest" value={spanOf(1000 * queue.oldest_seconds)} />}
      </div>
    </Card>
  )
}

function Certificate({ of: { certificate: c } }: { of: Health }) {
  const left = c ? Date.parse(c.expires_at!) - serverNow() : 0
  return (
    <Card title="Certificate">
      {c ? <Facts of={[['Names', theirs(c.names.join(', '))], ['Expires', <><Time of={c.expires_at} form="date" /> <span class="muted">({left > 0 ? `in ${spanOf(left)}` : 'expired'})</span></>]]} /> : <p class="muted">This server speaks no TLS itself.</p>}
    </Card>
  )
}

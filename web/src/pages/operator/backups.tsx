// The backups: how fresh they are, what can be restored, and whether a trial restore works.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, call, serverNow, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Badge, Bar, Button, bytes, Card, Code, count, Empty, Facts, Notice, Page, plural, Show, TableWrap, theirs, Time, told, words, Wrong } from '../../ui'
import { JobBadge, type Job } from '../jobs/words'
import { useHealth, withCode, type Health } from './checks'
import { everyOf, spanIn, spanOf } from './spans'

type Backup = Schemas['Backup']

/** The result of a drill, as its job has it. */
interface DrillResult { at: string; messages: number; decrypted: boolean; ok: boolean; problems: string[] }

/** The newest job of a type, and whether it has not ended yet. */
function useNewest(type: 'backup' | 'backup_drill') {
  const jobs = useQuery('list_jobs', { type, limit: 1 })
  const job = jobs.data?.data[0]
  return { job, runs: job?.status === 'queued' || job?.status === 'in_progress', loading: jobs.loading, reload: jobs.reload }
}

export function Backups() {
  const health = useHealth(true, 5000)
  const backup = useNewest('backup'), drill = useNewest('backup_drill')
  const target = health.data?.backup.target
  const busy = backup.runs || drill.runs
  const start = async (operation: 'create_backup' | 'drill_backup') => {
    try {
      await call(operation)
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 'storage_full') throw error
      throw new Error('The disk has too little free space for a drill, which takes about as much as the store itself. Free space, then try again.')
    }
    await Promise.all([backup.reload(), drill.reload()])
    told(operation === 'create_backup' ? 'Backup started.' : 'Drill started.')
  }
  const actions = target && (
    <>
      <Button icon="shield" disabled={busy} onClick={() => start('drill_backup')}>Drill now</Button>
      <Button look="primary" icon="archive" disabled={busy} onClick={() => start('create_backup')}>Back up now</Button>
    </>
  )
  return (
    <Page title="Backups" intro="Everything on this server: mail, settings and keys." actions={actions}>
      <Show of={health} lines={6}>
        {(h) => (h.backup.target === null ? <None /> : (
          <>
            {backup.runs && <Progress of={backup.job!} name="Backup" />}
            {drill.runs && <Progress of={drill.job!} name="Drill" />}
            <Kept health={h} drill={drill.job} runs={drill.runs} />
          </>
        ))}
      </Show>
    </Page>
  )
}

const example = `[backup]
# a directory on another disk,
# or a bucket: "s3://bucket/prefix"
to = "/mnt/backups/mail"`

function None() {
  return (
    <Card>
      <Empty icon="archive" title="No backups are configured">If the disk of this host fails, all mail is lost. Name a directory on another disk, or a bucket, in mailstead.toml, then restart the server.</Empty>
      <Code label="Example" text={example} />
    </Card>
  )
}

/** A job that is under way. */
function Progress({ of: j, name }: { of: Job; name: string }) {
  return (
    <Card title={`${name} in progress`} actions={<JobBadge status={j.status} />} note={j.status_detail ? `Now: ${j.status_detail}` : 'Starting'}>
      {j.progress ? <Bar value={j.progress.completed} of={j.progress.total} label={`${name} progress`} /> : <p class="row muted"><span class="spinner" /> Mail keeps flowing meanwhile.</p>}
    </Card>
  )
}

/** The values of [backup] that tell when what is due. */
function useIntervals() {
  const settings = useQuery('list_settings', {})
  const span = (key: string) => spanIn(String(settings.data?.data.find((s) => s.key === 'backup.' + key)?.value ?? ''))
  return { every: span('every'), keep: span('keep'), drill: span('drill'), known: settings.data !== undefined }
}

function Kept({ health: h, drill, runs }: { health: Health; drill: Job | undefined; runs: boolean }) {
  const list = useQuery('list_backups', {}, { kinds: ['event'], pause: 15_000 })
  const due = useIntervals()
  const b = h.backup
  const last = useRef(b.last_success_at)
  useEffect(() => { // the schedule makes backups too, of which no job tells
    if (last.current === b.last_success_at) return
    last.current = b.last_success_at
    void list.reload()
  }, [b.last_success_at])
  return (
    <>
      {b.error && <Notice tone="bad" title="The backup is not up to date.">{theirs(b.error)} The server tries again automatically.</Notice>}
      <div class="grid-2">
        <Card title="Status">
          <Facts of={[
            ['Destination', theirs(b.target)],
            ['Last backup', <><Time of={b.last_success_at} none="none yet" />{b.last_success_at && <> <Badge tone={b.verified ? 'ok' : 'warn'}>{b.verified ? 'verified' : 'not verified'}</Badge></>}</>],
            ['Next backup', due.every > 0 && <Next last={b.last_success_at} every={due.every} />],
            ['Lag', lagOf(b, list.data?.last_at ?? null)],
            ['Restorable', list.data && <Range first={list.data.first_at} last={list.data.last_at} />],
            ['Kept for', due.keep > 0 && spanOf(due.keep)],
          ]} />
        </Card>
        <Drills last={drill} runs={runs} checks={h.checks} every={due.known ? due.drill : undefined} />
      </div>
      <Card title="Backups" flush note={list.data && list.data.count > 0 && `${plural(list.data.count, 'backup')}, newest first`}>
        <Show of={list} lines={4}>{({ data }) => (data.length === 0 ? <Empty icon="archive" title="No backups yet">The first one is made shortly after the server starts.</Empty> : <Table of={data} />)}</Show>
      </Card>
    </>
  )
}

function Next({ last, every }: { last: string | null; every: number }) {
  const at = last ? Date.parse(last) + every : 0
  return <>{at > serverNow() ? <Time of={new Date(at).toISOString()} /> : 'now'} <span class="muted">({everyOf(every)})</span></>
}

/**
 * How far the backup is behind: changes go there within a second of being made, unless that fails.
 */
function lagOf(b: Health['backup'], last: string | null) {
  if (!b.last_success_at) return 'no backup yet'
  if (!b.error) return 'none: changes are sent within a second'
  return last ? <>changes since <Time of={last} form="at" /> are not saved yet</> : 'changes are not saved'
}

function Range({ first, last }: { first: string | null; last: string | null }) {
  if (!first || !last) return <span class="muted">nothing yet</span>
  return <>any time from <Time of={first} form="at" /> to <Time of={last} form="at" /></>
}

function Drills({ last, runs, checks, every }: { last: Job | undefined; runs: boolean; checks: Health['checks']; every: number | undefined }) {
  const check = checks.find((c) => c.code === 'backup_drill' && c.status !== 'skipped')
  const result = last?.status === 'completed' ? last.result as unknown as DrillResult : undefined
  return (
    <Card title="Last drill" note="A drill restores the newest backup beside the store, checks the copy and deletes it.">
      <div class="stack-tight">
        {runs ? <p class="muted">A drill is running.</p>
          : result ? <Found of={result} at={last!.completed_at} />
          : last?.error ? <Notice tone="bad" title="The drill failed."><Wrong of={last.error} /> <Time of={last.completed_at} />.</Notice>
          : <p class="muted">{check ? withCode(check.message) : 'No drill yet. Only a restore proves that a backup works.'}</p>}
        {!runs && check?.mend && <Mend of={check.mend} />}
        {every !== undefined && <p class="muted small">{every > 0 ? `Runs automatically ${everyOf(every)}.` : 'Runs only when started here.'} <a href="/settings?q=backup.drill">Change schedule</a></p>}
      </div>
    </Card>
  )
}

/** What to do about a bad backup: the command that makes a whole one, if the check names it. */
function Mend({ of: text }: { of: string }) {
  const command = /`(mailstead backup [^`]+)`/.exec(text)?.[1]
  if (!command) return <p class="small"><strong>What to do:</strong> {withCode(text)}</p>
  return (
    <div class="stack-tight">
      <p class="small"><strong>What to do:</strong> If the <a href="/host">checks of the store</a> pass, make a full backup on the host, then drill again.</p>
      <Code label="Command" text={command} wraps />
    </div>
  )
}

function Found({ of: r, at }: { of: DrillResult; at: string | null }) {
  if (r.ok) {
    return (
      <Notice tone="ok" title="No problems found.">
        {r.decrypted ? <>The backup of <Time of={r.at} form="at" /> was restored with {plural(r.messages, 'message')}</> : <>The backup of <Time of={r.at} form="at" /> is encrypted, so only its checksums were verified</>}, <Time of={at} />.
      </Notice>
    )
  }
  return (
    <>
      <Notice tone="bad" alert title={`${plural(r.problems.length, 'problem')} found.`}>The backup of <Time of={r.at} form="at" /> is damaged. Drilled <Time of={at} />.</Notice>
      <ul class="operator-damage">{r.problems.map((text, i) => <li key={i}><code>{theirs(text)}</code></li>)}</ul>
    </>
  )
}

const shown = 25

function Table({ of }: { of: Backup[] }) {
  const [all, setAll] = useState(false)
  const rows = all ? of : of.slice(0, shown)
  return (
    <>
      <TableWrap label="Backups">
        <table class="table folds operator-backups">
          <thead><tr><th scope="col">Created</th><th scope="col">Kind</th><th scope="col" class="number">Size</th><th scope="col">Status</th></tr></thead>
          <tbody>
            {rows.map((b) => (
              <tr key={b.id}>
                <td data-label="Created"><Time of={b.at} form="at" /></td>
                <td data-label="Kind">{words(b.kind)}</td>
                <td data-label="Size" class="number">{bytes(b.bytes)}</td>
                <td data-label="Status"><Badge tone={b.verified ? 'ok' : 'warn'}>{b.verified ? 'verified' : 'not verified'}</Badge></td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableWrap>
      {rows.length < of.length && <div class="more"><Button small look="ghost" onClick={() => setAll(true)}>Show all {count(of.length)}</Button></div>}
    </>
  )
}

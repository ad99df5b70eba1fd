// One account on the server: what it used, its limits, and what its operator does with it.
import { useState } from 'preact/hooks'
import { ApiError, call, session, type Schemas } from '../../api/client'
import { daysAgo } from '../../api/clock'
import { useQuery } from '../../api/query'
import { ask, Button, bytes, Card, Chart, Code, Copyable, count, Dialog, Done, Facts, Form, LinkButton, Notice, Page, plural, SaveArea, savedBy, Select, Show, Stat, TextField, theirs, Time, told, useDraft, type Draft } from '../../ui'
import { AccountBadge, PlanField, type Hosted } from './accounts'

type Limits = Hosted['limits']
type Limit = keyof Limits

const deletionDays = 7 // between the request and the deletion

interface PartProps { of: Hosted; reload: () => Promise<void> }

export function AccountPage({ id }: { id: string }) {
  const account = useQuery('get_account_by_id', { account_id: id })
  const a = account.data
  return (
    <Page title={a?.name ?? 'Account'} back={{ href: '/accounts', label: 'Accounts' }} heading={a && <span class="row">{theirs(a.name)} <AccountBadge status={a.status} /></span>}
      intro={a?.name === a?.owner_email ? undefined : a?.owner_email} actions={a && <Actions of={a} reload={account.reload} />}>
      <Show of={account} lines={8}>
        {(a) => (
          <>
            <Standing of={a} />
            <Usage id={a.account_id} />
            <Editable of={a} reload={account.reload} />
          </>
        )}
      </Show>
    </Page>
  )
}

/** Whether it is the operator's own account, which nobody can suspend or delete. */
function isOwn(a: Hosted): boolean {
  return a.account_id === session.value!.account.id
}

function Standing({ of: a }: { of: Hosted }) {
  if (isOwn(a)) return <Notice>This is the account of this server’s operator. It can’t be suspended or deleted.</Notice>
  if (a.status === 'active') return null
  const idle = 'Nobody can sign in, and no mail is received or sent.'
  if (a.status === 'suspended') return <Notice tone="warn" title="Suspended.">{idle}</Notice>
  return (
    <Notice tone="bad" title={a.delete_at ? 'This account will be deleted.' : 'This account is being deleted.'}>
      {a.delete_at && <>Its domains, mailboxes and mail are deleted on <Time of={a.delete_at} form="at" />. Until then you can cancel the deletion. {idle}</>}
    </Notice>
  )
}

function Actions({ of: a, reload }: PartProps) {
  const [linking, setLinking] = useState(false)
  const [names, setNames] = useState<string[]>()
  if (isOwn(a)) return null
  const activate = async (text: string) => {
    await call('update_account_by_id', { account_id: a.account_id, status: 'active' })
    told(text)
    await reload()
  }
  const suspend = () => ask({
    title: `Suspend ${a.name}?`, action: 'Suspend', text: 'Everyone in the account is signed out, and no mail is received or sent until you resume it. Nothing is deleted.',
    run: async () => {
      await call('update_account_by_id', { account_id: a.account_id, status: 'suspended' })
      told('Account suspended.')
      await reload()
    },
  })
  const remove = () => ask({
    title: `Delete ${a.name}?`, action: 'Delete account', typed: a.name.trim(),
    text: (
      <div class="stack">
        <p>The account is suspended at once, and its owner is told by email. After {deletionDays} days it is deleted with its domains, mailboxes and mail. Until then you can cancel the deletion on this page.</p>
        <p>It has {plural(a.used.domains, 'domain')}, {plural(a.used.email_users, 'mailbox', 'mailboxes')} and {bytes(a.used.storage_bytes)} of mail.</p>
      </div>
    ),
    run: async () => {
      const { names } = await call('delete_account', { account_id: a.account_id, confirm: a.name })
      if (names.length > 0) setNames(names)
      else told('Account suspended. No domain of it points to this server.')
      await reload()
    },
  })
  return (
    <>
      {a.status === 'active' && <Button icon="key" onClick={() => setLinking(true)}>Sign-in link</Button>}
      {a.status === 'active' && <Button icon="pause" onClick={suspend}>Suspend</Button>}
      {a.status === 'suspended' && <Button look="primary" icon="play" onClick={() => activate('Account resumed.')}>Resume</Button>}
      {a.status === 'deleting'
        ? a.delete_at && <Button look="primary" icon="refresh" onClick={() => activate('Deletion cancelled. The account is active.')}>Cancel deletion</Button>
        : <Button look="danger" icon="trash" onClick={remove}>Delete</Button>}
      {linking && <SignInLink of={a} onClose={() => setLinking(false)} />}
      {names && <StillHere of={a} names={names} onClose={() => setNames(undefined)} />}
    </>
  )
}

/** Which domains of an account that goes still send their mail and their visitors here. */
function StillHere({ of: a, names, onClose }: { of: Hosted; names: string[]; onClose: () => void }) {
  return (
    <Dialog title={`${a.name} will be deleted in ${deletionDays} days`} onClose={onClose}>
      <div class="stack">
        <p>{names.length === 1 ? 'This domain still points' : `These ${count(names.length)} domains still point`} to this server. After the deletion {names.length === 1 ? 'its' : 'their'} mail is refused. Ask the owner to change the nameservers or DNS records before then.</p>
        <ul class="accounts-names">{names.map((name) => <li key={name}><code>{name}</code></li>)}</ul>
        <Done />
      </div>
    </Dialog>
  )
}

function SignInLink({ of: a, onClose }: { of: Hosted; onClose: () => void }) {
  const [link, setLink] = useState<Schemas['SignInLink']>()
  const make = async () => {
    try {
      setLink(await call('create_sign_in_link', { account_id: a.account_id }))
    } catch (error) {
      const off = error instanceof ApiError && error.code === 'forbidden_role'
      throw off ? new Error('Sign-in links are turned off on this server: sign_in_links is false in its configuration file.') : error
    }
  }
  return (
    <Dialog title={`Sign in to ${a.name}`} onClose={onClose}>
      {link ? (
        <div class="stack">
          <Notice tone="warn">Open it in a private window. In this browser it ends your own session. The link works once, until <Time of={link.expires_at} form="at" />, and is not shown again.</Notice>
          <Code text={link.url} label="Link" wraps />
          <div class="form-actions">
            <LinkButton icon="external" href={link.url} target="_blank" rel="noopener">Open in this browser</LinkButton>
            <Button look="primary" onClick={onClose}>Done</Button>
          </div>
        </div>
      ) : (
        <Form submit="Create link" onSubmit={make}>
          <p>The link signs you in as {a.owner_email}, once, for 15 minutes. You can read and change settings, domains and mail, but you can’t see or change passwords, tokens, two-factor authentication or the team.</p>
          <Notice>The link and every change made with it are recorded in the account’s audit log. The owner is told by email.</Notice>
        </Form>
      )}
    </Dialog>
  )
}

const spans: [string, string][] = [['30', 'Last 30 days'], ['90', 'Last 90 days'], ['400', 'Last 400 days']]

const day = 86_400_000 // ms

function Usage({ id }: { id: string }) {
  const [span, setSpan] = useState('30')
  const from = daysAgo(Number(span) - 1)
  const usage = useQuery('get_account_usage', { account_id: id, from })
  return (
    <Card title="Usage" actions={<Select label="Period" hideLabel value={span} onChange={setSpan} options={spans} />}>
      <Show of={usage}>{({ data }) => <Charts days={data} from={from} />}</Show>
    </Card>
  )
}

type Day = Schemas['HostedUsage']

/** All days of the period. Of a day without a row nothing is known. */
function everyDay(rows: Day[], from: string): [date: string, row: Day | undefined][] {
  const found = new Map(rows.map((r) => [r.date, r])), all: [string, Day | undefined][] = []
  for (let at = Date.parse(from); at <= Date.parse(rows.at(-1)!.date); at += day) {
    const date = new Date(at).toISOString().slice(0, 10)
    all.push([date, found.get(date)])
  }
  return all
}

function Charts({ days: rows, from }: { days: Day[]; from: string }) {
  const days = rows.length > 1 ? everyDay(rows, from) : [], dates = days.map(([date]) => date), last = rows.at(-1)
  const sum = (what: 'sent' | 'received' | 'bounced' | 'complained') => rows.reduce((n, d) => n + d[what], 0)
  const values = (of: (d: Day) => number) => days.map(([, d]) => (d ? of(d) : null))
  return (
    <div class="stack">
      <div class="stats">
        <Stat name="Sent" value={count(sum('sent'))} note="recipients" />
        <Stat name="Received" value={count(sum('received'))} />
        <Stat name="Bounced" value={count(sum('bounced'))} />
        <Stat name="Complaints" value={count(sum('complained'))} />
        <Stat name="Storage" value={bytes(last?.storage_bytes ?? 0)} note="now" />
      </div>
      {days.length === 0 ? <p class="muted">Daily charts appear here from the second day on.</p> : <div class="grid-2">
        <div class="stack-tight">
          <h3>Messages by day</h3>
          <Chart days={dates} label="Messages by day" series={[
            { name: 'Received', values: values((d) => d.received), color: '--accent', fill: true }, { name: 'Sent', values: values((d) => d.sent), color: '--info' },
            { name: 'Bounced', values: values((d) => d.bounced), color: '--warn' }, { name: 'Complaints', values: values((d) => d.complained), color: '--bad' },
          ]} />
        </div>
        <div class="stack-tight">
          <h3>Storage by day, in MiB</h3>
          <Chart days={dates} label="Storage by day" summary={`Storage by day: ${bytes(rows[0]?.storage_bytes ?? 0)} on the first day, ${bytes(last?.storage_bytes ?? 0)} on the last`}
            series={[{ name: 'MiB', values: values((d) => Math.round((10 * d.storage_bytes) / 2 ** 20) / 10), color: '--accent', fill: true }]} />
        </div>
      </div>}
    </div>
  )
}

const gib = 2 ** 30

/** A limit in its field: what is used of it, and the setting that holds where it is empty. */
interface LimitField { key: Limit; label: string; setting?: string; used?: (a: Hosted) => string }

const fields: LimitField[] = [
  { key: 'recipients_per_account_per_day', label: 'Recipients per day', setting: 'limits.recipients_per_account_per_day', used: (a) => `${count(a.used.recipients_today)} today` },
  { key: 'storage_bytes', label: 'Storage', used: (a) => `${bytes(a.used.storage_bytes)} used` },
  { key: 'domains', label: 'Domains', setting: 'limits.domains', used: (a) => `${count(a.used.domains)} used` },
  { key: 'email_users', label: 'Mailboxes', setting: 'limits.mailboxes', used: (a) => `${count(a.used.email_users)} used` },
  { key: 'mailboxes_per_domain', label: 'Mailboxes per domain', setting: 'limits.mailboxes_per_domain' },
  { key: 'team_users', label: 'Team members', setting: 'limits.team_users', used: (a) => `${count(a.used.team_users)} used` },
]

/** A limit as its field has it: empty where the account has none of its own, storage in GiB. */
function written(key: Limit, value: number | null): string {
  if (value === null) return ''
  return key === 'storage_bytes' ? String(parseFloat((value / gib).toFixed(6))) : String(value)
}

function wrongNumber(key: Limit): string {
  return `Enter a ${key === 'storage_bytes' ? '' : 'whole '}number, or leave it empty.`
}

/** What a field says; undefined if it is not a number. */
function readLimit(key: Limit, text: string): number | null | undefined {
  if (text.trim() === '') return null
  if (key !== 'storage_bytes') return /^\d{1,12}$/.test(text.trim()) ? Number(text) : undefined
  return /^\d{1,9}([.,]\d{1,6})?$/.test(text.trim()) ? Math.round(Number(text.replace(',', '.')) * gib) : undefined
}

type Values = Record<Limit, string> & Pick<Hosted, 'name' | 'plan'>

function valuesOf(a: Hosted): Values {
  const limits = Object.fromEntries(fields.map(({ key }) => [key, written(key, a.limits[key])])) as Record<Limit, string>
  return { name: a.name, plan: a.plan, ...limits }
}

function Editable({ of: a, reload }: PartProps) {
  const draft = useDraft(valuesOf(a))
  const save = async ({ name, plan, ...texts }: Partial<Values>) => {
    const limits: Partial<Limits> = {}
    for (const [key, text] of Object.entries(texts) as [Limit, string][]) {
      const limit = readLimit(key, text)
      if (limit === undefined) throw new ApiError(400, { code: 'validation_error', message: '', details: [{ field: 'limits.' + key, code: 'invalid', message: wrongNumber(key) }] })
      limits[key] = limit
    }
    await call('update_account_by_id', { account_id: a.account_id, name, plan, limits: Object.keys(limits).length > 0 ? limits : undefined })
    await reload()
  }
  return (
    <SaveArea at={`/accounts/${a.account_id}`} parts={[savedBy(draft, save)]}>
      <div class="grid-2">
        <LimitsCard of={a} draft={draft} />
        <About of={a} draft={draft} />
      </div>
    </SaveArea>
  )
}

interface FieldsProps { of: Hosted; draft: Draft<Values> }

function LimitsCard({ of: a, draft: { values, set } }: FieldsProps) {
  const settings = useQuery('list_settings', {}, { kinds: [] })
  /** What holds where the field is empty. */
  const usual = ({ setting }: LimitField) => {
    const found = settings.data?.data.find((s) => s.key === setting)
    const limit = Number(found?.value || found?.default || 0)
    return setting && !found ? undefined : limit > 0 ? count(limit) : 'No limit'
  }
  return (
    <Card title="Limits" note="Leave a field empty to use the server’s limit, shown in gray. 0 means no limit.">
      <div class="accounts-limits">
        {fields.map((f) => {
          const { key } = f, size = key === 'storage_bytes', wrong = readLimit(key, values[key]) === undefined
          return (
            <TextField key={key} label={f.label} name={'limits.' + key} inputMode={size ? 'decimal' : 'numeric'} value={values[key]} onInput={(text) => set({ [key]: text })} placeholder={usual(f)} hint={f.used?.(a)}
              after={size ? 'GiB' : undefined} error={wrong ? wrongNumber(key) : undefined} />
          )
        })}
      </div>
    </Card>
  )
}

function About({ of: a, draft: { values, set } }: FieldsProps) {
  return (
    <Card title="Details">
      <div class="stack">
        <div class="form">
          <TextField label="Name" name="name" value={values.name} onInput={(name) => set({ name })} />
          <PlanField value={values.plan} onChange={(plan) => set({ plan })} />
        </div>
        <Facts of={[
          ['Owner', a.owner_email],
          ['Created', <Time of={a.created_at} form="date" />],
          ['ID', <Copyable text={a.account_id} />],
          ['Audit log', <a href={`/audit?target=${a.account_id}`}>Changes by operators</a>],
        ]} />
      </div>
    </Card>
  )
}

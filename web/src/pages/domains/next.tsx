// The one next step of a domain.
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { call, can, serverNow, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Button, Icon, LinkButton, Loading, plural, Time, told, Wrong, type Tone } from '../../ui'
import type { TabProps } from './types'
import { DomainJob } from './jobs'
import { MakeMailbox } from './make'
import { InTheWay, isInTheWay } from './conflict'
import { BringMail, importPlace } from './in-use'
import { CopyFields, RecordFields } from './parts'
import { isHere, isUnread, obstacleOf, obstaclesOf, readAgain, useScan } from './scan'
import { setUpAgain } from './repair'
import { useDnsStatus } from './status'
import { adviceOf, byNeed, detailOf, isCached, issueWords, purposeOf, type Domain } from './words'

type NsCheck = Schemas['NameserverCheck']

export function NextStep(props: TabProps) {
  const { domain: d } = props
  switch (d.status) {
    case 'pending_ns':
      return <SetNameservers {...props} />
    case 'pending_dns_records':
      if (d.mx?.mode === 'elsewhere' && d.dns_provider !== 'manual') return <MailElsewhere {...props} />
      return <AddRecords {...props} />
    case 'pending':
    case 'in_progress':
      return <Running domain={d} title="Setting up this domain" />
    case 'deleting':
      return <Running domain={d} title="Deleting this domain" />
    case 'error':
      return isInTheWay(d) ? <InTheWay {...props} /> : <Broken {...props} />
  }
  if (isInTheWay(d)) return <InTheWay {...props} />
  if (d.dns_health.issues[0] && obstacleOf(d.dns_health.issues[0])) return <Obstructed {...props} />
  if (d.dns_health.issues.length > 0) return <Mend {...props} />
  if (d.dnssec?.status === 'bogus') return <ReplaceDs {...props} />
  return <AllWell domain={d} />
}

/** How the next step looks: what it is, why, and what to do. */
export function Step({ tone, title, children, actions }: { tone: Exclude<Tone, 'none'>; title: ComponentChildren; children?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <section class={'card domains-next ' + tone} aria-label="Next step">
      <Icon name={tone === 'ok' ? 'check' : tone === 'info' ? 'clock' : 'alert'} />
      <div class="stack">
        <h2>{title}</h2>
        {children}
        {actions && <div class="row">{actions}</div>}
      </div>
    </section>
  )
}

function SetNameservers({ domain: d, reload }: TabProps) {
  const [found, setFound] = useState<NsCheck>()
  const provider = useQuery('check_provider', { domain: d.domain }, { kinds: [], when: d.ns_status !== 'verified' })
  const check = async () => {
    const { domains } = await call('check_nameservers', { domains: [d.domain] })
    setFound(domains[0])
    if (domains[0]?.verified) told('Nameservers verified. Setup continues automatically.')
    await reload()
  }
  const at = provider.data?.registrar
  const scan = useScan(d), status = useDnsStatus(d)
  const areSet = (
    <Step tone="info" title="Nameservers are set" actions={can('check_nameservers') && <Button icon="refresh" onClick={check}>Check now</Button>}>
      {found && !found.verified && <p role="status">{found.message}</p>}
      {detailOf(d) && <p>{detailOf(d)}</p>}
      <NextLook domain={d} />
      <details><summary class="muted">Show nameservers</summary><CopyFields of={serversOf(d)} /></details>
    </Step>
  )
  if (d.ns_status === 'verified') return areSet
  if (!scan.known) return <Step tone="info" title="Reading the present records"><Loading lines={3} /></Step>
  if (scan.running) return <Step tone="info" title="Reading the present records"><p>Don’t change the nameservers yet. Mailstead is reading the records that {d.domain_unicode} has now. This can take a few minutes.</p></Step>
  const obstacle = obstaclesOf(d).find((o) => !o.advice)
  if (obstacle?.first) return <Obstructed domain={d} reload={reload} />
  if (d.apex?.mode === 'undecided') {
    return (
      <Step tone="warn" title="Don’t change the nameservers yet" actions={<>
        {can('check_nameservers') && <Button look="primary" icon="refresh" onClick={check}>Check now</Button>}
        {can('update_domain') && <LinkButton href={`/domains/${d.id}/mail`}>Say where the website is</LinkButton>}
      </>}>
        <p>The present nameservers do not answer, so it is not known whether the domain has a website. If you know, say so.</p>
        <NextLook domain={d} />
      </Step>
    )
  }
  const here = isHere(d, status.data?.nameservers.actual)
  if (obstacle) return <LookFirst domain={d} reload={reload} title={obstacle.place === 'import' && !here ? 'Import the present records first' : obstacle.title} text={obstacle.text} place={obstacle.place} here={here} />
  if (here) return areSet
  if (isUnread(scan)) return <LookFirst domain={d} reload={reload} title="The present records could not be read" text="Read them again, or import a zone file of your present DNS provider. Then change the nameservers." place="zone" onRead={() => readAgain(d, scan)} />
  return (
    <Step tone="warn" title="Set these nameservers at your registrar" actions={can('check_nameservers') && <Button look="primary" icon="refresh" onClick={check}>I’ve set them, check now</Button>}>
      <ol class="domains-how">
        <li>Sign in to the registrar of {d.domain_unicode}{at ? <>: <strong>{at}</strong></> : ''}.</li>
        <li>In the domain’s settings, find “Nameservers” or “DNS” and choose custom nameservers.</li>
        <li>Replace all existing nameservers with these:</li>
      </ol>
      <CopyFields of={serversOf(d)} />
      {!found && status.data && <Found expected={status.data.nameservers.expected} actual={status.data.nameservers.actual} />}
      {found && !found.verified && <Found expected={found.nameservers} actual={found.current_ns} message={found.message} />}
      <NextLook domain={d} />
      <p class="muted small">The change usually takes a few minutes, sometimes up to a day. {d.previous_nameservers.length > 0 ? 'The page below shows what stays, what changes, and how to go back.' : <>If a website or another service uses this domain, its DNS records must be here before you change the nameservers. {can('set_zone_records') ? <>Add them to the <a href={`/domains/${d.id}/zone`}>zone</a>.</> : 'The account’s owner or an admin can add them.'}</>}</p>
    </Step>
  )
}

/** What should be looked at before the nameservers of a domain in use are changed, or soon after they were: then they are here. */
function LookFirst({ domain: d, reload, title, text, place, here, onRead }: { domain: Domain; reload: TabProps['reload']; title: string; text: string; place?: 'import' | 'mail' | 'zone'; here?: boolean; onRead?: () => Promise<void> }) {
  const keep = async () => {
    await call('update_domain', { domain_id: d.id, mx: { mode: 'elsewhere' } })
    told('The mail stays where it is.')
    await reload()
  }
  const toImport = () => {
    const at = document.getElementById(importPlace)
    at?.scrollIntoView({ block: 'start' })
    at?.focus({ preventScroll: true })
  }
  return (
    <Step tone="warn" title={title} actions={<>
      {onRead && can('scan_zone') && <Button look="primary" icon="refresh" onClick={onRead}>Read again</Button>}
      {place === 'import' && can('import_zone') && <Button look="primary" onClick={toImport}>See the records</Button>}
      {place === 'mail' && <LinkButton href={`/domains/${d.id}/mailboxes`}>Mailboxes</LinkButton>}
      {place === 'mail' && can('update_domain') && <Button onClick={keep}>Keep mail there for now</Button>}
      {place === 'zone' && <LinkButton href={`/domains/${d.id}/zone`}>Open the zone</LinkButton>}
    </>}>
      <p>{text}</p>
      {!can('import_zone') && <p class="muted">The account’s owner or an admin can do this.</p>}
      {!here && (
        <details>
          <summary class="muted">Show the nameservers to set after that</summary>
          <CopyFields of={serversOf(d)} />
        </details>
      )}
      <NextLook domain={d} />
    </Step>
  )
}

/** What has to be done before, or has broken, of a domain that is in use. */
function Obstructed({ domain: d, reload }: TabProps) {
  const first = obstaclesOf(d)[0]!
  const byScan = d.dns_provider !== 'builtin' && can('scan_zone') // then only a scan shows whether it is mended
  const look = async () => {
    await call('get_dns_status', { domain_id: d.id, refresh: true })
    if (byScan) await readAgain(d)
    await reload()
  }
  return (
    <Step tone={first.first ? 'bad' : 'warn'} title={first.title} actions={<Button look="primary" icon="refresh" onClick={look}>Check now</Button>}>
      <p>{first.text}</p>
      {d.status !== 'complete' && <NextLook domain={d} />}
    </Step>
  )
}

function MailElsewhere({ domain: d, reload }: TabProps) {
  const [open, setOpen] = useState(false)
  return (
    <Step tone="warn" title="Bring the mail here when you are ready" actions={<>
      {can('update_domain') && <Button look="primary" onClick={() => setOpen(true)}>Bring mail here</Button>}
      <LinkButton href={`/domains/${d.id}/mailboxes`}>Mailboxes</LinkButton>
    </>}>
      <p>Mail of {d.domain_unicode} still goes to {d.mx!.hosts.join(', ') || 'its present servers'}. Create its mailboxes and import their mail first.</p>
      {open && <BringMail domain={d} reload={reload} onClose={() => setOpen(false)} />}
    </Step>
  )
}

/** When Mailstead checks a waiting domain again. */
function NextLook({ domain: d }: { domain: Domain }) {
  const later = d.next_look_at !== null && Date.parse(d.next_look_at) > serverNow()
  return <p class="muted">{later ? <>Mailstead checks again <Time of={d.next_look_at} /> and continues setup automatically.</> : 'Mailstead is checking now. Setup continues automatically.'}</p>
}

function serversOf(d: Domain): [string, string][] {
  return d.nameservers.map((ns, i) => [`Nameserver ${i + 1}`, ns])
}

/** What the DNS says instead of what it should. */
export function Found({ expected, actual, message }: { expected: string[]; actual: string[]; message?: string }) {
  return (
    <div class="domains-found" role="status">
      {message && <p>{message}</p>}
      <dl class="facts">
        <dt>Expected</dt><dd>{expected.map((ns) => <code key={ns}>{ns}</code>)}</dd>
        <dt>Found</dt><dd>{actual.length === 0 ? <span class="muted">no nameservers</span> : actual.map((ns) => <code key={ns} class={expected.includes(ns) ? undefined : 'domains-wrong'}>{ns}</code>)}</dd>
      </dl>
    </div>
  )
}

function AddRecords({ domain: d, reload }: TabProps) {
  const status = useDnsStatus(d)
  const verify = async () => {
    const { critical_verified: done, records } = await call('verify_dns', { domain_id: d.id })
    told(done ? 'All required records found. The domain is ready.' : `${records.filter((r) => r.verified).length} of ${plural(records.length, 'record')} found.`)
    await Promise.all([reload(), status.reload()])
  }
  if (!status.data) return <Step tone="warn" title="Add the DNS records at your DNS provider"><Loading lines={3} /></Step>
  const stays = d.mx?.mode === 'elsewhere'
  const records = byNeed(status.data.records).filter((r) => !stays || r.purpose !== 'MX')
  if (stays && !records.some((r) => !r.verified && r.critical)) return <MailElsewhere domain={d} reload={reload} />
  const there = records.filter((r) => r.verified).length
  const first = records.find((r) => !r.verified)
  const also = records.filter((r) => !r.verified).length - 1
  const noRecords = d.dns_provider !== 'manual' && d.dns_provider !== 'builtin' // setup was asked not to make them there
  return (
    <Step tone={first ? 'warn' : 'info'} title={first ? `${first.actual === null ? 'Add' : 'Edit'} this ${first.type} record at your DNS provider` : 'All records found'}
      actions={<>
        {d.dns_provider === 'manual' && can('verify_dns') && <Button look={first && 'primary'} icon="refresh" onClick={verify}>{first ? `I’ve ${first.actual === null ? 'added' : 'edited'} it, check now` : 'Check now'}</Button>}
        {also > 0 && <LinkButton href={`/domains/${d.id}/dns`}>See {plural(also, 'other record')}</LinkButton>}
        {noRecords && can('setup_domain') && <Button look="primary" icon="refresh" onClick={() => setUpAgain(d, reload)}>Set up again</Button>}
      </>}>
      {noRecords && detailOf(d) && <p>{detailOf(d)}</p>}
      {first && <><p class="muted">{purposeOf(first.purpose, d).about}</p><RecordFields record={first} domain={d} found={first.actual !== null} /></>}
      <NextLook domain={d} />
      <p class="muted small">{there} of {plural(records.length, 'record')} found. New records usually appear within minutes.</p>
    </Step>
  )
}

function Running({ domain: d, title }: { domain: Domain; title: string }) {
  return (
    <Step tone="info" title={title}>
      {detailOf(d) && <p>{detailOf(d)}</p>}
      {d.job_id ? <DomainJob id={d.job_id} /> : <p class="muted">This continues automatically.</p>}
    </Step>
  )
}

function Broken({ domain: d, reload }: TabProps) {
  const unproven = d.error?.code === 'domain_claimed_elsewhere' || d.error?.code === 'claim_expired'
  return (
    <Step tone="bad" title={unproven ? 'Prove that you own this domain' : 'Setup failed'} actions={<>
      {can('setup_domain') && <Button look="primary" icon="refresh" onClick={() => setUpAgain(d, reload)}>Set up again</Button>}
      {d.error?.code === 'records_not_ready' && <LinkButton href={`/domains/${d.id}/dns`}>See the records</LinkButton>}
      {d.job_id && <LinkButton href={'/jobs/' + d.job_id}>Open the job</LinkButton>}
    </>}>
      <p>{d.error ? <Wrong of={d.error} /> : 'Setup failed.'}</p>
      {unproven && <CopyFields of={[['Type', 'TXT'], ['Name', '_mailstead', `some providers need _mailstead.${d.domain}`], ['Value', 'mailstead-claim=' + d.id]]} />}
      {d.error?.code === 'ns_timeout' && <CopyFields of={serversOf(d)} />}
      <p class="muted small">{!can('setup_domain') && 'The account’s owner or an admin can set it up again. '}Setup continues where it stopped. Nothing is bought twice, and existing data is kept.</p>
    </Step>
  )
}

function Mend({ domain: d, reload }: TabProps) {
  const status = useDnsStatus(d)
  const issue = d.dns_health.issues[0]!
  const others = d.dns_health.issues.length - 1
  const record = status.data?.records.find((r) => !r.verified && r.purpose === issue.purpose && r.host === issue.host)
  const bad = d.dns_health.status === 'failing', cached = record !== undefined && record.error !== 'lookup_failed' && isCached(d)
  const look = async () => {
    await status.look()
    await reload()
  }
  const title = issue.purpose === 'NS' ? 'Set the nameservers again at your registrar' : record && d.dns_provider === 'manual' ? `Fix the ${purposeOf(issue.purpose).name} record` : cached ? `Resolvers still have an old ${purposeOf(issue.purpose).name} record` : issueWords(issue).title
  return (
    <Step tone={bad ? 'bad' : 'warn'} title={title} actions={<>
      <Button look="primary" icon="refresh" onClick={look}>Check now</Button>
      {issue.code === 'credential_invalid' && can('list_dns_credentials') && <LinkButton href="/account/dns">DNS credentials</LinkButton>}
      <LinkButton href={`/domains/${d.id}/dns`}>{others > 0 ? `See ${plural(others, 'other problem')}` : 'See all records'}</LinkButton>
    </>}>
      <p>{cached ? `For them it is ${record.actual ?? 'not there'}, until its TTL is over. There is nothing to do unless this lasts for more than a day.` : issueWords(issue).text}{bad && <> Mail has been at risk since <Time of={d.dns_health.failing_since} form="at" />.</>}</p>
      {issue.purpose === 'NS' && <CopyFields of={serversOf(d)} />}
      {issue.purpose === 'NS' && status.data && <Found expected={status.data.nameservers.expected} actual={status.data.nameservers.actual} />}
      {record && !isCached(d) && <><p class="muted small">{adviceOf(record, d)}</p><RecordFields record={record} domain={d} found /></>}
    </Step>
  )
}

function ReplaceDs({ domain: d, reload }: TabProps) {
  return (
    <Step tone="bad" title="Replace the DS record at your registrar" actions={<Button look="primary" icon="refresh" onClick={async () => {
      await call('get_dns_status', { domain_id: d.id, refresh: true })
      await reload()
    }}>Check now</Button>}>
      <p>The DS record at your registrar does not match this domain, so validating resolvers can’t resolve it. Replace it with this one, or delete it there.</p>
      <CopyFields of={d.dnssec!.ds.map((ds) => ['DS record', ds.value])} />
    </Step>
  )
}

function AllWell({ domain: d }: { domain: Domain }) {
  if (d.email_users_count === 0 && can('create_email_user')) {
    return (
      <Step tone="ok" title={d.dns_provider === 'external' ? 'Ready. Connect the first mailbox' : 'Ready. Create the first mailbox'} actions={<MakeMailbox domain={d} />}>
        <p class="muted">{d.dns_provider === 'external' ? 'Mailstead logs in to it at its current provider.' : 'The domain accepts mail once it has a mailbox, a catch-all or forwarding.'}</p>
      </Step>
    )
  }
  return (
    <Step tone="ok" title="Everything is OK">
      <p class="muted">{d.dns_provider === 'external' ? 'DNS and mail of this domain are hosted elsewhere.' : <>Mailstead checks the DNS records every hour. Last checked: <Time of={d.dns_health.checked_at} />.</>}</p>
    </Step>
  )
}

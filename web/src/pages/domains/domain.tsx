// A domain's page: its state, the one next step, and its tabs. One bar saves what is changed in
// any of them.
import type { ComponentType } from 'preact'
import { useQuery } from '../../api/query'
import { go } from '../../router'
import { Badge, Empty, LinkButton, Page, PageTabs, SaveArea, Show, TabPanel } from '../../ui'
import { Paused } from '../mailboxes/paused'
import { Dmarc } from './dmarc'
import { Dns } from './dns'
import { tabsOfFields, useDomainDrafts } from './draft'
import { DomainJobs } from './jobs'
import { DomainMailboxes } from './mailboxes'
import { Making } from './make'
import { MailSettings } from './mail'
import { NextStep } from './next'
import { Repairs } from './repair'
import { Reports } from './reports'
import { useScan } from './scan'
import { Settings } from './settings'
import { Overview } from './summary'
import type { FieldsProps, TabProps } from './types'
import { StateBadge, type Domain } from './words'
import { Zone } from './zone'

interface Tab { id: string; name: string; page: ComponentType<FieldsProps>; hosted?: true }

const tabs: Tab[] = [
  { id: '', name: 'Overview', page: Overview },
  { id: 'dns', name: 'DNS', page: Dns, hosted: true },
  { id: 'zone', name: 'Zone', page: Zone, hosted: true },
  { id: 'dmarc', name: 'DMARC policy', page: Dmarc, hosted: true },
  { id: 'mail', name: 'Mail and web', page: MailSettings, hosted: true },
  { id: 'reports', name: 'Reports', page: Reports },
  { id: 'mailboxes', name: 'Mailboxes', page: DomainMailboxes },
  { id: 'jobs', name: 'Jobs', page: DomainJobs },
  { id: 'settings', name: 'Settings', page: Settings },
]

export function DomainPage({ id, tab = '' }: { id: string; tab?: string }) {
  const domain = useQuery('get_domain', { domain_id: id }, { only: (c) => c.kind === 'mailbox' || c.id === id, kinds: ['domain', 'mailbox'] })
  const d = domain.data
  const at = tabs.find((t) => t.id === tab)
  const shown = tabs.filter((t) => !t.hosted || !d || d.dns_provider !== 'external')
  const title = (d?.domain_unicode ?? 'Domain') + (tab && at ? ' · ' + at.name : '')
  return (
    <Page title={title} back={{ href: '/domains', label: 'Domains' }}
      heading={d ? <span class="row">{d.domain_unicode} {d.status === 'pending_ns' ? <WaitingBadge domain={d} /> : <StateBadge domain={d} />}{d.tags.map((t) => <Badge key={t} plain>{t}</Badge>)}</span> : 'Domain'}
      tabs={<PageTabs label="Domain" current={tab} tabs={shown.map((t) => ({ id: t.id, name: t.name, href: `/domains/${id}${t.id && '/' + t.id}` }))} />}>
      <Show of={domain}>
        {(d) => at ? <Parts tab={at} domain={d} reload={domain.reload} /> : <Empty icon="search" title="Page not found" action={<LinkButton href={'/domains/' + id}>Back to domain</LinkButton>} />}
      </Show>
      <Repairs />
      <Making />
    </Page>
  )
}

/** The badge of a domain that waits for its nameservers: while its present records are read there is nothing to do. */
function WaitingBadge({ domain: d }: { domain: Domain }) {
  return <StateBadge domain={d} reading={useScan(d).running} />
}

/** What is in the tabs. What was changed in one stays as the viewer goes to another. */
function Parts({ tab, domain: d, reload }: TabProps & { tab: Tab }) {
  const { drafts, parts } = useDomainDrafts(d, reload)
  const place = '/domains/' + d.id
  return (
    <SaveArea parts={parts} at={place} reveal={(field) => go(`${place}/${tabsOfFields[field.split('.')[0]!] ?? 'settings'}`)}>
      <TabPanel current={tab.id}>
        <Paused of={d.sending_paused} name={d.domain} domain={d.id} />
        {tab.id === '' && <NextStep domain={d} reload={reload} />}
        <tab.page domain={d} reload={reload} drafts={drafts} />
      </TabPanel>
    </SaveArea>
  )
}

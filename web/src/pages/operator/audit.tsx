// What was changed in the account, when, by whom and from where.
import { can, session, type Input, type Schemas } from '../../api/client'
import { operations } from '../../api/generated/operations'
import { usePages } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, Button, Card, count, Empty, ListBar, LongList, Page, TextField, theirs, Time, totalOf, TypedField, words, type Column } from '../../ui'

type Row = Schemas['AuditRow']

const filters = ['action', 'actor', 'target', 'from', 'to'] as const

/** Actions whose names say too little, or are said in other words here. */
const names: Record<string, string> = {
  login: 'Sign in', login_failed: 'Failed sign-in', logout: 'Sign out', create_sign_in_link: 'Create sign-in link', update_account_by_id: 'Update account',
  'account create': 'Create account', 'account suspend': 'Suspend account', 'account resume': 'Resume account', 'account delete': 'Delete account', 'token create': 'Create token',
}

/** A name of the API in the words of the dashboard. */
const said = (name: string) => names[name] ?? words(name).replace(/email user/i, (found) => found.startsWith('E') ? 'Mailbox' : 'mailbox').replace('team user', 'team member')

const actions = [...new Set([...Object.entries(operations).filter(([, [method]]) => method !== 'GET').map(([name]) => name), ...Object.keys(names)])].sort()

function filterOf(p: URLSearchParams): Input<'list_audit'> {
  /** The last moment that is outside of a day of the viewer's zone: before it, or after it. */
  const bound = (name: string, side: 'before' | 'after') => {
    const start = new Date(p.get(name) + 'T00:00:00')
    if (isNaN(start.getTime())) return undefined
    if (side === 'before') return new Date(start.getTime() - 1).toISOString()
    start.setDate(start.getDate() + 1)
    return start.toISOString()
  }
  return {
    action: p.get('action') || undefined, actor: p.get('actor') || undefined, target: p.get('target') || undefined,
    created_after: bound('from', 'before'), created_before: bound('to', 'after'),
  }
}

function clear() {
  setParams(Object.fromEntries(filters.map((name) => [name, ''])))
}

const columns: Column[] = [{ name: 'Action' }, { name: 'Record' }, { name: 'By' }, { name: 'From' }, { name: 'Time', number: true }]

export function Audit() {
  const pages = usePages('list_audit', { limit: 50, ...filterOf(params.value) }, (r) => r.id)
  const filtered = filters.some((name) => params.value.get(name))
  return (
    <Page title="Audit log" intro="Who changed what in this account, and every sign-in. Kept for 400 days." actions={<Button icon="refresh" onClick={pages.reload}>Refresh</Button>}>
      <Filters filtered={filtered} />
      <ListBar total={totalOf(pages, 'row')} />
      <Card flush>
        <LongList pages={pages} idOf={(r) => r.id} height={58} compactHeight={46} narrowHeight={140} label="Audit log" table={{ columns, class: 'audit-line' }} row={(r) => <Line of={r} />}
          empty={filtered ? <Empty icon="search" title="No rows match" action={<Button onClick={clear}>Clear filters</Button>} /> : <Empty icon="book" title="Nothing was changed yet" />} />
      </Card>
    </Page>
  )
}

function Filters({ filtered }: { filtered: boolean }) {
  const p = params.value
  return (
    <div class="log-filters">
      <TypedField name="action" label="Action" placeholder="update_domain" list={actions} />
      <TypedField name="actor" label="By" placeholder="Email, token or ID" />
      <TypedField name="target" label="Record" placeholder="Name, type or ID" />
      <TextField label="Since" type="date" value={p.get('from') ?? ''} onInput={(from) => setParams({ from })} />
      <TextField label="Until" type="date" value={p.get('to') ?? ''} onInput={(to) => setParams({ to })} />
      {filtered && <Button look="ghost" icon="x" onClick={clear}>Clear</Button>}
    </div>
  )
}

const vias: Record<Row['via'], string> = { api: 'API', mcp: 'Assistant', dashboard: 'Dashboard', command: 'Command line' }

function Line({ of: r }: { of: Row }) {
  const asked = r.request_id && r.action in operations && r.actor.type !== 'operator' && can('get_request') // others are not in the log of requests
  const actor = placeOf(r.actor.type, r.actor.id), target = r.target && !r.action.startsWith('delete_') ? placeOf(r.target.type, r.target.id) : undefined
  return (
    <>
      <span role="cell" class="audit-what">
        <span class="truncate"><strong title={r.action}>{said(r.action)}</strong>{r.count > 1 && <> <Badge plain>{count(r.count)}×</Badge></>}</span>
        {r.fields.length > 0 && <span class="muted small truncate" title={r.fields.join(', ')}>{r.fields.map((name) => (name.includes('.') ? name : words(name).toLowerCase())).join(', ')}</span>}
      </span>
      <span role="cell" class="audit-target">
        {r.target && <><span class="truncate">{link(target, r.target.name || r.target.id)}</span><span class="muted small truncate">{said(r.target.type)}</span></>}
      </span>
      <span role="cell" class="audit-actor"><span class="truncate">{r.actor.type === 'operator' ? 'The operator' : link(actor, r.actor.name || r.actor.type)}</span>{r.actor.type !== 'operator' && <span class="muted small truncate">{words(r.actor.type)}</span>}</span>
      <span role="cell" class="audit-from">
        <span class="truncate">{asked ? <a href={`/requests/${r.request_id}`}>{vias[r.via]}</a> : vias[r.via]}</span>
        {r.ip && <span class="muted small truncate">{r.ip}</span>}
      </span>
      <span role="cell" class="audit-when muted small number nowrap"><Time of={r.created_at} form="at" /></span>
    </>
  )
}

function link(href: string | undefined, name: string) {
  return href ? <a href={href}>{theirs(name)}</a> : theirs(name)
}

/** The place of what a row names, by its type; undefined where it has none of its own. */
function placeOf(type: string, id: string | null): string | undefined {
  switch (type) {
    case 'domain':
      return `/domains/${id}`
    case 'email_user':
    case 'mailbox':
      return `/mailboxes/${id}`
    case 'webhook':
      return `/webhooks/${id}`
    case 'job':
      return `/jobs/${id}`
    case 'approval':
      return `/approvals/${id}`
    case 'message': // of the sending log; others are of an inbox, named by their number
      return id?.startsWith('msg_') ? `/sent/${id}` : undefined
    case 'account':
      return id === session.value!.account.id ? '/account' : session.value!.operator ? `/accounts/${id}` : undefined
    case 'settings':
      return session.value!.operator ? '/settings' : undefined
    case 'user':
      return '/team'
    case 'token':
      return '/tokens'
    case 'dns_credential':
      return '/account/dns'
    case 'group':
      return '/mailboxes/groups'
    case 'template':
      return '/mailboxes/templates'
    case 'message_template':
      return '/sent/templates'
    case 'suppression':
      return '/sent/suppressions'
  }
}

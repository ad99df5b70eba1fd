// The accounts on the server, with what each uses of its limits.
import { useState } from 'preact/hooks'
import { call, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { params, setParams } from '../../router'
import { Badge, bytes, Button, Card, Code, count, Dialog, Empty, Form, LinkButton, ListBar, LongList, Notice, Page, SearchField, Select, TextField, theirs, totalOf, type Column, type Tone } from '../../ui'

export type Hosted = Schemas['HostedAccount']
type Status = Hosted['status']

const tones: Record<Status, Tone> = { active: 'ok', suspended: 'warn', deleting: 'bad' }
const statuses: [Status | '', string][] = [['', 'Any status'], ['active', 'Active'], ['suspended', 'Suspended'], ['deleting', 'Being deleted']]

const plans: [Hosted['plan'], string][] = [['startup', 'Startup'], ['enterprise', 'Enterprise']]

/** The plan of an account. none is what a choice of none is called, where that is possible. */
export function PlanField<T extends Hosted['plan'] | ''>({ value, onChange, none }: { value: T; onChange: (plan: T) => void; none?: string }) {
  return <Select label="Plan" name="plan" value={value} onChange={onChange} options={[...(none ? [['' as T, none] as const] : []), ...(plans as [T, string][])]} hint="Sets how many API requests per minute the account can make." />
}

export function AccountBadge({ status }: { status: Status }) {
  return <Badge tone={tones[status]}>{status}</Badge>
}

const columns: Column[] = [{ name: 'Account' }, { name: 'Recipients today' }, { name: 'Storage' }, { name: 'Domains' }, { name: 'Mailboxes' }, { name: 'Status' }]

export function Accounts() {
  const q = params.value.get('q') ?? '', status = (params.value.get('status') ?? '') as Status | ''
  const pages = usePages('list_accounts', { limit: 100, q: q || undefined, status: status || undefined }, (a) => a.account_id)
  const [adding, setAdding] = useState(false)
  return (
    <Page title="Accounts" intro="Everyone who has mail on this server. Accounts never see each other."
      actions={<Button look="primary" icon="plus" onClick={() => setAdding(true)}>Add account</Button>}>
      <ListBar total={totalOf(pages, 'account')}>
        <SearchField label="Search by name or owner" />
        <Select label="Status" hideLabel value={status} onChange={(status) => setParams({ status })} options={statuses} />
      </ListBar>
      <Card flush>
        <LongList pages={pages} idOf={(a) => a.account_id} height={58} compactHeight={46} narrowHeight={108} label="Accounts" table={{ columns, class: 'accounts-line' }} row={(a) => <Row of={a} />}
          empty={<Empty icon="search" title="No accounts match" action={<Button onClick={() => setParams({ q: '', status: '' })}>Clear filters</Button>} />} />
      </Card>
      {adding && <Add onClose={() => setAdding(false)} onAdded={pages.reload} />}
    </Page>
  )
}

function Row({ of: a }: { of: Hosted }) {
  const { used, limits } = a
  return (
    <>
      <span role="cell" class="accounts-name"><a class="row-link truncate" href={`/accounts/${a.account_id}`}>{theirs(a.name)}</a>{a.owner_email !== a.name && <span class="muted small truncate">{a.owner_email}</span>}</span>
      <Use name="Sent today" used={used.recipients_today} limit={limits.recipients_per_account_per_day} />
      <Use name="Storage" used={used.storage_bytes} limit={limits.storage_bytes} write={bytes} />
      <Use name="Domains" used={used.domains} limit={limits.domains} />
      <Use name="Mailboxes" used={used.email_users} limit={limits.email_users} />
      <span role="cell" class="accounts-status"><AccountBadge status={a.status} /></span>
    </>
  )
}

/** What is used, and of how much if the account has a limit of its own. */
function Use({ name, used, limit, write = count }: { name: string; used: number; limit: number | null; write?: (n: number) => string }) {
  const near = limit ? used / limit >= 0.9 : false
  return <span role="cell" class={'accounts-use' + (near ? ' near' : '')}><span class="accounts-what">{name} </span>{write(used)}{limit ? <span class="muted"> of {write(limit)}</span> : ''}</span>
}

function Add({ onClose, onAdded }: { onClose: () => void; onAdded: () => Promise<void> }) {
  const [name, setName] = useState(''), [email, setEmail] = useState(''), [plan, setPlan] = useState<Hosted['plan'] | ''>('')
  const [made, setMade] = useState<Schemas['HostedAccountCreated']>()
  if (made) {
    return (
      <Dialog title={`${made.name} was added`} onClose={onClose}>
        <div class="stack">
          {made.reset_link && (
            <>
              <Notice tone="warn">Send this link to {made.owner_email}. The owner chooses a password with it. It works once, expires after 72 hours, and is not shown again.</Notice>
              <Code text={made.reset_link} label="Link" wraps />
            </>
          )}
          <div class="form-actions">
            <LinkButton href={`/accounts/${made.account_id}`}>Set limits</LinkButton>
            <Button look="primary" onClick={onClose}>Done</Button>
          </div>
        </div>
      </Dialog>
    )
  }
  const submit = async () => {
    setMade(await call('create_account', { name, owner_email: email, plan: plan || undefined }))
    await onAdded()
  }
  return (
    <Dialog title="Add account" onClose={onClose}>
      <Form submit="Add account" onSubmit={submit} of={[name, email, plan]} disabled={!name.trim() || !email.trim()}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="Example Ltd" autoFocus />
        <TextField label="Owner’s email" name="owner_email" type="email" value={email} onInput={setEmail} hint="The owner signs in with this address." />
        <PlanField value={plan} onChange={setPlan} none="Server default" />
      </Form>
    </Dialog>
  )
}

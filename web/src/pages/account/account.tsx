// The account: its name, what it uses of its limits, and what holds for all of its mailboxes.
import { useEffect, useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Bar, Button, bytes, Card, Check, Copyable, count, Facts, Form, Page, Show, TextArea, TextField, Time, told, useDraft, words, Wrong } from '../../ui'
import { AccountTabs } from './tabs'

type AccountOut = Schemas['Account']

export function Account() {
  const account = useQuery('get_account', {}), usage = useQuery('get_usage', {})
  return (
    <Page title="Account" intro="Shared account settings." tabs={can('list_dns_credentials') && <AccountTabs current="account" />}>
      <Show of={account}>
        {(a) => (
          <>
            <div class="grid-2">
              <About account={a} />
              <Show of={usage}>{(u) => <Limits usage={u} />}</Show>
            </div>
            <div class="grid-2">
              <Universal account={a} />
              <Warmup account={a} reload={account.reload} />
            </div>
          </>
        )}
      </Show>
    </Page>
  )
}

function About({ account: a }: { account: AccountOut }) {
  const [name, setName] = useState(a.name)
  return (
    <Card title="Details">
      <div class="stack">
        {can('update_account') && (
          <Form submit="Rename" disabled={name === a.name} onSubmit={async () => { await call('update_account', { name }); told('Account renamed.') }}>
            <TextField label="Name" name="name" value={name} onInput={setName} />
          </Form>
        )}
        <Facts of={[
          ['Owner', a.email],
          ['Plan', words(a.plan)],
          ['Created', <Time of={a.created_at} form="date" />],
          ['Nameservers', a.nameservers.map((ns) => <div key={ns}><Copyable text={ns} /></div>)],
          ['Mail host', <Copyable text={a.mail.hostname} />],
          ['Outgoing mail', outgoing(a.mail.relay)],
          ['Registrars', a.registrars.join(', ') || 'None: buy domains elsewhere'],
          ['API rate limit', `${count(a.rate_limit.per_minute)} requests per minute, bursts of ${count(a.rate_limit.burst)}`],
          ['Version', a.version],
          ['ID', <Copyable text={a.id} />],
        ]} />
      </div>
    </Card>
  )
}

/** How mail to other people leaves this server. */
function outgoing(relay: string | null): string {
  switch (session.value!.outbound) {
    case 'capture':
      return 'Captured: mail to external recipients is not sent'
    case 'relay':
      return relay ? `Through relay ${relay}` : 'Through a relay'
  }
  return 'Directly to the recipients’ mail servers'
}

function Limits({ usage: u }: { usage: Schemas['Usage'] }) {
  const rows: [string, { used: number; limit: number | null }][] = [['Domains', u.domains], ['Mailboxes', u.email_users], ['Team members', u.team_users], ['Webhooks', u.webhooks], ['API tokens', u.api_tokens]]
  return (
    <Card title="Usage">
      <div class="stack">
        {rows.map(([name, { used, limit }]) => (
          <div key={name} class="stack-tight">
            <div class="row-between"><span>{name}</span><span class="muted">{count(used)}{limit !== null ? ` of ${count(limit)}` : ''}</span></div>
            {limit !== null && <Bar limit value={used} of={limit} label={name} />}
          </div>
        ))}
        <div class="row-between"><span>Storage</span><span class="muted">{bytes(u.storage.used_bytes)}{u.storage.limit_bytes !== null ? ` of ${bytes(u.storage.limit_bytes)}` : ''}</span></div>
      </div>
    </Card>
  )
}

function Universal({ account: a }: { account: AccountOut }) {
  const [wanted, setWanted] = useState<boolean>()
  const [error, setError] = useState<Error>()
  const on = wanted ?? a.universal_inbox_enabled
  const turn = async (enabled: boolean) => {
    setError(undefined)
    setWanted(enabled)
    try {
      told((await call('set_universal_inbox', { enabled })).message)
    } catch (error) {
      setError(error as Error)
      setWanted(undefined)
    }
  }
  useEffect(() => setWanted(undefined), [a.universal_inbox_enabled])
  return (
    <Card title="Universal inbox">
      {can('set_universal_inbox') ? (
        <Check label="Fetch external mailboxes in the background" checked={on} onChange={turn}
          hint="Keeps mailboxes on other servers in sync. Mail that was already fetched stays if you turn this off. Required by webhooks for email.received." />
      ) : <p>{on ? 'On: mailboxes on other servers are kept in sync' : 'Off: mailboxes on other servers are fetched only on request'}. The account’s owner or an admin can change this.</p>}
      {error && <p class="small" role="alert" style={{ color: 'var(--bad)' }}><Wrong of={error} /></p>}
    </Card>
  )
}

interface WarmupForm { phrases: string; headers: string; folder: string; days: string }

function Warmup({ account: a, reload }: { account: AccountOut; reload: () => Promise<void> }) {
  const { values: form, changes, changed, set, reset } = useDraft<WarmupForm>({ phrases: a.warmup_phrases.join('\n'), headers: headerLines(a), folder: a.warmup_folder ?? '', days: String(a.warmup_days) })
  const lines = (text: string) => text.split('\n').map((line) => line.trim()).filter(Boolean)
  const save = async () => {
    await call('update_account', {
      warmup_phrases: lines(form.phrases), warmup_folder: form.folder.trim() || null, warmup_days: Number(form.days),
      warmup_headers: lines(form.headers).map((line) => {
        const [name = '', ...value] = line.split(':')
        return { name: name.trim(), ...(value.length > 0 ? { value: value.join(':').trim() } : {}) }
      }),
    })
    told('Saved. Existing messages are checked again in the background.')
    await reload()
    reset(changes)
  }
  const [open, setOpen] = useState(a.warmup_phrases.length + a.warmup_headers.length > 0)
  if (!can('update_account')) return null
  if (!open) {
    return (
      <Card title="Outreach tools" note="Some tools send mail between your mailboxes that nobody reads. Mailstead can mark it and keep it out of the inbox." actions={<Button small onClick={() => setOpen(true)}>Set up</Button>}>
        <p class="muted">Not set up.</p>
      </Card>
    )
  }
  return (
    <Card title="Warm-up mail">
      <Form submit="Save" onSubmit={save} disabled={!changed}>
        <TextArea label="Phrases, one per line" name="warmup_phrases" value={form.phrases} onInput={(phrases) => set({ phrases })} rows={5}
          hint="A message that contains one of them is marked as warm-up. You can hide it in the inbox, and webhooks skip it." />
        <TextArea label="Header fields, one per line" name="warmup_headers" value={form.headers} onInput={(headers) => set({ headers })} rows={3} placeholder={'X-Warmup-Id\nX-Campaign: warm-up'}
          hint="A message that arrives with one of them is marked too. Without a value, any value counts." />
        <TextField label="Folder" name="warmup_folder" value={form.folder} onInput={(folder) => set({ folder })} hint="Marked messages with a proven author come to this folder instead of the inbox. Empty: they come to the inbox." />
        <TextField label="Days in that folder" name="warmup_days" type="number" value={form.days} onInput={(days) => set({ days })} hint="Older messages are deleted from it." />
      </Form>
    </Card>
  )
}

/** Shows the header fields of warm-up mail, one a line. */
function headerLines(a: AccountOut) {
  return a.warmup_headers.map((h) => (h.value === null ? h.name : `${h.name}: ${h.value}`)).join('\n')
}

// Tokens with which programs use the API.
import { Fragment } from 'preact'
import { useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, Check, Dialog, Done, Empty, Form, IconButton, Notice, Page, PartError, plural, Secret, Select, Show, TableWrap, TextField, theirs, Time, told } from '../../ui'
import { noPolicy, OwnWords, PolicyFields, policyOf, PolicyNote } from '../policies/policy'
import { Readers, TaintNotice } from '../policies/taint'
import { ScopeFields, type Scope as Mailboxes } from './scope'

type Token = Schemas['Token']
type Scope = Token['permissions'][number]

const scopes: [Scope, string, string][] = [
  ['read', 'Read', 'View everything: domains, mailboxes, mail.'],
  ['write', 'Write', 'Create, edit, send and delete.'],
  ['purchase', 'Purchase', 'Buy domains.'],
  ['admin', 'Admin', 'Manage the team and everyone’s tokens.'],
]

const lives = [['30', 'In 30 days'], ['90', 'In 90 days'], ['365', 'In 1 year'], ['', 'Never']] as const

export function Tokens() {
  const tokens = useQuery('list_tokens', {})
  const [making, setMaking] = useState(false)
  return (
    <Page title="API tokens" intro="A token lets an app act as you, within the token’s permissions and limits. Create one for each app."
      actions={can('create_token') && <Button look="primary" icon="plus" onClick={() => setMaking(true)}>Create token</Button>}>
      <Card flush>
        <Show of={tokens}>
          {({ data }) => data.length === 0 ? <Empty icon="key" title="No API tokens yet">Create one for each app, script or assistant. Then you can delete one without affecting the others.</Empty> : <Table tokens={data} reload={tokens.reload} />}
        </Show>
      </Card>
      {making && <Make others={tokens.data?.data ?? []} onClose={() => setMaking(false)} />}
    </Page>
  )
}

function Table({ tokens, reload }: { tokens: Token[]; reload: () => Promise<void> }) {
  const team = useQuery('list_team_users', {})
  const mailboxes = useQuery('list_email_users', { limit: 100 }, { when: tokens.some((t) => t.mailboxes !== null), kinds: [] })
  const emails = mailboxes.loading ? undefined : new Map(mailboxes.data?.data.map((u) => [u.id, u.email]))
  const name = (id: string) => {
    const u = team.data?.users.find((u) => u.id === id)
    return u ? u.display_name || u.email : id
  }
  const clear = async (t: Token) => {
    await call('clear_token_taint', { token_id: t.id })
    await reload()
  }
  return (
    <TableWrap label="API tokens">
      <table class="table folds people-tokens">
        <thead><tr><th>Name</th><th>Permissions and limits</th><th>Created</th><th>Last used</th><th>Expires</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
        <tbody>
          {tokens.map((t) => (
            <Fragment key={t.id}>
              <tr class={t.tainted ? 'people-tainted' : undefined}>
                <td class="breaks"><strong>{theirs(t.name) || 'Unnamed'}</strong> <Kind of={t} /><br /><code class="muted nowrap">{t.token_prefix}…</code></td>
                <td data-label="Permissions and limits">
                  <span class="chips">{t.permissions.map((p) => <Badge plain key={p}>{p}</Badge>)}</span>
                  {t.mailboxes && <Limits ids={t.mailboxes} emails={emails} />}
                  <PolicyNote of={t.policy} own={t.own_words} />
                </td>
                <td data-label="Created"><Time of={t.created_at} form="date" /><br /><span class="muted small">by {name(t.created_by)}</span></td>
                <td data-label="Last used"><Time of={t.last_used_at} />{t.last_used_ip && <><br /><span class="muted small">from {t.last_used_ip}</span></>}</td>
                <td data-label="Expires"><Time of={t.expires_at} form="date" /></td>
                <td>{can('delete_token') && <IconButton look="ghost" small icon="trash" label={`Delete ${t.name || t.token_prefix}`} onClick={() => end(t)} />}</td>
              </tr>
              {t.tainted && <tr class="people-taint"><td colSpan={6}><TaintNotice of={t.tainted} name={t.name || t.token_prefix} clear={can('clear_token_taint') ? () => clear(t) : undefined} /></td></tr>}
            </Fragment>
          ))}
        </tbody>
      </table>
    </TableWrap>
  )
}

/** What kind of program has it. */
function Kind({ of: t }: { of: Token }) {
  if (t.kind === 'mcp') return <Badge plain tone="info">assistant</Badge>
  if (t.kind !== 'oauth') return null
  return <><Badge plain tone="info">signed-in app</Badge>{t.client_name && t.client_name !== t.name && <span class="muted small"> {theirs(t.client_name)}</span>}</>
}

const mostNamed = 2

/** The mailboxes that a token is limited to. emails are those of the list, once it was read. */
function Limits({ ids, emails }: { ids: string[]; emails: Map<string, string> | undefined }) {
  return (
    <div class="small people-limits">
      Only {ids.slice(0, mostNamed).map((id, n) => <Fragment key={id}>{n > 0 && ', '}<Named id={id} email={emails?.get(id)} known={emails !== undefined} /></Fragment>)}
      {ids.length > mostNamed && ` and ${plural(ids.length - mostNamed, 'more mailbox', 'more mailboxes')}`}
    </div>
  )
}

function Named({ id, email, known }: { id: string; email?: string; known: boolean }) {
  const mailbox = useQuery('get_email_user', { user_id: id }, { when: known && email === undefined, kinds: [] })
  return <a href={'/mailboxes/' + id}>{email ?? mailbox.data?.email ?? id}</a>
}

function end(t: Token) {
  ask({
    title: `Delete ${t.name || t.token_prefix + '…'}?`, action: 'Delete', text: t.client_name ? `${t.client_name} is signed out at once.` : 'Apps using it stop working at once.',
    run: async () => {
      await call('delete_token', { token_id: t.id })
      told('Token deleted.')
    },
  })
}

function Make({ others, onClose }: { others: Token[]; onClose: () => void }) {
  const [name, setName] = useState('')
  const [days, setDays] = useState<string>('90')
  const [chosen, setChosen] = useState<Scope[]>(['read', 'write'])
  const [mailboxes, setMailboxes] = useState<Mailboxes>('all'), [policy, setPolicy] = useState(noPolicy), [own, setOwn] = useState(false)
  const [made, setMade] = useState<string>()
  if (made) return <Dialog title={name || 'New token'} onClose={onClose}><div class="stack"><Secret name="token" text={made} /><Done /></div></Dialog>
  const some = Array.isArray(mailboxes) ? mailboxes : undefined
  const allowed = some || session.value!.user.role === 'member' ? scopes.slice(0, 2) : scopes // the others are of no use to one that is limited
  const permissions = chosen.filter((scope) => allowed.some(([id]) => id === scope))
  const submit = async () => {
    const t = await call('create_token', { name: name || undefined, permissions, expires_in_days: days ? Number(days) : undefined, mailboxes: some, policy: policyOf(policy), own_words: own || undefined })
    setMade(t.token)
  }
  return (
    <Dialog title="Create token" onClose={onClose}>
      <Form submit="Create" onSubmit={submit} of={[name, days, permissions, mailboxes, policy, own]} disabled={some?.length === 0}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="Backup script" hint="A name to recognize it by." autoFocus />
        <fieldset class="stack-tight people-fieldset">
          <legend class="label">Permissions</legend>
          <PartError name="permissions" />
          {allowed.map(([scope, title, hint]) => (
            <Check key={scope} label={title} hint={hint} checked={chosen.includes(scope)} onChange={(on) => setChosen(on ? [...chosen, scope] : chosen.filter((s) => s !== scope))} />
          ))}
        </fieldset>
        <Select label="Expires" name="expires_in_days" value={days} onChange={setDays} options={lives} />
        <ScopeFields value={mailboxes} onChange={setMailboxes} hint={scopeHint(mailboxes)} />
        <PolicyFields of={policy} set={setPolicy} />
        {policy.taint && <Readers of={others.filter((t) => !some || !t.mailboxes || t.mailboxes.some((id) => some.includes(id))).map((t) => ({ name: t.name || t.token_prefix, tainted: t.tainted }))} />}
        <OwnWords checked={own} onChange={setOwn} />
        {(some || policyOf(policy)) && <Notice>A token with limits can’t change who has access or what mail does automatically: no tokens, passwords, team members, forwarding, aliases, rules, webhooks, imports or exports.</Notice>}
      </Form>
    </Dialog>
  )
}

const scopeHint = (of: Mailboxes) => of === 'all' ? 'It can use every mailbox that you can use.' : 'It can use the mail of these, and nothing else in the account.'

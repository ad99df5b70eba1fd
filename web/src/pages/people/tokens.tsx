// Tokens with which programs use the API.
import { useState } from 'preact/hooks'
import { call, can, session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { ask, Badge, Button, Card, Check, Dialog, Empty, Form, IconButton, Page, Secret, Select, Show, TextField, Time, told } from '../../ui'

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
    <Page title="API tokens" intro="A token lets an app act as you, within the token’s permissions. Create one for each app."
      actions={can('create_token') && <Button look="primary" icon="plus" onClick={() => setMaking(true)}>Create token</Button>}>
      <Card flush>
        <Show of={tokens}>
          {({ data }) => data.length === 0 ? <Empty icon="key" title="No API tokens yet">Create one for each app, script or assistant. Then you can delete one without affecting the others.</Empty> : <Table tokens={data} />}
        </Show>
      </Card>
      {making && <Make onClose={() => setMaking(false)} />}
    </Page>
  )
}

function Table({ tokens }: { tokens: Token[] }) {
  const team = useQuery('list_team_users', {})
  const name = (id: string) => {
    const u = team.data?.users.find((u) => u.id === id)
    return u ? u.display_name || u.email : id
  }
  return (
    <div class="table-wrap">
      <table class="table folds people-tokens">
        <thead><tr><th>Name</th><th>Permissions</th><th>Created</th><th>Last used</th><th>Expires</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
        <tbody>
          {tokens.map((t) => (
            <tr key={t.id}>
              <td><strong>{t.name || 'Unnamed'}</strong> {t.kind === 'mcp' && <Badge plain tone="info">assistant</Badge>}{t.kind === 'oauth' && <Badge plain tone="info">signed-in app</Badge>}<br /><code class="muted">{t.token_prefix}…</code></td>
              <td data-label="Permissions"><span class="people-scopes">{t.permissions.map((p) => <Badge plain key={p}>{p}</Badge>)}</span></td>
              <td data-label="Created"><Time of={t.created_at} form="date" /><br /><span class="muted small">by {name(t.created_by)}</span></td>
              <td data-label="Last used"><Time of={t.last_used_at} />{t.last_used_ip && <><br /><span class="muted small">from {t.last_used_ip}</span></>}</td>
              <td data-label="Expires"><Time of={t.expires_at} form="date" /></td>
              <td>{can('delete_token') && <IconButton look="ghost" small icon="trash" label={`Delete ${t.name || t.token_prefix}`} onClick={() => end(t)} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function end(t: Token) {
  ask({
    title: `Delete ${t.name || t.token_prefix + '…'}?`, action: 'Delete', text: t.client_name === null ? 'Apps using it stop working at once.' : `${t.client_name} is signed out at once.`,
    run: async () => {
      await call('delete_token', { token_id: t.id })
      told('Token deleted.')
    },
  })
}

function Make({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  const [days, setDays] = useState<string>('90')
  const [chosen, setChosen] = useState<Scope[]>(['read', 'write'])
  const [made, setMade] = useState<string>()
  if (made) return <Dialog title={name || 'New token'} onClose={onClose}><Secret name="token" text={made} /></Dialog>
  const allowed = session.value!.user.role === 'member' ? scopes.slice(0, 2) : scopes
  const submit = async () => {
    const t = await call('create_token', { name: name || undefined, permissions: chosen, expires_in_days: days ? Number(days) : undefined })
    setMade(t.token)
  }
  return (
    <Dialog title="Create token" onClose={onClose}>
      <Form submit="Create" onSubmit={submit}>
        <TextField label="Name" name="name" value={name} onInput={setName} placeholder="Backup script" hint="A name to recognize it by." autoFocus />
        <fieldset class="stack-tight people-fieldset">
          <legend class="label">Permissions</legend>
          {allowed.map(([scope, title, hint]) => (
            <Check key={scope} label={title} hint={hint} checked={chosen.includes(scope)} onChange={(on) => setChosen(on ? [...chosen, scope] : chosen.filter((s) => s !== scope))} />
          ))}
        </fieldset>
        <Select label="Expires" value={days} onChange={setDays} options={lives} />
      </Form>
    </Dialog>
  )
}

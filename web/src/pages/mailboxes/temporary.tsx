// A mailbox for a program, which is deleted at a time, with a password and a token that are good
// for it alone.
import { useState } from 'preact/hooks'
import { call, type Schemas } from '../../api/client'
import { Button, Check, Copyable, Dialog, Facts, Form, LinkButton, Secret, Select, TextField, Time } from '../../ui'
import { noPolicy, PolicyFields, policyOf } from '../policies/policy'
import { security } from './connection'
import { DomainChoice } from './domains'

const lives = [['3600', 'In 1 hour'], ['86400', 'In 1 day'], ['604800', 'In 7 days'], ['2592000', 'In 30 days']] as const

export function TemporaryInbox({ domain: first, onClose }: { domain: string; onClose: () => void }) {
  const [domain, setDomain] = useState(first), [username, setUsername] = useState(''), [ttl, setTTL] = useState<string>('3600')
  const [limited, setLimited] = useState(false), [policy, setPolicy] = useState(noPolicy)
  const [made, setMade] = useState<Schemas['InboxCreated']>()
  if (made) return <Made of={made} onClose={onClose} />
  const submit = async () => {
    setMade(await call('create_inbox', { domain: domain || undefined, username: username || undefined, ttl_seconds: Number(ttl), policy: limited ? policyOf(policy) : undefined }))
  }
  return (
    <Dialog title="Temporary inbox" onClose={onClose}>
      <Form submit="Create" onSubmit={submit} of={[username, limited && policy]} optional disabled={!domain}>
        <p class="muted">An address for a program or a test. You get a password and an API token that work for this mailbox alone.</p>
        <DomainChoice value={domain} onChange={setDomain} ready />
        <TextField label="Username" name="username" value={username} onInput={setUsername} after={'@' + (domain || '…')} hint="Leave empty to generate one." autoFocus />
        <Select label="Expires" name="ttl_seconds" value={ttl} onChange={setTTL} options={lives} hint="Then the mailbox is deleted with all of its mail. You can change the time later, or keep it." />
        <Check label="Limit what can be sent from it" hint="Applies to its password and its token. Use it if a program acts on the mail that it reads." checked={limited} onChange={setLimited} />
        {limited && <PolicyFields of={policy} set={setPolicy} />}
      </Form>
    </Dialog>
  )
}

function Made({ of: m, onClose }: { of: Schemas['InboxCreated']; onClose: () => void }) {
  const server = (s: Schemas['ClientServer']) => <><Copyable text={s.host} /><div class="muted small">port {s.port}, {security[s.security]}</div></>
  return (
    <Dialog title={m.inbox.email} onClose={onClose}>
      <div class="stack">
        <Secret name="password" text={m.password} />
        <Secret name="token" text={m.token} />
        <Facts of={[
          ['Address and username', <Copyable text={m.inbox.email} label="Copy address" />],
          ['Incoming (IMAP)', server(m.imap)], ['Outgoing (SMTP)', server(m.smtp)],
          ['Assistants (MCP)', <Copyable text={m.mcp_url} label="Copy MCP address" />],
          ['Expires', <Time of={m.expires_at} form="at" />],
        ]} />
        <div class="form-actions">
          <LinkButton href={'/mailboxes/' + m.inbox.id}>Open mailbox</LinkButton>
          <Button look="primary" onClick={onClose}>Done</Button>
        </div>
      </div>
    </Dialog>
  )
}

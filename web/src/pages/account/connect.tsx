// How programs and assistants connect.
import { useState } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { Card, Check, Code, Copyable, Facts, Form, LinkButton, Notice, Page, Secret, Show } from '../../ui'

export function Connect() {
  const base = session.value!.api_base
  return (
    <Page title="Connect" intro="Apps connect with the REST API, AI assistants with the Model Context Protocol (MCP), mail clients with SMTP and IMAP.">
      <div class="grid-2">
        <Api base={base} />
        <Mail />
      </div>
      <Assistants base={base} />
    </Page>
  )
}

function Api({ base }: { base: string }) {
  return (
    <Card title="REST API" actions={<LinkButton small href="/docs/api" target="_blank" rel="noopener" icon="book">Reference</LinkButton>}>
      <div class="stack">
        <Facts of={[['Base URL', <Copyable text={base + '/v1'} />], ['OpenAPI', <a href="/v1/openapi.json">openapi.json</a>]]} />
        <Code label="Example request" text={`curl -H "Authorization: Bearer $TOKEN" \\\n  ${base}/v1/account`} />
        <p class="muted">The API can do everything that the dashboard can. <a href="/tokens">Create a token</a> for each app.</p>
      </div>
    </Card>
  )
}

function Mail() {
  const account = useQuery('get_account', {})
  return (
    <Card title="Mail clients">
      <Show of={account}>
        {({ mail: m }) => (
          <div class="stack">
            <Facts of={[
              ['Outgoing (SMTP)', <Copyable text={`${m.smtp_host}:${m.smtp_port}`} />],
              ['Incoming (IMAP)', <Copyable text={`${m.imap_host}:${m.imap_port}`} />],
              ['Username', 'The mailbox’s full address'],
            ]} />
            <p class="muted">{session.value!.sandbox ? 'In the sandbox, only apps on this machine can connect.' : 'Most clients find these settings automatically. Each mailbox’s page has a QR code for phones.'}</p>
          </div>
        )}
      </Show>
    </Card>
  )
}

function Assistants({ base }: { base: string }) {
  const [token, setToken] = useState<string>()
  const [writes, setWrites] = useState(false)
  const make = async () => {
    const made = await call('create_token', { name: 'Assistant', kind: 'mcp', permissions: writes ? ['read', 'write'] : ['read'], expires_in_days: 90 })
    setToken(made.token)
  }
  return (
    <Card title="AI assistants" note="MCP lets an assistant work with your mail and domains, within the permissions that you give it.">
      <div class="stack">
        <p class="muted">Most assistants need only the server’s URL: they open a page here that asks for your permission. For others, create a token.</p>
        <div class="grid-2">
          <ol class="steps">
            <Step n={1} title="Create a token for the assistant">
              {token ? <Secret name="token" text={token} /> : can('create_token') && (
                <Form submit="Create token" onSubmit={make}>
                  <Check label="Allow changes and sending mail" checked={writes} onChange={setWrites} hint="Without this the assistant is read-only: a message it reads can’t trick it into sending or changing anything." />
                </Form>
              )}
            </Step>
            <Step n={2} title="Add the server’s URL">
              <p>Add a remote server (streamable HTTP): <Copyable text={base + '/mcp'} /></p>
            </Step>
            <Step n={3} title="Add the header"><Code label="Header" text={`Authorization: Bearer ${token ?? 'mst_…'}`} /></Step>
          </ol>
          <div class="stack">
            <Code label="Configuration" text={JSON.stringify({ mcpServers: { mailstead: { type: 'http', url: base + '/mcp', headers: { Authorization: `Bearer ${token ?? 'mst_…'}` } } } }, null, 2)} />
            <Notice>Prompt injection: anyone can send mail to a mailbox, and so instruct an assistant that reads it. Grant only the permissions it needs, and <a href="/tokens">limit its token</a> to a mailbox or to answers if you can. It never sees passwords or signing secrets, and a purchase takes two calls.</Notice>
            <p class="small"><a href="/tokens">All tokens</a>: delete one to revoke it.</p>
          </div>
        </div>
      </div>
    </Card>
  )
}

function Step({ n, title, children }: { n: number; title: string; children: preact.ComponentChildren }) {
  return (
    <li>
      <span class="mark" aria-hidden="true">{n}</span>
      <div class="stack-tight grow"><h3>{title}</h3>{children}</div>
    </li>
  )
}

// How programs and assistants connect.
import { useState } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { Card, Check, Code, Copyable, Facts, Form, LinkButton, Notice, Page, Secret, Show } from '../../ui'

export function Connect() {
  const base = session.value!.api_base
  return (
    <Page title="Connect" intro="Programs use the REST API, AI assistants the Model Context Protocol, mail clients SMTP and IMAP.">
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
    <Card title="REST API" actions={<LinkButton small href="/docs" target="_blank" rel="noopener" icon="book">Reference</LinkButton>}>
      <div class="stack">
        <Facts of={[['Address', <Copyable text={base + '/v1'} />], ['OpenAPI', <a href="/v1/openapi.json">openapi.json</a>]]} />
        <Code label="A first call" text={`curl -H "Authorization: Bearer $TOKEN" \\\n  ${base}/v1/account`} />
        <p class="muted">Everything on these pages can be done through it. <a href="/tokens">Make a token</a> for each program.</p>
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
              ['Outgoing', <Copyable text={`${m.smtp_host}:${m.smtp_port}`} />],
              ['Incoming', <Copyable text={`${m.imap_host}:${m.imap_port}`} />],
              ['User name', 'the whole address of the mailbox'],
            ]} />
            <p class="muted">{session.value!.sandbox ? 'In the sandbox these work for programs on this machine.' : 'Most clients find these settings automatically. A mailbox’s page has a QR code for phones.'}</p>
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
    <Card title="AI assistants" note="The Model Context Protocol lets an assistant work with your mail and domains, as far as its token allows.">
      <div class="grid-2">
        <ol class="steps">
          <Step n={1} title="Make a token for it alone">
            {token ? <Secret name="token" text={token} /> : can('create_token') && (
              <Form submit="Make the token" onSubmit={make}>
                <Check label="It may also change things and send mail" checked={writes} onChange={setWrites} hint="Without this it only reads, and cannot be talked into sending anything by what it reads." />
              </Form>
            )}
          </Step>
          <Step n={2} title="Give it the address">
            <p>As a remote server with streamable HTTP: <Copyable text={base + '/mcp'} /></p>
          </Step>
          <Step n={3} title="And the header"><Code label="Header" text={`Authorization: Bearer ${token ?? 'mst_…'}`} /></Step>
        </ol>
        <div class="stack">
          <Code label="Configuration" text={JSON.stringify({ mcpServers: { mailstead: { type: 'http', url: base + '/mcp', headers: { Authorization: `Bearer ${token ?? 'mst_…'}` } } } }, null, 2)} />
          <Notice>Anybody can write to a mailbox, and so to an assistant that reads it. Give it no more than it needs. It never sees passwords or signing secrets, and a purchase takes two calls.</Notice>
          <p class="small"><a href="/tokens">All tokens</a>: delete one to end it.</p>
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

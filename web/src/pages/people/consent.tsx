// The page that asks whether a program may act for whoever is signed in (OAuth 2.1). The server shows it at
// /oauth/authorize, once the program's request is right.
import { useState } from 'preact/hooks'
import { request, session, type Schemas } from '../../api/client'
import { useRead } from '../../api/query'
import { params } from '../../router'
import { Button, Card, Check, Facts, Form, Notice, Page, Show, theirs } from '../../ui'
import { formOf, PolicyFields, policyOf } from '../policies/policy'
import { ScopeFields, type Scope } from './scope'

interface Question {
  request: string
  client: { client_id: string; name: string; host: string }
  redirect_uri: string
  permissions: string[]
  policy: Schemas['Policy']
}

export function Consent() {
  const [turn] = useState(() => String(Math.random())) // each question has one answer, so none is shown again
  const question = useRead('consent' + turn, () => request('GET', '/oauth/consent?' + params.value) as Promise<Question>)
  return (
    <Page title="Connect an app" intro={`It will act for you, ${session.value!.user.email}.`}>
      <Show of={question}>{(q) => <Ask question={q} />}</Show>
    </Page>
  )
}

function Ask({ question: q }: { question: Question }) {
  const [write, setWrite] = useState(q.permissions.includes('write'))
  const [mailboxes, setMailboxes] = useState<Scope>('all')
  const [policy, setPolicy] = useState(formOf(q.policy))
  const [answered, setAnswered] = useState(false)
  const decide = async (decision: 'allow' | 'deny') => {
    const more = decision === 'deny' ? {} : { permissions: write ? ['read', 'write'] : ['read'], mailboxes: Array.isArray(mailboxes) ? mailboxes : null, policy: policyOf(policy) ?? { send: 'allow' } }
    const { redirect_to } = (await request('POST', '/oauth/consent', { request: q.request, decision, ...more })) as { redirect_to: string }
    setAnswered(true)
    location.assign(redirect_to)
  }
  if (answered) return <Notice tone="ok">You can close this page if the app does not open by itself.</Notice>
  const known = q.client.client_id.startsWith('https://'), back = new URL(q.redirect_uri)
  return (
    <div class="grid-2">
      <Card title={theirs(q.client.name)}>
        <div class="stack">
          <Facts of={[
            ['Website', known ? q.client.host : 'Unverified'],
            ['Returns to', back.protocol === 'https:' ? back.host : `An app on this computer (${back.host})`],
            ['Access', 'Mailstead through MCP, until you delete it under API tokens'],
          ]} />
          <Notice tone="warn">
            {!known && 'Any app can use this name. '}Allow it only if you started this in the app yourself.
          </Notice>
        </div>
      </Card>
      <Card title="What it may do">
        <Form submit="Allow" disabled={mailboxes !== 'all' && mailboxes.length === 0} onSubmit={() => decide('allow')} actions={<Button onClick={() => decide('deny')}>Deny</Button>}>
          <Check label="Read" hint="View domains, mailboxes and mail." checked disabled onChange={() => { /* without it there is nothing to allow */ }} />
          <Check label="Write" hint="Send and delete mail, and change what you can change. It can’t give anyone access." checked={write} onChange={setWrite} />
          <ScopeFields value={mailboxes} onChange={setMailboxes} hint={mailboxes === 'all' ? 'It can use every mailbox that you can use.' : 'It can use these, and see no other mail.'} />
          <PolicyFields of={policy} set={setPolicy} only={write ? undefined : 'read'} />
        </Form>
      </Card>
    </div>
  )
}

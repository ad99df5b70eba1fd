// One request to the API: who made it, what was asked, and what was answered.
import { session, type Schemas } from '../../api/client'
import { useQuery } from '../../api/query'
import { Button, Card, Code, copy, Copyable, count, Empty, Facts, LinkButton, Page, Show, theirs, Time } from '../../ui'
import { curlOf, readable, type Missing } from './curl'
import { StatusCode } from './requests'

type Detail = Schemas['RequestDetail']

export function RequestPage({ id }: { id: string }) {
  const request = useQuery('get_request', { request_id: id })
  const r = request.data
  const curl = r && curlOf(r, session.value!.api_base)
  return (
    <Page title={r ? `${r.method} ${r.path}` : 'Request'} heading={r && <span class="row requests-head"><code>{r.method} {r.path}</code> <StatusCode of={r} /></span>} back={{ href: '/requests', label: 'Requests' }}
      actions={curl && <Button icon="copy" onClick={() => copy(curl.text)}>Copy as curl</Button>}>
      {request.error?.status === 404 ? (
        <Card>
          <Empty icon="search" title="Not in the log" action={<LinkButton href="/requests">Back to requests</LinkButton>}>
            Requests are kept for 7 days, unless the server’s settings say otherwise. Only the owner sees requests of the owner.
          </Empty>
        </Card>
      ) : (
        <Show of={request} lines={8}>
          {(r) => (
            <>
              <div class="grid-2">
                <About of={r} />
                <Card title="As curl" note={hintOf(curl!.missing)}><Code label="Command" text={curl!.text} /></Card>
              </div>
              <div class="grid-2">
                <Said title="Body" none="No body, or none of it is kept." of={r.body} />
                <Said title="Answer" none={r.status >= 400 && r.status < 500 ? 'None of it is kept.' : 'Only refusals (4xx) are kept.'} of={r.answer} />
              </div>
            </>
          )}
        </Show>
      )}
    </Page>
  )
}

function About({ of: r }: { of: Detail }) {
  return (
    <Card title="Details">
      <Facts of={[
        ['Time', <Time of={r.at} form="at" />],
        ['Duration', `${count(r.duration_ms)} ms`],
        ['Operation', <a href={`/requests?by=all&operation=${r.operation}`}><code>{r.operation}</code></a>],
        ['Status', r.error_code ? <>{r.status} <code>{r.error_code}</code></> : r.status],
        ['Made by', r.token ? <a href={`/requests?by=${r.token.id}`}>{theirs(r.token.name) || 'Unnamed token'}</a> : 'Dashboard'],
        ['IP address', r.ip],
        ['Request ID', <Copyable text={r.request_id} />],
        ['Client’s request ID', r.client_request_id && <Copyable text={r.client_request_id} />],
      ]} />
    </Card>
  )
}

/** What is to be done before the command can be run. */
function hintOf({ fields, body }: Missing): string {
  const set = 'Set MAILSTEAD_TOKEN to an API token first. Query parameters are not kept.'
  if (body) return `${set} The body is not kept either: replace FILE.`
  return fields.length > 0 ? `${set} Replace the values in angle brackets, which are not kept either.` : set
}

function Said({ title, none, of }: { title: string; none: string; of: unknown }) {
  return (
    <Card title={title} note={of === null ? undefined : 'Values that may be private are not kept, only their length.'}>
      {of === null ? <p class="muted">{none}</p> : <Code label={title} text={readable(of)} />}
    </Card>
  )
}

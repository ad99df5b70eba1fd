// Where a domain's mail and visitors go, and how its mail leaves.
import { useState } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { Button, Card, Check, Facts, Form, Notice, Select, TextField, told } from '../../ui'
import { SMTPCredentials } from '../mailboxes/credentials'
import { Elsewhere, said } from './elsewhere'
import type { TabProps } from './types'
import { Website } from './website'
import { redirectWords, type Domain } from './words'

export function MailSettings(props: TabProps) {
  const { domain: d } = props
  if (d.status === 'deleting') return <Notice>This domain is being deleted.</Notice>
  if (!can('update_domain')) return <Read domain={d} />
  return (
    <>
      {/* Each form begins anew when what it shows was changed elsewhere. */}
      <div class="grid-2">
        <CatchAll key={'c' + d.catch_all} {...props} />
        <Forward key={'f' + d.forward_address} {...props} />
      </div>
      <div class="grid-2">
        <Sending key={'s' + [d.sending_mode, d.relay, d.list_unsubscribe, d.tls_policy].join()} {...props} />
        <Redirect key={'r' + JSON.stringify(d.redirect)} {...props} />
      </div>
      {d.apex && <Website key={'w' + JSON.stringify(d.apex)} {...props} />}
      <Elsewhere {...props} />
      {can('list_smtp_credentials') && <SMTPCredentials domainID={d.id} domain={d.domain_unicode} />}
    </>
  )
}

function Read({ domain: d }: { domain: Domain }) {
  return (
    <Card title="Mail and web" note="The account’s owner or an admin can edit these.">
      <Facts of={[
        ['Website', d.apex && (d.apex.mode === 'here' ? 'Visitors come to this server' : 'At its own server')], ['Catch-all', d.catch_all ?? 'None'], ['Forwarding', d.forward_address ?? 'None'], ['Web redirect', d.redirect ? `${d.redirect.url} (${redirectWords(d.redirect)})` : 'None'],
        ['Outgoing mail', d.sending_mode === 'relay' ? `Through relay ${d.relay ?? '(default)'}` : 'Direct'], ['One-click unsubscribe', d.list_unsubscribe ? 'On' : 'Off'], ['Encryption', d.tls_policy === 'required' ? 'Required' : 'Where the receiver offers it'],
        ['Other senders', d.sends_elsewhere.length > 0 && d.sends_elsewhere.map(said).join('; ')],
      ]} />
    </Card>
  )
}

function CatchAll({ domain: d, reload }: TabProps) {
  const [address, setAddress] = useState(d.catch_all ?? '')
  const boxes = useQuery('list_domain_email_users', { domain_id: d.id, limit: 100 })
  const save = async (catch_all: string | null) => {
    await call('update_domain', { domain_id: d.id, catch_all })
    told(catch_all ? 'Catch-all saved.' : 'Catch-all removed.')
    await reload()
  }
  return (
    <Card title="Catch-all" note={`Receives mail for every address at ${d.domain_unicode} that has no mailbox.`}>
      <Form onSubmit={() => save(address.trim())} submit="Save" disabled={address.trim() === '' || address.trim() === d.catch_all} actions={d.catch_all && <Button onClick={() => save(null)}>Remove</Button>}>
        <TextField label="Deliver to" name="catch_all" type="email" value={address} onInput={setAddress} placeholder={`hello@${d.domain}`} list={boxes.data?.data.map((b) => b.email)} hint="Useful for a new domain, but it also receives spam sent to random addresses." />
      </Form>
    </Card>
  )
}

function Forward({ domain: d, reload }: TabProps) {
  const [address, setAddress] = useState(d.forward_address ?? '')
  const save = async () => {
    await call('set_forward', { domain_id: d.id, forward_address: address.trim() })
    told('Forwarding saved.')
    await reload()
  }
  const remove = async () => {
    await call('delete_forward', { domain_id: d.id })
    told('Forwarding removed.')
    await reload()
  }
  return (
    <Card title="Forwarding" note="Forwards mail that neither a mailbox nor the catch-all receives.">
      <Form onSubmit={save} submit="Save" disabled={address.trim() === '' || address.trim() === d.forward_address} actions={d.forward_address && <Button onClick={remove}>Remove</Button>}>
        <TextField label="Forward to" name="forward_address" type="email" value={address} onInput={setAddress} placeholder="me@example.com" hint="An address at another domain. No copy is kept here." />
      </Form>
    </Card>
  )
}

function Sending({ domain: d, reload }: TabProps) {
  const account = useQuery('get_account', {})
  const [mode, setMode] = useState(d.sending_mode)
  const [relay, setRelay] = useState(d.relay ?? '')
  const [unsubscribe, setUnsubscribe] = useState(d.list_unsubscribe), [strict, setStrict] = useState(d.tls_policy === 'required')
  const named = account.data?.mail.relay
  const changed = mode !== d.sending_mode || relay.trim() !== (d.relay ?? '') || unsubscribe !== d.list_unsubscribe || strict !== (d.tls_policy === 'required')
  const save = async () => {
    await call('update_domain', {
      domain_id: d.id,
      sending_mode: mode === d.sending_mode ? undefined : mode,
      relay: relay.trim() === (d.relay ?? '') ? undefined : relay.trim() || null,
      list_unsubscribe: unsubscribe === d.list_unsubscribe ? undefined : unsubscribe,
      tls_policy: strict === (d.tls_policy === 'required') ? undefined : strict ? 'required' : 'opportunistic',
    })
    told('Saved.')
    await reload()
  }
  return (
    <Card title="Outgoing mail" note="Send directly, or through a relay: a service that delivers mail for you.">
      <Form onSubmit={save} submit="Save" disabled={!changed}>
        <Select label="Route" name="sending_mode" value={mode} onChange={setMode} options={[['direct', 'Direct to the recipients’ mail servers'], ['relay', 'Through a relay']]} hint={session.value!.outbound === 'capture' ? 'Not in use now: this server captures all mail to external recipients.' : named === null ? 'This server has no relay. Its operator can add one.' : undefined} />
        {mode === 'relay' && <TextField label="Relay" name="relay" value={relay} onInput={setRelay} placeholder={named ?? 'default'} list={named ? [named] : undefined} hint="The relay’s name in the server’s configuration. Leave empty for the default." mono />}
        <Check checked={unsubscribe} onChange={setUnsubscribe} label="Offer one-click unsubscribe" hint="Adds the List-Unsubscribe header that large providers require from bulk senders." />
        <Check checked={strict} onChange={setStrict} label="Require encryption" hint="Sends only to mail servers with a valid certificate. Mail to others waits and then comes back." />
      </Form>
    </Card>
  )
}

function Redirect({ domain: d, reload }: TabProps) {
  const r = d.redirect
  const [url, setUrl] = useState(r?.url ?? '')
  const [permanent, setPermanent] = useState(r?.permanent ?? true)
  const [path, setPath] = useState(r?.preserve_path ?? false)
  const same = url.trim() === r?.url && permanent === r.permanent && path === r.preserve_path
  const save = async () => {
    await call('set_redirect', { domain_id: d.id, redirect_url: url.trim(), permanent, preserve_path: path })
    told('Redirect saved.')
    await reload()
  }
  const remove = async () => {
    await call('delete_redirect', { domain_id: d.id })
    told('Redirect removed.')
    await reload()
  }
  const note = `Redirects visitors of ${d.domain_unicode} and www.${d.domain_unicode}.`
  if (d.apex && d.apex.mode !== 'here' && !r) return <Card title="Web redirect" note={note}><p>The website of {d.domain_unicode} is at its own server. To redirect its visitors, have them come to this server first, under Website.</p></Card>
  return (
    <Card title="Web redirect" note={note}>
      <Form onSubmit={save} submit="Save" disabled={url.trim() === '' || same} actions={r && <Button onClick={remove}>Remove</Button>}>
        <TextField label="Redirect to" name="redirect_url" type="url" value={url} onInput={setUrl} placeholder="https://www.example.com/" />
        <Check checked={permanent} onChange={setPermanent} label="Permanent" hint="301: browsers and search engines cache it. Otherwise 302: they check each time." />
        <Check checked={path} onChange={setPath} label="Keep the path" hint={`${d.domain_unicode}/page redirects to …/page.`} />
      </Form>
    </Card>
  )
}

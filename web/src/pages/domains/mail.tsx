// Where a domain's mail and visitors go, and how its mail leaves.
import { useState } from 'preact/hooks'
import { call, can, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { Button, Card, Check, Facts, Form, Notice, Select, TextField, told } from '../../ui'
import type { TabProps } from './types'
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
        <Sending key={'s' + [d.sending_mode, d.relay, d.list_unsubscribe].join()} {...props} />
        <Redirect key={'r' + JSON.stringify(d.redirect)} {...props} />
      </div>
    </>
  )
}

function Read({ domain: d }: { domain: Domain }) {
  return (
    <Card title="Mail and web" note="The account’s owner or an admin changes these.">
      <Facts of={[
        ['Catch-all', d.catch_all ?? 'none'], ['Forwards to', d.forward_address ?? 'nobody'], ['Redirects to', d.redirect ? `${d.redirect.url} (${redirectWords(d.redirect)})` : 'nowhere'],
        ['Sends', d.sending_mode === 'relay' ? `through ${d.relay ?? 'the relay'}` : 'directly'], ['One-click unsubscribe', d.list_unsubscribe ? 'offered' : 'not offered'],
      ]} />
    </Card>
  )
}

function CatchAll({ domain: d, reload }: TabProps) {
  const [address, setAddress] = useState(d.catch_all ?? '')
  const boxes = useQuery('list_domain_email_users', { domain_id: d.id, limit: 100 })
  const save = async (catch_all: string | null) => {
    await call('update_domain', { domain_id: d.id, catch_all })
    told(catch_all ? 'Mail to unknown addresses goes there now.' : 'Mail to unknown addresses is no longer caught.')
    await reload()
  }
  return (
    <Card title="Catch-all" note={`Takes mail to every address of ${d.domain_unicode} that has no mailbox.`}>
      <Form onSubmit={() => save(address.trim())} submit="Save" disabled={address.trim() === '' || address.trim() === d.catch_all} actions={d.catch_all && <Button onClick={() => save(null)}>Remove</Button>}>
        <TextField label="Deliver to" name="catch_all" type="email" value={address} onInput={setAddress} placeholder={`hello@${d.domain}`} list={boxes.data?.data.map((b) => b.email)} hint="Handy for a new domain; it also catches spam to made-up addresses." />
      </Form>
    </Card>
  )
}

function Forward({ domain: d, reload }: TabProps) {
  const [address, setAddress] = useState(d.forward_address ?? '')
  const save = async () => {
    await call('set_forward', { domain_id: d.id, forward_address: address.trim() })
    told('Mail is forwarded from now on.')
    await reload()
  }
  const remove = async () => {
    await call('delete_forward', { domain_id: d.id })
    told('Mail is no longer forwarded.')
    await reload()
  }
  return (
    <Card title="Forward" note="Sends on what neither a mailbox nor the catch-all takes.">
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
  const [unsubscribe, setUnsubscribe] = useState(d.list_unsubscribe)
  const named = account.data?.mail.relay
  const changed = mode !== d.sending_mode || relay.trim() !== (d.relay ?? '') || unsubscribe !== d.list_unsubscribe
  const save = async () => {
    await call('update_domain', {
      domain_id: d.id,
      sending_mode: mode === d.sending_mode ? undefined : mode,
      relay: relay.trim() === (d.relay ?? '') ? undefined : relay.trim() || null,
      list_unsubscribe: unsubscribe === d.list_unsubscribe ? undefined : unsubscribe,
    })
    told('Saved')
    await reload()
  }
  return (
    <Card title="How its mail leaves" note="Directly, or through a relay: a service that delivers for you.">
      <Form onSubmit={save} submit="Save" disabled={!changed}>
        <Select label="Way" name="sending_mode" value={mode} onChange={setMode} options={[['direct', 'Directly to the recipients’ servers'], ['relay', 'Through a relay']]} hint={session.value!.outbound === 'capture' ? 'For now this server captures mail to others, whatever stands here.' : named === null ? 'This installation has no relay; its operator can add one.' : undefined} />
        {mode === 'relay' && <TextField label="Relay" name="relay" value={relay} onInput={setRelay} placeholder={named ?? 'the usual one'} list={named ? [named] : undefined} hint="Its name in the configuration. Left empty, the usual one." mono />}
        <Check checked={unsubscribe} onChange={setUnsubscribe} label="Offer one-click unsubscribe" hint="Adds the header that large providers ask of those who send to many." />
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
    told('Visitors are redirected from now on.')
    await reload()
  }
  const remove = async () => {
    await call('delete_redirect', { domain_id: d.id })
    told('Visitors are no longer redirected.')
    await reload()
  }
  return (
    <Card title="Web redirect" note={`Where browsers go that open ${d.domain_unicode} or www.${d.domain_unicode}.`}>
      <Form onSubmit={save} submit="Save" disabled={url.trim() === '' || same} actions={r && <Button onClick={remove}>Remove</Button>}>
        <TextField label="Redirect to" name="redirect_url" type="url" value={url} onInput={setUrl} placeholder="https://www.example.com/" />
        <Check checked={permanent} onChange={setPermanent} label="Permanent" hint="Browsers and search engines remember it (301). Otherwise they ask each time (302)." />
        <Check checked={path} onChange={setPath} label="Keep the rest of the address" hint={`${d.domain_unicode}/page leads to …/page.`} />
      </Form>
    </Card>
  )
}

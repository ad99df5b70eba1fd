// Where a domain's mail and visitors go, and how its mail leaves.
import { can, session } from '../../api/client'
import { useQuery } from '../../api/query'
import { Button, Card, Check, Facts, Notice, Select, TextField } from '../../ui'
import { SMTPCredentials } from '../mailboxes/credentials'
import { Elsewhere, said } from './elsewhere'
import type { FieldsProps } from './types'
import { Website } from './website'
import { redirectWords, type Domain } from './words'

export function MailSettings(props: FieldsProps) {
  const { domain: d } = props
  if (d.status === 'deleting') return <Notice>This domain is being deleted.</Notice>
  if (!can('update_domain')) return <Read domain={d} />
  return (
    <>
      <div class="grid-2">
        <CatchAll {...props} />
        <Forward {...props} />
      </div>
      <div class="grid-2">
        <Sending {...props} />
        <Redirect {...props} />
      </div>
      {d.apex && <Website {...props} />}
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

/** Empties a field; the save bar then removes what it had. */
function Remove({ what, onClick }: { what: string; onClick: () => void }) {
  return <Button small aria-label={`Remove ${what}`} onClick={onClick}>Remove</Button>
}

function CatchAll({ domain: d, drafts: { settings: { values: f, set } } }: FieldsProps) {
  const boxes = useQuery('list_domain_email_users', { domain_id: d.id, limit: 100 })
  return (
    <Card title="Catch-all" note={`Receives mail for every address at ${d.domain_unicode} that has no mailbox.`} actions={f.catchAll && <Remove what="catch-all" onClick={() => set({ catchAll: '' })} />}>
      <TextField label="Deliver to" name="catch_all" type="email" value={f.catchAll} onInput={(catchAll) => set({ catchAll })} placeholder={`hello@${d.domain}`} list={boxes.data?.data.map((b) => b.email)} hint="Useful for a new domain, but it also receives spam sent to random addresses." />
    </Card>
  )
}

function Forward({ drafts: { settings, forward: { values: f, set } } }: FieldsProps) {
  const idle = f.address.trim() !== '' && settings.values.catchAll.trim() !== ''
  return (
    <Card title="Forwarding" note="Forwards mail that neither a mailbox nor the catch-all receives." actions={f.address && <Remove what="forwarding" onClick={() => set({ address: '' })} />}>
      <div class="form">
        <TextField label="Forward to" name="forward_address" type="email" value={f.address} onInput={(address) => set({ address })} placeholder="me@example.com" hint="An address at another domain. No copy is kept here." />
        {idle && <Notice tone="warn">The catch-all receives all of this mail, so nothing is forwarded. Remove one of the two.</Notice>}
      </div>
    </Card>
  )
}

function Sending({ drafts: { settings: { values: f, set } } }: FieldsProps) {
  const account = useQuery('get_account', {})
  const named = account.data?.mail.relay
  return (
    <Card title="Outgoing mail" note="Send directly, or through a relay: a service that delivers mail for you.">
      <div class="form">
        <Select label="Route" name="sending_mode" value={f.mode} onChange={(mode) => set({ mode })} options={[['direct', 'Direct to the recipients’ mail servers'], ['relay', 'Through a relay']]} hint={session.value!.outbound === 'capture' ? 'Not in use now: this server captures all mail to external recipients.' : named === null ? 'This server has no relay. Its operator can add one.' : undefined} />
        {f.mode === 'relay' && <TextField label="Relay" name="relay" value={f.relay} onInput={(relay) => set({ relay })} placeholder={named ?? 'default'} list={named ? [named] : undefined} hint="The relay’s name in the server’s configuration. Leave empty for the default." mono />}
        <Check checked={f.unsubscribe} onChange={(unsubscribe) => set({ unsubscribe })} label="Offer one-click unsubscribe" hint="Adds the List-Unsubscribe header that large providers require from bulk senders." />
        <Check checked={f.strict} onChange={(strict) => set({ strict })} label="Require encryption" hint="Sends only to mail servers with a valid certificate. Mail to others waits and then comes back." />
      </div>
    </Card>
  )
}

function Redirect({ domain: d, drafts: { settings, redirect: { values: f, set } } }: FieldsProps) {
  const note = `Redirects visitors of ${d.domain_unicode} and www.${d.domain_unicode}.`
  if (d.apex && settings.values.apex !== 'here' && !d.redirect) return <Card title="Web redirect" note={note}><p>The website of {d.domain_unicode} is at its own server. To redirect its visitors, have them come to this server first, under Website.</p></Card>
  return (
    <Card title="Web redirect" note={note} actions={f.url && <Remove what="redirect" onClick={() => set({ url: '' })} />}>
      <div class="form">
        <TextField label="Redirect to" name="redirect_url" type="url" value={f.url} onInput={(url) => set({ url })} placeholder="https://www.example.com/" />
        {f.url.trim() !== '' && (
          <>
            <Check checked={f.permanent} onChange={(permanent) => set({ permanent })} label="Permanent" hint="301: browsers and search engines cache it. Otherwise 302: they check each time." />
            <Check checked={f.path} onChange={(path) => set({ path })} label="Keep the path" hint={`${d.domain_unicode}/page redirects to …/page.`} />
          </>
        )}
      </div>
    </Card>
  )
}

// How mail programs connect to a mailbox.
import { session } from '../../api/client'
import { Card, Copyable, Facts, Qr } from '../../ui'
import type { MailboxOut } from './words'

export const security = { tls: 'TLS', starttls: 'STARTTLS', none: 'not encrypted' } as const

export function Connection({ of: u }: { of: MailboxOut }) {
  const profile = `${session.value!.api_base}/mail/${encodeURIComponent(u.username)}.mobileconfig?email=${encodeURIComponent(u.email)}`
  return (
    <Card title="Connect a mail client" note="Most mail clients find these settings automatically from the address.">
      <div class="mailboxes-connection">
        <Facts of={[
          ['Username', <Copyable text={u.email} />],
          ['Incoming (IMAP)', <><Copyable text={u.imap_host} /><div class="muted small">port {u.imap_port}, {security[u.imap_security]}</div></>],
          ['Outgoing (SMTP)', <><Copyable text={u.smtp_host} /><div class="muted small">port {u.smtp_port}, {security[u.smtp_security]}</div></>],
        ]} />
        <div class="stack-tight">
          <Qr text={profile} label={`QR code to set up ${u.email} on an iPhone or iPad`} />
          <span class="small muted">iPhone or iPad: scan this<br />or open the <a href={profile}>profile</a>.</span>
        </div>
      </div>
    </Card>
  )
}

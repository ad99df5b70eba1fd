// How mail programs connect to a mailbox.
import { session } from '../../api/client'
import { Card, Copyable, Facts, Qr } from '../../ui'
import { rich, t } from '../../words'
import type { MailboxOut } from './words'

export const security = { tls: 'TLS', starttls: 'STARTTLS', none: 'not encrypted' } as const

const secured = (by: keyof typeof security) => (by === 'none' ? t('connect.plain') : security[by])

export function Connection({ of: u }: { of: MailboxOut }) {
  const profile = `${session.value!.api_base}/mail/${encodeURIComponent(u.username)}.mobileconfig?email=${encodeURIComponent(u.email)}`
  return (
    <Card title={t('connect.title')} note={t('connect.note')}>
      <div class="mailboxes-connection">
        <Facts of={[
          [t('connect.username'), <Copyable text={u.email} />],
          [t('connect.incoming'), <><Copyable text={u.imap_host} /><div class="muted small">{t('connect.port', { port: u.imap_port, security: secured(u.imap_security) })}</div></>],
          [t('connect.outgoing'), <><Copyable text={u.smtp_host} /><div class="muted small">{t('connect.port', { port: u.smtp_port, security: secured(u.smtp_security) })}</div></>],
        ]} />
        <div class="stack-tight">
          <Qr text={profile} label={t('connect.qr', { email: u.email })} />
          <span class="small muted">{rich('connect.iphone', { profile: <a href={profile}>{t('connect.profile')}</a> })}</span>
        </div>
      </div>
    </Card>
  )
}

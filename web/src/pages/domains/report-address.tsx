// Whether the addresses that DMARC reports are to go to receive mail.
import { call, can } from '../../api/client'
import { useLate, useRead } from '../../api/query'
import { Button, Notice } from '../../ui'
import { useFleet } from './fleet'
import { makeMailbox } from './make'
import type { Domain } from './words'

const reserved = ['postmaster', 'abuse', 'mailer-daemon', 'dmarc-reports'] // every domain receives these
const pause = 400 // ms without typing before addresses are looked up

/**
 * Warns of report addresses in the account's own domains that receive no mail. Others are not known
 * here.
 */
export function ReportAddresses({ rua }: { rua: string }) {
  const fleet = useFleet()
  const settled = useLate(rua, pause)
  const addresses = addressesOf(settled)
  const own = fleet.data && addresses.filter((a) => fleet.data!.some((d) => d.domain === partsOf(a).domain))
  const lost = useRead('lost ' + own?.join(), async () => {
    const found = await Promise.all(own!.map(async (a) => await receives(a, fleet.data!) ? [] : [a]))
    return found.flat()
  }, { kinds: ['mailbox', 'domain'], when: !!own && own.length > 0 })
  const create = (a: string) => makeMailbox(fleet.data!.find((d) => d.domain === partsOf(a).domain)!, partsOf(a).name)
  if (!own?.length || settled !== rua || !lost.data?.length) return null
  return (
    <>
      {lost.data.map((a) => (
        <Notice key={a} tone="warn" alert title={`${a} receives no mail.`}>
          Reports sent there are lost. {can('create_email_user') ? <Button small onClick={() => create(a)}>Create mailbox</Button> : 'Ask the account’s owner or an admin to create the mailbox.'}
        </Notice>
      ))}
    </>
  )
}

/**
 * The mail addresses of an rua tag (RFC 7489 section 6.2): URIs with commas between, each with a
 * size after "!" at times.
 */
export function addressesOf(rua: string): string[] {
  return rua.split(',').map((uri) => uri.trim().replace(/^mailto:/i, '').replace(/!\d+[kmgt]?$/i, '').toLowerCase()).filter((a) => /^[^@\s]+@[^@\s]+$/.test(a))
}

function partsOf(address: string): { name: string; domain: string } {
  const at = address.lastIndexOf('@')
  return { name: address.slice(0, at).replace(/\+.*/, ''), domain: address.slice(at + 1) } // a +tag is the mailbox's own
}

async function receives(address: string, domains: Domain[]): Promise<boolean> {
  const { name, domain } = partsOf(address)
  const d = domains.find((x) => x.domain === domain)!
  if (d.dns_provider === 'external') return true // its mail is elsewhere
  if (reserved.includes(name) || d.catch_all || d.forward_address) return true
  const { data } = await call('list_email_users', { q: `${name}@${domain}`, limit: 100 })
  return data.some((m) => m.email === `${name}@${domain}` && (m.status === 'active' || m.status === 'pending'))
}

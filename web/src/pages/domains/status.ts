// What is seen of a domain's records from outside.
import { useEffect, useRef } from 'preact/hooks'
import { call } from '../../api/client'
import { useRead } from '../../api/query'
import type { DnsStatus, Domain } from './words'

/**
 * Reads the newest look at a domain's records. It is read again when the domain's own state tells of another look, not at
 * any change of the domain: reading may itself be a look, and so a change.
 */
export function useDnsStatus(d: Domain) {
  const live = useRef(false)
  const status = useRead<DnsStatus>('domains dns ' + d.id, () => call('get_dns_status', { domain_id: d.id, refresh: live.current || undefined }), { when: d.status !== 'deleting' })
  const mark = [d.status, d.ns_status, d.dns_status, d.dns_health.checked_at, d.dmarc_override?.updated_at].join()
  const seen = useRef(mark)
  useEffect(() => {
    if (seen.current === mark) return
    seen.current = mark
    void status.reload()
  }, [mark])
  const look = async () => {
    live.current = true
    await status.reload().finally(() => { live.current = false })
  }
  return { ...status, look }
}

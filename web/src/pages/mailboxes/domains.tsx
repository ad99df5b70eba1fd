import { useEffect } from 'preact/hooks'
import { useQuery } from '../../api/query'
import { Select } from '../../ui'

/** Chooses one of the account's domains, by name; ready: of those that are ready for mail. */
export function DomainChoice({ value, onChange, external, ready }: { value: string; onChange: (domain: string) => void; external?: boolean; ready?: boolean }) {
  const domains = useQuery('list_domains', { limit: 100, dns_provider: external ? 'external' : undefined, status: ready ? 'complete' : undefined })
  const fit = (domains.data?.data ?? []).filter((d) => external || d.dns_provider !== 'external')
  useEffect(() => {
    if (fit.length > 0 && !fit.some((d) => d.domain === value)) onChange(fit[0]!.domain)
  }, [fit.length, external])
  return (
    <Select label="Domain" name="domain" value={value} onChange={onChange} options={fit.map((d) => [d.domain, d.domain_unicode + (d.status === 'complete' ? '' : ' (not ready)')] as const)}
      hint={domains.data && fit.length === 0 ? <>No domains{external ? ' with external mail' : ready ? ' that are ready for mail' : ''} yet. <a href="/domains/add">Add a domain</a>.</> : undefined} />
  )
}

// The DNS providers that are reached by API: what a credential for each has, and what its key has to be allowed.
import type { Schemas } from '../../api/client'

export type DNSCredential = Schemas['DNSCredential']
export type DNSProvider = DNSCredential['provider']
export type Secret = Exclude<keyof Schemas['CreateDNSCredentialRequest'], 'provider' | 'name' | 'zones'>

export interface SecretField {
  name: Secret
  label: string
  placeholder?: string
  hint?: string
  /** Not shown while it is typed. */
  hidden?: true
  optional?: true
}

interface About { name: string; rights: string; fields: SecretField[]; zonesRequired?: true }

const token: SecretField = { name: 'token', label: 'API token', hidden: true }

export const dnsProviders: Record<DNSProvider, About> = {
  cloudflare: { name: 'Cloudflare', fields: [token], rights: 'The API token needs Zone: Read and DNS: Edit for your zones. The “Edit zone DNS” template has both.' },
  route53: {
    name: 'Route 53', rights: 'The access key needs ListHostedZones, ListHostedZonesByName, ListResourceRecordSets and ChangeResourceRecordSets of Route 53.',
    fields: [{ name: 'access_key_id', label: 'Access key ID', placeholder: 'AKIAIOSFODNN7EXAMPLE' }, { name: 'secret_access_key', label: 'Secret access key', hidden: true }],
  },
  hetzner: { name: 'Hetzner', fields: [token], rights: 'The API token needs Read & Write for the project that has your zones.' },
  desec: { name: 'deSEC', fields: [token], rights: 'The token needs permission to write record sets, but not to create or delete domains.' },
  rfc2136: {
    name: 'Nameserver (RFC 2136)', zonesRequired: true, rights: 'The TSIG key needs permission to update the zones, and preferably to transfer them (AXFR).',
    fields: [
      { name: 'server', label: 'Server', placeholder: 'ns1.example.com', hint: 'Hostname, with a port if it is not 53.' },
      { name: 'key_name', label: 'Key name', placeholder: 'mailstead.key' },
      { name: 'algorithm', label: 'Algorithm', placeholder: 'hmac-sha256', hint: 'Leave empty for hmac-sha256.', optional: true },
      { name: 'secret', label: 'Secret', hint: 'The secret of the TSIG key, in base64.', hidden: true },
    ],
  },
}

export const providerOptions = Object.entries(dnsProviders).map(([id, p]) => [id as DNSProvider, p.name] as const)

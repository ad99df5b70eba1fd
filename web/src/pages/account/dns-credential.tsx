// Adding and editing a credential for a DNS provider.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { Dialog, Form, Select, TextArea, TextField, told } from '../../ui'
import { dnsProviders, providerOptions, type DNSCredential, type DNSProvider, type Secret } from './dns-providers'

type Secrets = Partial<Record<Secret, string>>

interface Props {
  /** The credential to edit; a new one is added without it. */
  of?: DNSCredential
  provider?: DNSProvider
  onDone: (c: DNSCredential) => Promise<void> | void
  onClose: () => void
}

export function CredentialDialog({ of, provider: first = 'cloudflare', onDone, onClose }: Props) {
  const [provider, setProvider] = useState<DNSProvider>(of?.provider ?? first)
  const [name, setName] = useState(of?.name ?? '')
  const had = of?.zones.join('\n') ?? ''
  const [zoneText, setZones] = useState(had)
  const [secrets, setSecrets] = useState<Secrets>({})
  const about = dnsProviders[provider]
  const zones = zoneText.split(/[\s,]+/).filter(Boolean)
  const given = Object.fromEntries(about.fields.map((f) => [f.name, secrets[f.name]?.trim()]).filter(([, text]) => text)) as Secrets
  const lacks = name.trim() === '' || (about.zonesRequired && zones.length === 0) || (!of && about.fields.some((f) => !f.optional && !given[f.name]))
  const submit = async () => {
    const c = of
      ? await call('update_dns_credential', { credential_id: of.id, name: name === of.name ? undefined : name, zones: zoneText === had ? undefined : zones, ...given })
      : await call('create_dns_credential', { provider, name, zones: zones.length > 0 ? zones : undefined, ...given })
    await onDone(c)
    told(of ? 'Saved.' : 'Credential added.')
    onClose()
  }
  return (
    <Dialog title={of ? `Edit ${of.name}` : 'Add DNS credential'} onClose={onClose}>
      <Form onSubmit={submit} submit={of ? 'Save' : 'Add'} of={[name, zoneText, given]} disabled={lacks}>
        {!of && <Select label="Provider" name="provider" value={provider} onChange={setProvider} options={providerOptions} />}
        <p class="muted small">{about.rights} Mailstead tries it before saving, and stores it encrypted.</p>
        <TextField label="Name" name="name" value={name} onInput={setName} maxLength={100} placeholder={about.name} hint="A name to recognize it by." autoFocus />
        {about.fields.map((f) => (
          <TextField key={provider + f.name} label={f.label} name={f.name} type={f.hidden ? 'password' : 'text'} autoComplete="off" mono value={secrets[f.name] ?? ''} placeholder={of ? undefined : f.placeholder}
            onInput={(text) => setSecrets({ ...secrets, [f.name]: text })} hint={of ? 'Leave empty to keep the present value.' : f.hint} />
        ))}
        <TextArea label="Zones" name="zones" value={zoneText} onInput={setZones} rows={2} mono placeholder="example.com" hint={about.zonesRequired ? 'One per line.' : 'One per line. Leave empty for all zones that the provider lists.'} />
      </Form>
    </Dialog>
  )
}

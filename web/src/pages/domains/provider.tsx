// Where a domain's DNS is: moving it to another provider, and putting replaced records back.
import { useState } from 'preact/hooks'
import { call, can } from '../../api/client'
import { ask, Button, Card, Dialog, Facts, Form, Notice, told } from '../../ui'
import { AddCredential, CredentialChoice, PlanPreview, useCredentials, usePlan, Values } from './plan'
import type { TabProps } from './types'
import { byApi, providerNames } from './words'

export function DnsProvider({ domain: d, reload }: TabProps) {
  const { fitting } = useCredentials(d.domain)
  const [moving, setMoving] = useState(false)
  const used = fitting?.find((c) => c.id === d.dns_credential_id)
  const mayMove = (d.dns_provider === 'builtin' || byApi(d.dns_provider)) && can('list_dns_credentials')
  const putBack = () => ask({
    title: `Put the old records of ${d.domain_unicode} back?`, action: 'Put back', text: 'They take the place of Mailstead’s MX and SPF records. Mail then goes where it went before.',
    run: async () => {
      await call('put_back_zone_records', { domain_id: d.id })
      told('Old records put back.')
      await reload()
    },
  })
  return (
    <Card title="DNS provider" actions={mayMove && <Button small onClick={() => setMoving(true)}>Move to another provider</Button>}>
      <div class="stack">
        <Facts of={[['DNS provider', providerNames[d.dns_provider]], ['Credential', used && <a href="/account/dns">{used.name}</a>]]} />
        {d.replaced.length > 0 && (
          <>
            <Facts of={d.replaced.map((r) => [`Replaced ${r.type} of ${r.name}`, <Values of={[r.value]} />])} />
            {can('put_back_zone_records') && byApi(d.dns_provider) && <div class="row"><Button onClick={putBack}>Put old records back</Button></div>}
          </>
        )}
      </div>
      {moving && <Move domain={d} reload={reload} onClose={() => setMoving(false)} />}
    </Card>
  )
}

function Move({ domain: d, reload, onClose }: TabProps & { onClose: () => void }) {
  const credentials = useCredentials(d.domain)
  const others = { ...credentials, fitting: credentials.fitting?.filter((c) => c.id !== d.dns_credential_id) }
  const [chosen, setChosen] = useState(''), [replace, setReplace] = useState(false)
  const id = others.fitting?.some((c) => c.id === chosen) ? chosen : others.fitting?.[0]?.id ?? ''
  const plan = usePlan(d.domain, id, replace)
  const conflicts = plan.data?.foreign_conflicts.length ?? 0
  const move = async () => {
    await call('update_domain', { domain_id: d.id, dns_credential_id: id, ...(replace && { replace }) })
    told('Move started.')
    await reload()
    onClose()
  }
  return (
    <Dialog title={`Move ${d.domain_unicode}`} wide onClose={onClose}>
      <Form onSubmit={move} submit="Move" disabled={id === '' || !plan.data || conflicts > 0}>
        <CredentialChoice of={others} value={id} onChange={setChosen} />
        {id !== '' && <PlanPreview of={plan} replace={replace} onReplace={setReplace} />}
        {conflicts > 0 && <Notice tone="warn">Replace the mail records, or remove the others at the new provider first.</Notice>}
        <Notice>{d.dns_provider === 'builtin' ? 'Mailstead’s nameservers answer until you set those of the new provider at your registrar.' : 'Records at the present provider stay there. Delete them once the domain has moved.'}</Notice>
      </Form>
      <AddCredential of={credentials} onAdded={setChosen} />
    </Dialog>
  )
}

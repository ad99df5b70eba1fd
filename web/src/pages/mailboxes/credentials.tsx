// Passwords for devices and programs: of a mailbox, and of a domain.
import { useState } from 'preact/hooks'
import { call, can, type Schemas } from '../../api/client'
import { useQuery, type Query } from '../../api/query'
import { ask, Button, Card, Check, Copyable, Dialog, Done, Facts, Form, IconButton, PartError, Secret, Select, Show, TextField, Time, told } from '../../ui'
import { rich, t } from '../../words'
import { noPolicy, OwnWords, PolicyFields, policyOf, PolicyNote } from '../policies/policy'
import { Readers, TaintNotice } from '../policies/taint'

type Credential = Schemas['Credential']
type Made = Schemas['CredentialCreated']

/** The app passwords of a mailbox. */
export function AppPasswords({ userID }: { userID: string }) {
  const list = useQuery('list_credentials', { user_id: userID }, { kinds: ['mailbox'], only: (c) => c.id === userID })
  const [making, setMaking] = useState(false)
  return (
    <Card title={t('apps.title')} note={t('apps.note')} actions={can('create_credential') && <Button small icon="plus" onClick={() => setMaking(true)}>{t('apps.new')}</Button>}>
      <List of={list} none={t('apps.none')} onDelete={can('delete_credential') && (async (c) => { await call('delete_credential', { user_id: userID, credential_id: c.id }) })}
        onClear={can('clear_credential_taint') && (async (c) => { await call('clear_credential_taint', { user_id: userID, credential_id: c.id }) })} />
      {making && <Make title={t('apps.new')} protocols others={list.data?.data ?? []} onClose={() => setMaking(false)} onDone={list.reload} make={({ own_words: _, ...form }) => call('create_credential', { user_id: userID, ...form })} />}
    </Card>
  )
}

/** The SMTP credentials of a domain. */
export function SMTPCredentials({ domainID, domain }: { domainID: string; domain: string }) {
  const list = useQuery('list_smtp_credentials', { domain_id: domainID }, { kinds: ['domain'], only: (c) => c.id === domainID })
  const [making, setMaking] = useState(false)
  return (
    <Card title="SMTP credentials" note={`For programs that send as any address of ${domain}.`} actions={can('create_smtp_credential') && <Button small icon="plus" onClick={() => setMaking(true)}>New SMTP credential</Button>}>
      <List of={list} none="No SMTP credentials yet." sends onDelete={can('delete_smtp_credential') && (async (c) => { await call('delete_smtp_credential', { domain_id: domainID, credential_id: c.id }) })}
        onClear={can('clear_smtp_credential_taint') && (async (c) => { await call('clear_smtp_credential_taint', { domain_id: domainID, credential_id: c.id }) })} />
      {making && <Make title="New SMTP credential" others={list.data?.data ?? []} onClose={() => setMaking(false)} onDone={list.reload} make={({ protocols: _, ...form }) => call('create_smtp_credential', { domain_id: domainID, ...form })} />}
    </Card>
  )
}

type Deed = false | ((c: Credential) => Promise<void>) // false: the viewer may not

function List({ of: list, none, sends, onDelete, onClear }: { of: Query<{ data: Credential[] }>; none: string; sends?: boolean; onDelete: Deed; onClear: Deed }) {
  const revoke = (c: Credential, drop: (c: Credential) => Promise<void>) => ask({
    title: t('apps.revoke.title', { name: c.name }), action: t('apps.revoke.action'), text: t('apps.revoke.text'),
    run: async () => {
      await drop(c)
      await list.reload()
      told(t('apps.revoked'))
    },
  })
  const clear = async (c: Credential, end: (c: Credential) => Promise<void>) => {
    await end(c)
    await list.reload()
  }
  return (
    <Show of={list} lines={2}>
      {({ data }) => data.length === 0 ? <p class="muted">{none}</p> : (
        <div class="stack-tight">
          {data.map((c) => (
            <div key={c.id} class="row-between mailboxes-credential">
              <div class="grow">
                <strong>{c.name}</strong> <span class="muted small">{c.protocols.map((p) => p.toUpperCase()).join(', ')}</span><br />
                <span class="muted small">
                  {c.last_used_at ? rich(c.last_used_ip ? 'apps.used.from' : 'passkeys.used', { when: <Time of={c.last_used_at} />, ip: c.last_used_ip }) : t('passkeys.unused')}
                  {c.expires_at && <>, {rich('apps.expires', { when: <Time of={c.expires_at} form="date" /> })}</>}
                  {c.allowed_networks && `, ${t('apps.networks', { networks: c.allowed_networks.join(', ') })}`}
                </span>
                <PolicyNote of={c.policy} own={c.own_words} />
              </div>
              {onDelete && <IconButton look="ghost" small icon="trash" label={t('apps.revoke', { name: c.name })} onClick={() => revoke(c, onDelete)} />}
              {c.tainted && <div class="mailboxes-taint"><TaintNotice of={c.tainted} name={c.name} sends={sends} clear={onClear ? () => clear(c, onClear) : undefined} /></div>}
            </div>
          ))}
        </div>
      )}
    </Show>
  )
}

type Protocol = 'imap' | 'smtp' | 'api'

interface Input { name: string; protocols?: Protocol[]; allowed_networks?: string[]; expires_in_days?: number; policy?: Schemas['PolicyInput']; own_words?: boolean }

const lives = () => [['', t('apps.expiry.never')], ['30', t('apps.expiry.days', { n: 30 })], ['90', t('apps.expiry.days', { n: 90 })], ['365', t('apps.expiry.year')]] as const

function Make({ title, protocols = false, others, make, onDone, onClose }: { title: string; protocols?: boolean; others: Credential[]; make: (form: Input) => Promise<Made>; onDone: () => Promise<void>; onClose: () => void }) {
  const [name, setName] = useState(''), [days, setDays] = useState<string>(''), [networks, setNetworks] = useState(''), [mail, setMail] = useState(true), [api, setAPI] = useState(false)
  const [limited, setLimited] = useState(false), [policy, setPolicy] = useState(noPolicy), [own, setOwn] = useState(false)
  const [made, setMade] = useState<Made>()
  const submit = async () => {
    const from = networks.split(/[\s,]+/).filter(Boolean)
    const chosen: Protocol[] = [...(mail ? ['imap', 'smtp'] as const : []), ...(api ? ['api'] as const : [])]
    setMade(await make({ name, protocols: protocols ? chosen : undefined, allowed_networks: from.length > 0 ? from : undefined, expires_in_days: days ? Number(days) : undefined, policy: limited ? policyOf(policy) : undefined, own_words: own || undefined }))
    await onDone()
  }
  if (made) {
    return (
      <Dialog title={made.name} onClose={onClose}>
        <div class="stack">
          <Facts of={[[t('connect.username'), <Copyable text={made.username} />]]} />
          <Secret name={t('apps.secret.password')} text={made.password} />
          {made.token && <Secret name={t('apps.secret.token')} text={made.token} />}
          <Done />
        </div>
      </Dialog>
    )
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <Form submit={t('apps.create')} onSubmit={submit} of={[name, networks, limited && policy, own, days, mail, api]} disabled={name.trim() === '' || (protocols && !mail && !api)}>
        <TextField label={t('passkeys.name')} name="name" value={name} onInput={setName} placeholder={protocols ? t('apps.name.example') : 'Shop'} hint={t('apps.name.hint')} maxLength={100} autoFocus />
        {protocols && (
          <fieldset class="stack-tight people-fieldset">
            <legend class="label">{t('apps.for')}</legend>
            <PartError name="protocols" />
            <Check label={t('apps.for.mail')} hint={t('apps.for.mail.hint')} checked={mail} onChange={setMail} />
            <Check label="API" hint={t('apps.for.api.hint')} checked={api} onChange={setAPI} />
          </fieldset>
        )}
        <Select label={t('apps.expiry')} name="expires_in_days" value={days} onChange={setDays} options={lives()} />
        <TextField label={t('apps.only')} name="allowed_networks" value={networks} onInput={setNetworks} placeholder="192.0.2.0/24" hint={t('apps.only.hint')} />
        <Check label={t('apps.limit')} hint={t('apps.limit.hint')} checked={limited} onChange={setLimited} />
        {limited && <PolicyFields of={policy} set={setPolicy} only={protocols ? undefined : 'send'} />}
        {limited && policy.taint && <Readers of={others} />}
        {!protocols && <OwnWords checked={own} onChange={setOwn} />}
      </Form>
    </Dialog>
  )
}

// An account with something of everything, on the server whose relay refuses some recipients, and the places that show it.
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import { account, deliver, domain, fresh, mailbox, message, unique, until } from './rig.mjs'

/** A program that webhooks may call: it answers 500 at /bad and 204 elsewhere, and keeps what it was told. */
export async function receiver() {
  const told = []
  const server = createServer({ cert: await readFile(process.env.MAILSTEAD_CERT), key: await readFile(process.env.MAILSTEAD_KEY) }, async (request, response) => {
    let body = ''
    for await (const part of request) body += part
    told.push({ path: request.url, headers: request.headers, body })
    response.writeHead(request.url === '/bad' ? 500 : 204).end(request.url === '/bad' ? 'The database is asleep.' : '')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  server.unref()
  return { url: `https://127.0.0.1:${server.address().port}`, told }
}

const letters = [
  ['Ines Marchetti <ines@lighthouse.example>', 'Keys for the new office', 'The keys are at the desk downstairs.\nThey open at eight.'],
  ['Accounts <billing@chandler.example>', 'Invoice 2041', 'Please find our invoice attached.'],
  ['Tomas Berg <tomas@berg.example>', 'Re: Sailing on Sunday?', 'Gladly. Shall we meet at nine by the pier?'],
  ['Weather Desk <desk@forecast.example>', 'Gale warning for Saturday', 'South-west 8, rising 9 towards the evening.'],
  ['Priya Nair <priya@studio.example>', 'First drafts of the poster', 'Three drafts, and a favourite of mine.'],
  ['Harbour Office <office@port.example>', 'Berth 14 is free from Monday', 'It is yours if you confirm by Friday.'],
]

/** The result of a scan of a domain that is in use. */
export const scanned = {
  nameservers: ['ns1.before.example', 'ns2.before.example'], method: 'axfr', complete: true, wildcard: false, ds: [], proxied: [], mta_sts: null,
  records: [{ name: '@', type: 'A', ttl: 300, values: ['192.0.2.7'] }, { name: '@', type: 'MX', ttl: 300, values: ['10 mx.before.example'] }, { name: 'www', type: 'A', ttl: 300, values: ['192.0.2.7'] }],
  ours: [
    { name: '@', type: 'MX', theirs: ['10 mx.before.example'], ours: ['10 mail.mailstead.test'], action: 'replace' },
    { name: '@', type: 'TXT', theirs: ['"v=spf1 include:_spf.before.example ~all"'], ours: ['"v=spf1 mx ~all"'], action: 'merge' },
    { name: '_dmarc', type: 'TXT', theirs: [], ours: ['"v=DMARC1; p=quarantine"'], action: 'replace' },
  ],
  mx: [{ priority: 10, host: 'mx.before.example' }], ttl: { ns: 86_400, ds: null, longest_changed: 300 },
}

/** Makes it all, in domains whose names end in tail. */
export async function harbour(tail = unique('-h')) {
  const h = await account(`mara@harbour${tail}.test`, fresh)
  const { api } = h
  await api('PATCH', '/v1/account', { name: 'Harbour Office' })
  h.domain = await domain(`harbour${tail}.test`, h)
  h.second = await domain(`lighthouse${tail}.test`, h)
  h.waiting = (await api('POST', '/v1/domains/connect', { domains: [`new-pier${tail}.test`] })).domains[0]
  h.used = (await api('POST', '/v1/domains/connect', { domains: [`busy-pier${tail}.test`] })).domains[0]
  h.manual = (await api('POST', '/v1/domains/connect', { domains: [`old-pier${tail}.test`], manual_dns: true })).domains[0]
  h.box = await mailbox(h.domain, 'mara', h)
  for (const name of ['office', 'crew', 'bookings', 'billing']) await mailbox(h.domain, name, h)
  await api('POST', '/v1/email-users/bulk', { domain: h.second.name, users: [{ username: 'keeper' }, { username: 'lamp' }] })
  const box = '/v1/email-users/' + h.box.user_id
  await api('POST', box + '/credentials', { name: 'Mara’s phone' })
  await api('POST', box + '/rules', { name: 'Harbour dues', conditions: [{ field: 'subject', op: 'contains', value: 'dues' }], actions: [{ type: 'move', value: 'archive' }] })
  await api('POST', `/v1/domains/${h.domain.id}/smtp-credentials`, { name: 'Booking system' })
  await api('POST', '/v1/groups', { email: `everybody@${h.domain.name}`, name: 'Everybody', members: [{ user_id: h.box.user_id }, { email: 'pilot@elsewhere.test' }] })
  await api('POST', box + '/folders', { name: 'Berths' })
  await api('POST', box + '/drafts', { to: ['ada@elsewhere.test'], subject: 'The new mooring rules', text: 'Dear Ada, the rules change in spring.' })
  await api('POST', '/v1/email-user-templates', { name: 'Company', usernames: ['info', 'sales', 'support'] })
  const calls = await receiver()
  h.hook = await api('POST', '/v1/webhooks', { url: calls.url + '/mail', events: ['email.received'], description: 'Booking system' })
  h.failing = await api('POST', '/v1/webhooks', { url: calls.url + '/bad', events: ['email.received', 'email.bounced'] })
  for (const [from, subject, text] of letters.toReversed()) await deliver(h.box.email, message({ to: h.box.email, from, subject, text }), 'stranger@elsewhere.test', fresh)
  await send(h)
  await api('POST', '/v1/suppressions', { email: 'never@far.test' })
  h.invited = await api('POST', '/v1/account/users/invite', { email: `ben@harbour${tail}.test`, first_name: 'Ben', last_name: 'Okri', role: 'member' })
  await api('POST', '/v1/auth/tokens', { name: 'Backup', permissions: ['read'], expires_in_days: 90 })
  await until('messages and attempts are there', async () => (await api('GET', `/v1/email-users/${h.box.user_id}/inbox`)).data.length > letters.length
    && (await api('GET', `/v1/webhooks/${h.failing.id}/deliveries`)).data.some((d) => d.outcome === 'failed'))
  return h
}

/** Sends to one whom the relay takes, one whom it refuses, and one whom it puts off. */
async function send(h) {
  for (const to of ['anna@far.test', 'gone@far.test', 'later@far.test']) {
    await h.api('POST', `/v1/email-users/${h.box.user_id}/inbox/send`, { to: [to], subject: 'Your berth', text: 'It is berth 14.' })
  }
  await h.api('POST', '/v1/message-templates', { name: 'Berth', subject: 'Your berth, {{name}}', text: 'It is berth {{berth}}.' })
  const later = { to: ['soon@far.test'], subject: 'Your berth tomorrow', text: 'It is berth 15.', send_at: new Date(Date.now() + 9e7).toISOString(), tags: { kind: 'berth' } }
  const agent = h.as((await h.api('POST', '/v1/auth/tokens', { name: 'Berth agent', policy: { send: 'approval' } })).token)
  for (const to of ['pilot@far.test', 'crew@far.test']) {
    const held = { to: [to], subject: 'A berth for you', html: '<p>It is <b>berth 16</b>.</p>', attachments: [{ filename: 'plan.txt', content: 'QmVydGggMTY=' }] }
    h.held = { id: (await agent('POST', `/v1/email-users/${h.box.user_id}/inbox/send`, held)).approval_id }
  }
  h.scheduled = { id: (await h.api('POST', `/v1/email-users/${h.box.user_id}/inbox/send`, later)).recipients[0].id }
  const of = async (status) => (await h.api('GET', '/v1/messages?status=' + status)).data[0]
  await until('they were tried', async () => await of('bounced') && await of('deferred') && await of('relayed'))
  h.bounced = await of('bounced')
  h.deferred = await of('deferred')
}

/** The places of the dashboard, with something to show at each; the failed job is one by what ill says. */
export async function placesOf(h) {
  const { data: jobs } = await h.api('GET', '/v1/jobs?limit=100')
  const letter = (await h.api('GET', `/v1/email-users/${h.box.user_id}/inbox`)).data.find((m) => m.subject.startsWith('Keys'))
  const asked = await until('requests are in the log', async () => (await h.api('GET', '/v1/requests?limit=1')).data[0])
  const d = '/domains/' + h.domain.id
  return {
    overview: '/', inbox: '/inbox', message: `/inbox/${h.box.user_id}/${letter.uid}`, compose: '/compose', 'inbox-sent': '/inbox?folder=sent', 'inbox-drafts': '/inbox?folder=drafts', 'inbox-all': '/inbox?folder=all',
    mailboxes: '/mailboxes', mailbox: '/mailboxes/' + h.box.user_id, ...Object.fromEntries(['addresses', 'access', 'rules', 'reply'].map((tab) => ['mailbox-' + tab, `/mailboxes/${h.box.user_id}/${tab}`])), bulk: '/mailboxes/bulk', templates: '/mailboxes/templates', groups: '/mailboxes/groups',
    sent: '/sent', 'sent-bounced': '/sent/' + h.bounced.id, 'sent-deferred': '/sent/' + h.deferred.id, suppressions: '/sent/suppressions', reputation: '/sent/reputation', 'message-templates': '/sent/templates', 'sent-scheduled': '/sent/' + h.scheduled.id, lookup: '/sent/lookup', approvals: '/approvals', approval: '/approvals/' + h.held.id,
    domains: '/domains', domain: d, 'domain-pending': '/domains/' + h.waiting.domain_id, 'domain-manual': '/domains/' + h.manual.domain_id, 'domain-in-use': '/domains/' + h.used.domain_id,
    'domain-failing': '/domains/' + h.second.id, add: '/domains/add', buy: '/domains/add?way=buy',
    ...Object.fromEntries(['dns', 'zone', 'dmarc', 'mail', 'reports', 'mailboxes', 'jobs', 'settings'].map((tab) => ['domain-' + tab, `${d}/${tab}`])), 'domain-zone-own': d + '/zone?source=custom',
    webhooks: '/webhooks', webhook: '/webhooks/' + h.hook.id, 'webhook-failing': '/webhooks/' + h.failing.id, events: '/webhooks/events',
    jobs: '/jobs', job: '/jobs/' + jobs.find((j) => j.status === 'completed').id, 'job-failed': '/jobs/' + jobs.find((j) => j.status === 'completed').id + '?failed',
    team: '/team', tokens: '/tokens', profile: '/profile', account: '/account', 'dns-credentials': '/account/dns', connect: '/connect', requests: '/requests', request: '/requests/' + asked.request_id, audit: '/audit', nowhere: '/nowhere',
  }
}

/** Changes a look at the DNS to one that found the nameservers that are given: in the sandbox every domain has Mailstead's. */
export const delegatedTo = (servers) => ({ nameservers: ns }) => Object.assign(ns, { actual: servers(), verified: servers().every((one) => ns.expected.includes(one)) })

/** What a young server with a healthy network does not have: failures and a past. */
export async function ill(p, h) {
  await change(p, '**/v1/domains/' + h.second.id, (d) => Object.assign(d, { dns_health: { status: 'failing', checked_at: new Date().toISOString(), failing_since: new Date(Date.now() - 7.2e6).toISOString(),
    issues: [{ code: 'mismatch', purpose: 'MX', host: '@', message: 'Mail for it goes to other servers: 5 mx.other.example. Replace those MX records.' }] } }))
  await change(p, `**/v1/domains/${h.waiting.domain_id}/dns-status*`, delegatedTo(() => ['ns1.elsewhere.example', 'ns2.elsewhere.example']))
  await change(p, `**/v1/domains/${h.used.domain_id}/dns-status*`, delegatedTo(() => scanned.nameservers))
  await change(p, '**/v1/domains/' + h.waiting.domain_id, (d) => Object.assign(d, { status: 'pending_ns', ns_status: 'pending', next_look_at: new Date(Date.now() + 9e5).toISOString() })) // the sandbox sets it up after a minute
  await change(p, '**/v1/domains/' + h.used.domain_id, (d) => Object.assign(d, { status: 'pending_ns', ns_status: 'pending', next_look_at: new Date(Date.now() + 9e5).toISOString(), previous_nameservers: scanned.nameservers,
    dns_health: { ...d.dns_health, issues: [{ code: 'not_imported', purpose: 'CUSTOM', host: 'www', message: 'Import them with import_zone.' }] } }))
  await change(p, '**/v1/dns-credentials', (c) => {
    const one = { id: 'dnsc_pier', provider: 'hetzner', name: 'Harbour zones', zones: [], error: null, created_at: new Date(Date.now() - 9e8).toISOString(), last_used_at: new Date(Date.now() - 6e5).toISOString() }
    c.data = [one, { ...one, id: 'dnsc_quay', provider: 'rfc2136', name: 'Nameserver of the quay', zones: ['quay.example'], error: 'The server refused the key.' }]
  })
  await change(p, '**/v1/jobs/*', (j) => p.url().endsWith('?failed') && Object.assign(j, { status: 'error', error: { code: 'ns_timeout', message: 'harbour.test was not delegated to Mailstead within 14 days.' } }))
  const scan = { id: 'job_scan', job_id: 'job_scan', type: 'zone_scan', status: 'completed', steps: [], error: null, created_at: new Date().toISOString(), result: scanned }
  await p.route((url) => url.pathname === '/v1/jobs' && url.searchParams.get('type') === 'zone_scan' && url.searchParams.get('domain') === h.used.domain, (route) => route.fulfill({ json: { data: [scan], pagination: { cursor: null, has_more: false } } }))
  await p.route('**/v1/jobs/job_scan', (route) => route.fulfill({ json: scan }))
  await change(p, '**/v1/account/usage', (u) => u.daily.forEach((day, i) => {
    const busy = /^(Sat|Sun)/.test(new Date(day.date).toUTCString()) ? 0.3 : 1
    day.received += Math.round(busy * (60 + 25 * Math.sin(i / 3) + 2 * i))
    day.sent += Math.round(busy * (30 + 10 * Math.cos(i / 2) + i))
    day.bounced += i % 9 === 4 ? 3 : 0
  }))
  await p.route('**/v1/domains/check-provider', (route) => route.fulfill({ json: { domain: route.request().postDataJSON().domain, registrar: 'Walk Registrar', nameservers: ['ns1.walk.example'], is_edge: false } }))
}

export async function change(p, what, how) {
  await p.route(what, async (route) => {
    if (route.request().method() !== 'GET') return route.fallback()
    const answer = await route.fetch()
    const json = await answer.json()
    how(json)
    await route.fulfill({ response: answer, json })
  })
}

/**
 * What few accounts have: a domain of each kind and state, own records, policy, redirect and forward, a mailbox elsewhere,
 * a suspended one, a webhook that is off, a template, a second admin. Gives the places that show it.
 */
export async function laden(h) {
  const { api } = h
  const d = `/v1/domains/${h.domain.id}`
  const connect = async (rest) => (await api('POST', '/v1/domains/connect', { domains: [unique('laden') + '.test'], ...rest })).domains[0]
  h.rare = { cloudflare: await connect(), bought: await connect(), broken: await connect(), unsigned: await connect() }
  h.external = await connect({ external: true })
  h.remote = await api('POST', '/v1/email-users', { type: 'external', username: 'away', domain: h.external.domain, imap: { host: '127.0.0.1', port: 1, security: 'none', username: 'away', password: 'a secret' } })
  await api('POST', d + '/custom-dns-records', { name: 'www', type: 'TXT', value: 'hello' })
  await api('PUT', d + '/spf', { extra: ['ip4:192.0.2.0/24'] })
  await api('PUT', d + '/dmarc', { value: 'v=DMARC1; p=none' })
  await api('POST', d + '/redirect', { redirect_url: 'https://elsewhere.example/' })
  await api('POST', d + '/forward', { forward_address: 'all@elsewhere.example' })
  await api('PATCH', d, { catch_all: h.box.email, tags: ['north'], notes: 'Ask the harbour master.' })
  h.off = await api('POST', '/v1/webhooks', { url: 'https://127.0.0.1:1/', events: ['email.received'] })
  await api('PATCH', '/v1/webhooks/' + h.off.id, { status: 'disabled' })
  h.asleep = await mailbox(h.domain, 'asleep', h)
  await api('POST', `/v1/email-users/${h.asleep.user_id}/inbox/send`, { to: ['dream@far.test'], subject: 'A dream', text: 'Of a berth.', send_at: new Date(Date.now() + 9e7).toISOString() })
  await api('PATCH', '/v1/email-users/' + h.asleep.user_id, { status: 'suspended', hold: true })
  await until('it is held', async () => (await api('GET', '/v1/messages?status=held')).data.some((m) => m.user_id === h.asleep.user_id))
  h.admin = await api('POST', '/v1/account/users/invite', { email: unique('first-mate') + '@harbour.test', role: 'admin' })
  return {
    ...Object.fromEntries(Object.entries({ cloudflare: ['', '/settings'], bought: ['/settings'], broken: [''], unsigned: ['', '/dns'] })
      .flatMap(([name, tabs]) => tabs.map((tab) => [`domain-${name}${tab}`, `/domains/${h.rare[name].domain_id}${tab}`]))),
    'domain-external': '/domains/' + h.external.domain_id, 'domain-external-mailboxes': `/domains/${h.external.domain_id}/mailboxes`, 'domain-manual-dns': `/domains/${h.manual.domain_id}/dns`, 'domain-manual-dmarc': `/domains/${h.manual.domain_id}/dmarc`,
    'domain-empty-mailboxes': `/domains/${h.waiting.domain_id}/mailboxes`,
    'mailbox-external': '/mailboxes/' + h.remote.user_id, 'mailbox-suspended': '/mailboxes/' + h.asleep.user_id, 'webhook-off': '/webhooks/' + h.off.id,
  }
}

const rare = {
  cloudflare: { dns_provider: 'cloudflare', status: 'complete', ns_status: 'not_required', dns_credential_id: 'dnsc_pier', replaced: [{ name: '@', type: 'MX', ttl: 300, value: '10 mx.before.example' }] },
  bought: { status: 'complete', source: 'registered', registrar: 'Walk Registrar', auto_renew: true, expires_at: '2030-01-01T00:00:00.000Z' },
  broken: { status: 'error', error: { code: 'ns_timeout', message: 'harbour.test was not delegated to Mailstead within 14 days.' } },
  unsigned: { status: 'complete', dnssec: { status: 'bogus', ds: [{ value: '1 13 2 00', key_tag: 1, algorithm: 13, digest_type: 2, digest: '00' }] } },
}

/** Has everything that a program signs in with be tainted by a message of a mailbox. */
async function tainted(p, h) {
  const tainted = { since: new Date(Date.now() - 6e5).toISOString(), user_id: h.box.user_id, thread_id: null }
  for (const what of ['**/v1/auth/tokens', '**/v1/email-users/*/credentials', '**/v1/domains/*/smtp-credentials']) await change(p, what, ({ data }) => data.forEach((c) => Object.assign(c, { tainted, policy: { ...c.policy, taint: true } })))
}

/** Has the domains of laden be what no sandbox without a registrar and a provider makes of them, and names be for sale. */
export async function rarities(p, h) {
  await tainted(p, h)
  for (const [name, { domain_id }] of Object.entries(h.rare)) await change(p, '**/v1/domains/' + domain_id, (d) => Object.assign(d, rare[name]))
  await change(p, '**/v1/domains/' + h.manual.domain_id, (d) => Object.assign(d, { status: 'pending_dns_records', completed_at: null })) // it is looked at by itself
  await change(p, '**/v1/account', (a) => Object.assign(a, { registrars: ['Walk Registrar'] }))
  const offer = (domain) => ({ domain, available: true, price: 9, renewal_price: 12, currency: 'USD', premium: false, registrar: 'Walk Registrar', checked_via: 'registrar', purchasable: true, error: null })
  await p.route('**/v1/domains/search?*', (route) => route.fulfill({ json: offer(new URL(route.request().url()).searchParams.get('q')) }))
  await p.route('**/v1/domains/suggest?*', (route) => route.fulfill({ json: { keywords: 'walk', suggestions: [offer('idea.test')], count: 1 } }))
}

// An account with something of everything, on the server whose relay refuses some recipients.
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

/** Makes it all. */
export async function harbour() {
  const tail = process.env.MAILSTEAD_SHOTS ? '' : unique('-h')
  const h = await account(`mara@harbour${tail}.test`, fresh)
  const { api } = h
  await api('PATCH', '/v1/account', { name: 'Harbour Office' })
  h.domain = await domain(`harbour${tail}.test`, h)
  h.second = await domain(`lighthouse${tail}.test`, h)
  h.waiting = (await api('POST', '/v1/domains/connect', { domains: [`new-pier${tail}.test`] })).domains[0]
  h.manual = (await api('POST', '/v1/domains/connect', { domains: [`old-pier${tail}.test`], manual_dns: true })).domains[0]
  h.box = await mailbox(h.domain, 'mara', h)
  for (const name of ['office', 'crew', 'bookings', 'billing']) await mailbox(h.domain, name, h)
  await api('POST', '/v1/email-users/bulk', { domain: h.second.name, users: [{ username: 'keeper' }, { username: 'lamp' }] })
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
  const of = async (status) => (await h.api('GET', '/v1/messages?status=' + status)).data[0]
  await until('they were tried', async () => await of('bounced') && await of('deferred') && await of('relayed'))
  h.bounced = await of('bounced')
  h.deferred = await of('deferred')
}

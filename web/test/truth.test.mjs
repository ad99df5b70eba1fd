// What the dashboard says is so: each of these once said something else than the server does.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { receiver } from './harbour.mjs'
import { account, deliver, domain, fresh, here, mailbox, message, page, shot, sound, unique, until } from './rig.mjs'

const team = async (word, server = here) => {
  const a = await account(`${unique(word)}@team.test`, server)
  return { ...a, of: { api: a.api } }
}

test('mail to a suspended mailbox is refused, and its page says so', async (t) => {
  const a = await team('suspended'), d = await domain(unique('suspended') + '.test', a), box = await mailbox(d, 'ann', a)
  await a.api('PATCH', '/v1/email-users/' + box.user_id, { status: 'suspended' })
  await assert.rejects(deliver(box.email, message({ to: box.email, subject: 'Hello' })), /SMTP answered 5/)
  const p = await page(t, { as: a })
  await p.open('/mailboxes/' + box.user_id)
  await p.getByText('incoming mail is refused').waitFor()
  assert.equal(await p.getByText('Mail still arrives').count(), 0)
})

test('secrets that can be shown again are not said to be lost', async (t) => {
  const a = await team('secrets'), d = await domain(unique('secrets') + '.test', a)
  const p = await page(t, { as: a, phone: true })
  await p.open('/webhooks')
  await p.getByRole('button', { name: 'Add webhook' }).first().click()
  await p.getByLabel('Endpoint URL').fill('https://127.0.0.1:1/')
  await p.getByRole('dialog').getByRole('button', { name: 'Add webhook' }).click()
  await p.getByRole('dialog').getByText('can show it again').waitFor()
  assert.equal(await p.getByText('not shown again').count(), 0)
  await sound(p)
  await p.open('/mailboxes/bulk?domain=' + d.name)
  await p.getByLabel('Names or CSV').fill('one\ntwo')
  await p.getByRole('button', { name: /Create 2/ }).click()
  await p.getByText('You can export passwords later.').waitFor()
  assert.equal(await p.getByText('not shown again').count(), 0)
  const { data: [format] } = await a.api('GET', '/v1/export/formats')
  assert.ok(format)
})

test('the account page of a sandbox that captures says so', async (t) => {
  const p = await page(t)
  await p.open('/account')
  await p.getByText('Captured: mail to external recipients is not sent').waitFor()
  assert.equal(await p.getByText('straight to').count(), 0)
  await sound(p)
})

test('a webhook that fails is on the overview at once', async (t) => {
  const a = await team('failing', fresh), calls = await receiver()
  const w = await a.api('POST', '/v1/webhooks', { url: calls.url + '/bad', events: ['email.received'] })
  const d = await domain(unique('failing') + '.test', a), box = await mailbox(d, 'ann', a)
  const p = await page(t, { as: a })
  await p.open('/')
  await p.getByText('no deliveries yet').waitFor()
  await deliver(box.email, message({ to: box.email, subject: 'Hello' }), 'stranger@elsewhere.test', fresh)
  const failed = async () => (await a.api('GET', `/v1/webhooks/${w.id}/deliveries`)).data.filter((d) => d.outcome === 'failed').length === 1
  await until('one delivery failed', failed)
  await p.getByText('Webhook failing').waitFor()
  await p.getByText('the last delivery failed').waitFor()
  await shot(p, 'truth-webhook')
})

test('a DMARC report address that receives no mail is named', async (t) => {
  const a = await team('rua'), d = await domain(unique('rua') + '.test', a), box = await mailbox(d, 'reports', a)
  const p = await page(t, { as: a })
  await p.open(`/domains/${d.id}/dmarc`)
  const to = p.getByLabel('Send reports to'), warning = p.getByRole('alert').getByText(/receives no mail/)
  await to.fill(`${box.email}, postmaster@${d.name}, reports+dmarc@${d.name}, dmarc@elsewhere.example`)
  await p.waitForTimeout(1500) // nothing is to come
  assert.equal(await warning.count(), 0)
  await to.fill('dmarc@' + d.name)
  await warning.waitFor()
  await shot(p, 'truth-dmarc')
  await sound(p)
  await p.getByRole('button', { name: 'Create mailbox' }).click()
  const dialog = p.getByRole('dialog')
  assert.equal(await dialog.getByLabel('Username').inputValue(), 'dmarc')
  await dialog.getByRole('button', { name: 'Create' }).click()
  await dialog.getByRole('button', { name: 'Done' }).click()
  await warning.waitFor({ state: 'detached' })
  assert.equal(await to.inputValue(), 'dmarc@' + d.name, 'what was typed stays')
  await a.api('PATCH', '/v1/email-users/' + box.user_id, { status: 'suspended' })
  await to.fill(box.email)
  await warning.waitFor()
})

test('a domain with manual DNS does not wait in the sandbox', async (t) => {
  const a = await team('manual')
  const connect = async () => (await a.api('POST', '/v1/domains/connect', { domains: [unique('manual') + '.test'], manual_dns: true })).domains[0].domain_id
  const status = async (id) => (await a.api('GET', '/v1/domains/' + id)).status
  const first = await connect()
  await until('its records are worked out', async () => await status(first) === 'pending_dns_records')
  const p = await page(t, { as: a })
  await p.open('/domains')
  await p.getByRole('link', { name: /^manual-/ }).first().waitFor()
  await until('it is activated', async () => await status(first) === 'complete')
  await p.goto('about:blank') // the list would activate the second at once
  const second = await connect()
  await until('its records are worked out', async () => await status(second) === 'pending_dns_records')
  await p.open('/domains/' + second)
  await p.getByRole('region', { name: 'Next step' }).getByText(/^Ready\./).waitFor()
  assert.equal(await status(second), 'complete')
})

test('the page notices that the network is back', async (t) => {
  const a = await team('network'), d = await domain(unique('network') + '.test', a), box = await mailbox(d, 'ann', a)
  const p = await page(t, { as: a, expect: [/ERR_INTERNET_DISCONNECTED|Failed to load resource/] })
  await p.open('/inbox')
  await p.getByText('No mail yet').waitFor()
  await p.context().setOffline(true)
  await p.getByText('Connection lost').waitFor()
  await p.getByRole('link', { name: 'Domains' }).first().click()
  await p.getByText('Can’t reach the server').or(p.getByText("Can't reach the server")).first().waitFor()
  await deliver(box.email, message({ to: box.email, subject: 'While you were out' }))
  await p.getByRole('link', { name: 'Inbox' }).first().click()
  await p.context().setOffline(false)
  await p.getByText('While you were out').waitFor({ timeout: 6000 })
  await p.getByText('Connection lost').waitFor({ state: 'detached' })
})

test('a stream that has gone silent is opened anew', async (t) => {
  const a = await team('silent')
  const p = await page(t, { as: a })
  await p.clock.install()
  let streams = 0
  p.on('request', (r) => { if (r.url().endsWith('/session/stream')) streams++ })
  await p.route('**/session/stream', (route) => route.fulfill({ contentType: 'text/event-stream', body: 'retry: 3600000\nevent: hello\ndata: {"version":"x","build":"y"}\n\n' }))
  await p.open('/')
  await p.getByRole('heading', { name: 'Overview' }).waitFor()
  assert.equal(streams, 1)
  await p.clock.runFor(60_000)
  await until('it is opened anew', async () => streams > 1)
})

test('errors are in the dashboard’s words, with a link to where they are mended', async (t) => {
  const a = await team('words'), d = await domain(unique('words') + '.test', a)
  await a.api('POST', `/v1/domains/${d.id}/custom-dns-records`, { name: 'www', type: 'TXT', value: 'hello' })
  await a.api('POST', '/v1/account/universal-inbox', { enabled: true })
  await a.api('POST', '/v1/webhooks', { url: 'https://127.0.0.1:1/', events: ['email.received'] })
  const p = await page(t, { as: a, expect: [/status of 4\d\d/] })
  await p.open('/account')
  await p.getByLabel('Fetch external mailboxes in the background').click()
  const alert = p.getByRole('alert')
  await alert.getByText('Webhooks for received mail need the universal inbox').waitFor()
  assert.doesNotMatch(await alert.innerText(), /[a-z]_[a-z]|\/v1|POST/)
  await shot(p, 'truth-error')
  await sound(p)
  await alert.getByRole('link', { name: 'See the webhooks' }).click()
  await p.getByRole('heading', { name: 'Webhooks', level: 1 }).waitFor()
  await p.route('**/v1/domains/' + d.id, async (route) => route.fulfill({ json: { ...await (await route.fetch()).json(), status: 'error', error: { code: 'domain_claimed_elsewhere', message: 'Run setup with edge_api_token.' } } }))
  await p.open('/domains/' + d.id)
  const next = p.getByRole('region', { name: 'Next step' })
  await next.getByRole('heading', { name: 'Prove that you own this domain' }).waitFor()
  await next.getByText('mailstead-claim=' + d.id).waitFor()
  await shot(p, 'truth-claim')
  await sound(p)
})

test('a new message is from the mailbox in view, else from the last that sent', async (t) => {
  const a = await team('sender'), d = await domain(unique('sender') + '.test', a)
  const [ann, bob, eve] = [await mailbox(d, 'ann', a), await mailbox(d, 'bob', a), await mailbox(d, 'eve', a)]
  await deliver(bob.email, message({ to: bob.email, subject: 'To bob' }))
  const p = await page(t, { as: a })
  const from = (email) => p.waitForFunction((email) => document.querySelector('.compose-form .compose-line')?.textContent.includes(email) || document.querySelector('.compose-form .compose-line input')?.value === email, email)
  const compose = async () => {
    await p.getByRole('button', { name: 'Compose' }).click()
    await p.locator('.compose-form').waitFor()
  }
  const close = () => p.getByRole('button', { name: 'Discard draft' }).click()
  await p.open('/inbox?mailbox=' + ann.email)
  await compose()
  await from(ann.email)
  await p.getByLabel('To', { exact: true }).fill('x@far.test')
  await p.getByLabel('Subject').fill('From ann')
  await p.getByRole('button', { name: 'Send', exact: true }).click()
  await p.getByLabel('Subject').waitFor({ state: 'detached' }) // the page knows that it is sent
  await until('it is sent', async () => (await a.api('GET', '/v1/messages')).data.length === 1)
  await p.open('/inbox')
  await p.getByText('To bob').first().click()
  await p.getByRole('heading', { name: 'To bob' }).waitFor()
  await compose()
  await from(bob.email) // the message in view is bob's
  await close()
  await p.open('/inbox')
  await compose()
  await from(ann.email) // the newest mailbox is eve
  assert.ok(eve)
  await shot(p, 'truth-sender')
})

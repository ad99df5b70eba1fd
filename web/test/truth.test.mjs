// What the dashboard says is so: each of these once said something else than the server does.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { receiver } from './harbour.mjs'
import { account, deliver, domain, fresh, here, mailbox, main, message, page, shot, sound, unique, until } from './rig.mjs'

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
  await p.getByText('You can also export passwords later.').waitFor()
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
    await p.getByRole('button', { name: 'Compose', exact: true }).click()
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

/** The words of up to 20 letters that stand on two lines though they have no hyphen. */
function brokenWords(scope) {
  const found = []
  for (const cell of scope.querySelectorAll('th, td')) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) {
      for (const { 0: word, index } of texts.currentNode.data.matchAll(/[\p{L}\p{N}]{2,20}(?![^\s])/gu)) {
        const range = document.createRange()
        range.setStart(texts.currentNode, index)
        range.setEnd(texts.currentNode, index + word.length)
        if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) found.push(word)
      }
    }
  }
  return found
}

test('a table that is too wide for its place scrolls, and breaks no word', async (t) => {
  const a = await team('tables')
  await a.api('POST', '/v1/auth/tokens', { name: 'Warehouse', permissions: ['read', 'write', 'purchase', 'admin'], expires_in_days: 300 })
  const p = await page(t, { as: a })
  await p.setViewportSize({ width: 720, height: 800 })
  await p.route('**/v1/messages/lookup?*', (route) => route.fulfill({ json: { count: 1, data: [{ original_message_id: `<${'a1b2'.repeat(15)}@sender.example>`, provider_message_id: `<${'c3d4'.repeat(15)}@relay.example>`, provider: 'mailgun', recipient: 'somebody.with.a.long.name@customers.example', relayed_at: new Date().toISOString() }] } }))
  for (const path of ['/tokens', '/sent/lookup']) {
    await p.open(path)
    if (path === '/sent/lookup') {
      await main(p).getByRole('textbox').first().fill('x')
      await p.getByRole('button', { name: 'Look up', exact: true }).click()
    }
    await p.locator('.table').first().waitFor()
    assert.deepEqual(await p.evaluate(brokenWords, await p.locator('.table').first().elementHandle()), [], path)
    await sound(p, path)
  }
  const wide = p.getByRole('region', { name: 'Messages' })
  await wide.waitFor()
  assert.ok(await wide.evaluate((e) => e.scrollWidth > e.clientWidth && e.tabIndex === 0), 'the keyboard scrolls it')
})

test('text of strangers that runs from right to left stands as it is read', async (t) => {
  const a = await team('rtl'), d = await domain(unique('rtl') + '.test', a), box = await mailbox(d, 'ann', a)
  const [subject, text] = ['שלום 123 abc', 'מה שלומך היום?']
  const mime = (s) => `=?utf-8?B?${Buffer.from(s).toString('base64')}?=`
  await deliver(box.email, message({ to: box.email, from: `${mime('דוד כהן')} <dawid@elsewhere.test>`, subject: mime(subject), text }))
  await a.api('POST', `/v1/email-users/${box.user_id}/inbox/send`, { to: ['dawid@elsewhere.test'], subject, text })
  const { data: [m] } = await until('it is there', async () => { const r = await a.api('GET', `/v1/email-users/${box.user_id}/inbox`); return r.data.length > 0 && r })
  const p = await page(t, { as: a })
  const turned = async (where, what) => {
    await where.waitFor()
    assert.equal(await where.evaluate((e) => getComputedStyle(e).direction), 'rtl', what)
  }
  await p.open(`/inbox/${box.user_id}/${m.uid}`)
  const row = p.locator('.inbox-row').first()
  await turned(row.locator('.subject'), 'the subject in the list')
  await turned(row.getByText('דוד כהן'), 'the sender in the list')
  await turned(row.getByText(text), 'the preview')
  await turned(p.locator('.inbox-message h2'), 'the subject')
  await turned(p.locator('.inbox-sender strong'), 'the sender')
  await turned(p.locator('.inbox-text').getByText(text), 'the text')
  const box1 = await row.locator('.subject').evaluate((e) => { const r = document.createRange(); r.selectNodeContents(e); return r.getBoundingClientRect().left - e.getBoundingClientRect().left })
  assert.ok(box1 < 2, 'it stays in its column')
  await p.open('/sent')
  await turned(p.getByRole('table', { name: 'Sent messages' }).getByText(subject), 'the subject in the sending log')
  await p.getByRole('row').filter({ hasText: subject }).getByRole('link').click()
  await turned(p.getByRole('heading', { level: 1 }).getByText(subject), 'the heading')
})

test('a browser whose clock is behind is not told of checks in the future', async (t) => {
  const a = await team('clock'), d = await domain(unique('clock') + '.test', a)
  const p = await page(t, { as: a })
  await p.addInitScript(() => {
    const real = Date.now
    Date.now = () => real() - 9000
  })
  await p.open(`/domains/${d.id}/dns`)
  await p.getByRole('button', { name: 'Check now' }).last().click()
  await p.getByRole('status').getByText('DNS records checked.').waitFor()
  assert.match(await p.getByText(/Last checked/).first().textContent(), /Last checked (now|\d+ sec)/)
})

test('the limit of a mailbox says that it counts recipients, and the dates of a reply belong together', async (t) => {
  const a = await team('limit'), d = await domain(unique('limit') + '.test', a), box = await mailbox(d, 'ann', a)
  const p = await page(t, { as: a })
  await p.open('/mailboxes/' + box.user_id)
  await p.getByText('Recipients per day').first().waitFor()
  await p.getByRole('tab', { name: 'Automatic reply' }).click()
  await p.getByRole('group', { name: 'Away' }).getByLabel('First day').waitFor()
  await sound(p)
})

test('the operator sees on the overview what is wrong with the server, and nobody else does', async (t) => {
  const bad = { code: 'backup', status: 'error', subject: '/backups', message: 'The last backup failed.', mend: 'Make room there.' }
  const p = await page(t)
  await p.route('**/v1/health', async (route) => {
    const answer = await route.fetch(), health = await answer.json()
    await route.fulfill({ response: answer, json: { ...health, status: 'error', checks: [{ ...bad, code: 'queue', status: 'warning', subject: 'job_1', message: 'It waits.', mend: 'See the log.' }, ...health.checks.filter((c) => c.status === 'ok'), bad] } })
  })
  await p.open('/')
  const card = (name) => p.locator('.card', { has: p.getByRole('heading', { name, exact: true }) })
  await card('Server health').getByText('Error', { exact: true }).waitFor()
  await card('Server health').getByText('1 error, 1 warning').waitFor()
  const items = await card('Needs attention').getByRole('link').allTextContents()
  assert.match(items[0], /^Server: Backups.*The last backup failed\./, 'errors come first')
  assert.match(items[1], /^Server: Queue.*It waits\./)
  await p.unroute('**/v1/health')
  await p.route('**/v1/health', async (route) => {
    const answer = await route.fetch(), ports = Array.from({ length: 7 }, (_, n) => ({ ...bad, code: 'ports', status: 'warning', subject: `port ${n}` }))
    await route.fulfill({ response: answer, json: { ...(await answer.json()), status: 'error', checks: [bad, ...ports] } })
  })
  await p.open('/')
  const rest = card('Needs attention').getByRole('link').filter({ hasText: 'Server: 4 more checks need attention' })
  await rest.waitFor()
  assert.equal((await rest.textContent()).match(/Ports/g).length, 1, 'checks of one name are named once')
  await sound(p)
  const a = await team('nobody'), other = await page(t, { as: a })
  await other.open('/')
  await other.getByRole('heading', { name: 'Get your first message' }).waitFor()
  assert.equal(await other.getByText(/^Server/).count(), 0)
})

test('links of the API reference show without colours, and its tables break no word', async (t) => {
  const p = await page(t, { as: null })
  await p.setViewportSize({ width: 420, height: 800 })
  await p.open('/docs')
  const bare = await p.evaluate(() => [...document.querySelectorAll('main :is(p, li, td, caption) a')].filter((a) => !getComputedStyle(a).textDecorationLine.includes('underline')).length)
  assert.equal(bare, 0)
  assert.deepEqual(await p.evaluate(brokenWords, await p.locator('main').elementHandle()), [])
  assert.ok(await p.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth), 'the page itself does not scroll sideways')
})

test('a message that passes DMARC and still proves nothing says why', async (t) => {
  const a = await team('reason'), d = await domain(unique('reason') + '.test', a), box = await mailbox(d, 'ann', a)
  await deliver(box.email, message({ to: box.email, subject: 'Pay here' }))
  const { data: [m] } = await until('it is there', async () => { const r = await a.api('GET', `/v1/email-users/${box.user_id}/inbox`); return r.data.length > 0 && r })
  const p = await page(t, { as: a })
  await p.route(`**/v1/email-users/*/inbox/${m.uid}*`, async (route) => {
    if (route.request().method() !== 'GET') return route.fallback()
    const answer = await route.fetch()
    await route.fulfill({ response: answer, json: { ...await answer.json(), auth: { spf: 'none', dkim: 'pass', dmarc: 'pass', reason: 'no signature covers every field that is shown' } } })
  })
  await p.open(`/inbox/${box.user_id}/${m.uid}`)
  const verdict = p.locator('.inbox-verdict')
  await verdict.getByText('Partly verified').click()
  await verdict.getByText('Why: no signature covers every field that is shown.').waitFor()
  assert.equal(await p.getByText('really comes from').count(), 0)
  await sound(p)
})

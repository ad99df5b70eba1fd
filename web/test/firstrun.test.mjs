// The first run: from an empty directory to the first message, live on the page; and the password
// that was printed.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { account, deliver, domain, fresh, launch, message, page, pocket, shot, sound, unique } from './rig.mjs'

const moderate = { moderate: true }

const step = (p, name) => p.getByRole('main').getByRole('listitem').filter({ has: p.getByRole('heading', { name, exact: true }) })

/** Looks at a page in both themes. */
async function looked(p, name, small) {
  for (const scheme of small ? ['dark', 'light'] : ['light', 'dark']) {
    await p.emulateMedia({ colorScheme: scheme })
    await p.waitForFunction((scheme) => document.documentElement.dataset.theme === scheme, scheme)
    await sound(p, `${name}, ${scheme}`, { ...moderate, colours: true })
    await shot(p, `${name}-${scheme}${small ? '-phone' : ''}`, { whole: true })
  }
}

for (const small of [false, true]) {
  test('first run: the link, a domain, a mailbox, the first message' + (small ? ' on a phone' : ''), async (t) => {
    const server = small ? pocket : fresh
    const p = await page(t, { as: null, phone: small, server, expect: [/status of 40[04]/] })
    if (!small) await p.setViewportSize({ width: 1440, height: 900 })
    await p.route('**/v1/domains/check-provider', (route) => route.fulfill({ json: { domain: route.request().postDataJSON().domain, registrar: 'Walk Registrar', nameservers: ['ns1.walk.example'], is_edge: false } }))
    await p.goto(server.welcome)
    await p.getByLabel('Email').fill('ada@people.test')
    await p.getByLabel('Your name').fill('Ada')
    await p.getByLabel('Password').fill('short')
    await p.getByRole('button', { name: 'Save and sign in' }).click()
    await p.getByRole('alert').waitFor()
    await p.getByText('Use at least 8 characters.').waitFor()
    await p.getByLabel('Password').fill('password1')
    await p.getByText('This password is common').waitFor()
    await p.getByLabel('Password').fill('seven ships sail at dawn')
    await p.getByRole('button', { name: 'Save and sign in' }).click()
    await p.getByRole('heading', { name: 'Get your first message' }).waitFor()
    await p.getByRole('heading', { name: 'Server health' }).waitFor()
    assert.equal(await p.locator('.chart').count(), 0, 'no chart is empty')
    for (const name of ['Mail, last 30 days', 'Running jobs', 'Webhooks', 'Domains', 'Storage']) assert.equal(await p.getByRole('heading', { name, exact: true }).count(), 0, name)
    await step(p, 'Add a domain').getByText('next', { exact: true }).waitFor()
    await step(p, 'Receive a message').getByText('later', { exact: true }).waitFor()
    await looked(p, 'first', small)

    const name = unique('first') + '.test'
    await p.getByRole('main').getByRole('link', { name: 'Add domain' }).click()
    await p.getByLabel('Domain').fill(name)
    await p.getByRole('button', { name: 'Next', exact: true }).click()
    await p.getByText('is registered at').waitFor()
    await p.getByRole('button', { name: 'Add domain' }).click()
    await p.getByRole('heading', { name: 'Ready. Create the first mailbox' }).waitFor() // the page's own look finds the nameservers, and setup continues without a call
    if (small) await p.getByRole('button', { name: 'Navigation' }).click()
    await p.getByRole('navigation', { name: 'Main', exact: true }).getByRole('link', { name: 'Overview' }).click()
    await step(p, 'Point DNS at Mailstead').getByRole('link', { name: `DNS records of ${name}` }).waitFor()
    await p.getByLabel('Username').fill('hello')
    await p.getByRole('button', { name: 'Create mailbox' }).click()
    await p.getByText('Waiting for mail').waitFor()
    await step(p, 'Create a mailbox').getByText('Copy the password for').waitFor()
    await step(p, 'Create a mailbox').getByRole('link', { name: `hello@${name}` }).waitFor()
    await p.getByText('Or send one from a terminal').click()
    await p.getByText(`swaks --server 127.0.0.1:${server.smtp.split(':').at(-1)} `).waitFor()
    await p.getByText('sends real mail to external recipients through a relay').waitFor()
    await looked(p, 'first-waiting', small)
    await p.getByRole('button', { name: 'Send myself a test message' }).click()
    const arrived = p.getByRole('link', { name: /Arrived.*Test message/ })
    await arrived.waitFor()
    assert.equal(await p.getByText('done', { exact: true }).count(), 4)
    await p.locator('.chart').first().waitFor() // now there is something to draw
    await looked(p, 'first-message', small)
    await arrived.click()
    await p.getByRole('heading', { name: 'Test message' }).waitFor()
    await p.locator('iframe, .inbox-text').first().waitFor()

    await p.open('/')
    await p.locator('.chart').first().waitFor()
    assert.equal(await p.getByRole('heading', { name: 'Get your first message' }).count(), 0, 'it is gone once it is done')
    await p.goto(server.welcome)
    await p.getByRole('heading', { name: 'Link expired or already used' }).waitFor()
    assert.equal(await p.getByLabel('Password').count(), 0, 'the link opens once')
  })
}

test('a message from elsewhere ends the first run as well', async (t) => {
  const a = await account(unique('elsewhere') + '@people.test', fresh), d = await domain(unique('elsewhere') + '.test', a)
  await a.api('POST', '/v1/email-users', { username: 'hello', domain: d.name })
  const p = await page(t, { as: a })
  await p.open('/')
  await p.getByText('Waiting for mail').waitFor()
  await deliver('hello@' + d.name, message({ to: 'hello@' + d.name, subject: 'Good morning' }), 'stranger@elsewhere.test', fresh)
  await p.getByRole('link', { name: /Arrived.*Good morning/ }).click()
  await p.getByRole('heading', { name: 'Good morning' }).waitFor()
})

test('the steps can be dismissed, and stay so', async (t) => {
  const a = await account(unique('dismissed') + '@people.test', fresh), p = await page(t, { as: a, phone: true })
  await p.open('/')
  const steps = p.getByRole('heading', { name: 'Get your first message' })
  await steps.waitFor()
  await p.getByRole('button', { name: 'Dismiss' }).click()
  await steps.waitFor({ state: 'detached' })
  await p.getByText('No mail yet').waitFor()
  await sound(p, 'dismissed', moderate)
  await p.open('/')
  await p.getByText('No mail yet').waitFor()
  assert.equal(await steps.count(), 0)
  assert.equal(await p.locator('.chart').count(), 0)
})

describe('the password that was printed', () => {
  let own
  before(async () => { own = await launch() })
  after(() => own.stop())

  test('is changed at the first sign-in, and nothing else is shown before', async (t) => {
    const { server, owner } = own
    const p = await page(t, { as: null, server, expect: [/status of 401/] })
    await p.open('/host')
    await p.getByLabel('Email').fill(owner.email)
    await p.getByLabel('Password').fill(owner.password)
    await p.getByRole('button', { name: 'Sign in', exact: true }).click()
    await p.getByRole('heading', { name: 'Choose your own password' }).waitFor()
    await p.open('/')
    await p.getByRole('heading', { name: 'Choose your own password' }).waitFor()
    assert.equal(await p.getByRole('navigation').count(), 0)
    await sound(p, 'choose', moderate)
    await shot(p, 'choose-password')
    await p.getByLabel('Current password').fill(owner.password)
    await p.getByLabel('New password').fill('seven ships sail at dawn')
    await p.getByRole('button', { name: 'Change password' }).click()
    await p.getByRole('heading', { name: 'Get your first message' }).waitFor()
    const sign = (password) => fetch(server.url + '/session', { method: 'POST', headers: { 'Content-Type': 'application/json', Origin: server.url }, body: JSON.stringify({ email: owner.email, password }) }).then((r) => r.status)
    assert.deepEqual([await sign(owner.password), await sign('seven ships sail at dawn')], [401, 200])
  })
})

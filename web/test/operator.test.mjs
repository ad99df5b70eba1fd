// The operator's settings, on a server of their own: each value with its origin, changes that hold
// at once, what the file keeps, lists with their entries, and signing in again before what concerns
// the whole server.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { account, choosePassword, launch, main, page, shot, sound, unique, until } from './rig.mjs'

const run = promisify(execFile)
const moderate = { moderate: true, colours: true }

let own, operator, relay

/** An SMTP server that takes no log-in, as far as a relay is tried. */
function smtpServer() {
  const server = createServer((socket) => {
    socket.on('error', () => { /* who tries it hangs up */ })
    socket.write('220 relay.test ESMTP\r\n')
    socket.setEncoding('utf8').on('data', (text) => {
      for (const line of text.split('\r\n').filter(Boolean)) socket.write(/^QUIT/i.test(line) ? '221 Bye\r\n' : '250 relay.test\r\n')
    })
  })
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done(server)))
}

/** One row of the list of settings. */
async function row(key) {
  return (await own.api('GET', '/v1/settings')).data.find((s) => s.key === key)
}

/** Calls an operation over the socket in the data directory, as the operator does. */
function local(operation, input) {
  return run(process.env.MAILSTEAD_BIN, ['call', '--data', own.server.data, operation, JSON.stringify(input)])
}

/** Sets values past the page. */
const set = (values) => local('update_settings', { values })

/** Puts the clock of the server so far ahead that a sign-in counts no more. */
const wait = () => local('advance_clock', { seconds: 1000 })

const bar = (p) => p.getByRole('form', { name: 'Unsaved changes' })
const setting = (p, key) => main(p).locator('.settings-row', { has: p.getByText(key, { exact: true }) })
const saved = (p) => p.getByText('Saved. The changes are in force.').waitFor()

/** A page of the operator's, who has just signed in. */
async function open(t, path, { small = false, expect = [], server = own.server } = {}) {
  const p = await page(t, { as: null, phone: small, dark: small, server, expect: [/status of 401/, ...expect] })
  const answer = await p.context().request.post(server.url + '/session', { data: { email: operator.email, password: operator.password }, headers: { Origin: server.url } })
  assert.equal(answer.status(), 200)
  if (!small) await p.setViewportSize({ width: 1440, height: 900 })
  await p.open(path)
  return p
}

/** Looks at a page in both themes. */
async function looked(p, name, small) {
  await p.waitForFunction(() => !document.querySelector('.skeleton'))
  for (const scheme of small ? ['dark', 'light'] : ['light', 'dark']) {
    await p.emulateMedia({ colorScheme: scheme })
    await p.waitForFunction((scheme) => document.documentElement.dataset.theme === scheme, scheme)
    await sound(p, `${name}, ${scheme}`, moderate)
    await shot(p, `${name}-${scheme}${small ? '-phone' : ''}`)
  }
}

describe('the operator', () => {
  before(async () => {
    relay = await smtpServer()
    own = await launch(() => 'recipients_per_mailbox_per_day = 700\n' + // line 4, in the table of limits
      '[spam]\njunk_score = 0.8\n' +
      `[[relay]]\nname = "filed"\nkind = "custom"\nhost = "127.0.0.1"\nport = ${relay.address().port}\ntls = "none"\nusername = "harbour"\npassword = "of the file"\n`)
    operator = await choosePassword(own.owner)
  })
  after(async () => {
    await own.stop()
    relay.close()
  })

  for (const small of [false, true]) {
    test(`settings are sound ${small ? 'on a phone' : 'on a wide screen'}, with a relay, a search and a dialog`, async (t) => {
      const p = await open(t, '/settings', { small })
      await setting(p, 'limits.domains').waitFor()
      await looked(p, 'settings', small)
      assert.ok(small || await p.locator('.side-foot').evaluate((e) => e.getBoundingClientRect().bottom <= innerHeight), 'the foot of the side bar is in view')
      await main(p).getByLabel('Group').selectOption('Limits') // with fewer settings axe is faster
      await setting(p, 'limits.domains').getByLabel('Domains').fill('77')
      await bar(p).waitFor()
      await looked(p, 'settings-changed', small)
      await bar(p).getByRole('button', { name: 'Discard' }).click()
      await main(p).getByLabel('Group').selectOption('Relays')
      await main(p).getByRole('button', { name: 'Add relay' }).click()
      await p.getByRole('dialog').getByLabel('Host').waitFor()
      await looked(p, 'settings-relay', small)
      await p.keyboard.press('Escape')
      await main(p).getByRole('button', { name: 'Show filed' }).click()
      await p.getByRole('dialog').getByText('Set in the file, line 9').waitFor()
      await looked(p, 'settings-relay-filed', small)
      await p.getByRole('dialog').getByRole('button', { name: 'Close' }).first().click()
      await main(p).getByLabel('Group').selectOption('All groups')
      await main(p).getByLabel('Search settings').fill('greylisting')
      await setting(p, 'limits.domains').waitFor({ state: 'detached' })
      await setting(p, 'spam.greylisting').waitFor()
      await looked(p, 'settings-search', small)
      await main(p).getByLabel('Search settings').fill('nothing has this')
      await main(p).getByText('No settings match').waitFor()
    })
  }

  test('every setting of the server is on the page, with its value and where it comes from', async (t) => {
    const p = await open(t, '/settings')
    await setting(p, 'limits.domains').waitFor()
    const { data } = await own.api('GET', '/v1/settings')
    const inRows = data.filter((s) => !/^(relay|registrar\.(namecom|cloudflare))\./.test(s.key))
    assert.deepEqual((await main(p).locator('.settings-row code.small').allTextContents()).sort(), inRows.map((s) => s.key).sort())
    for (const [key, said] of [['limits.recipients_per_mailbox_per_day', 'Set in the file, line 4'], ['spam.junk_score', 'Set in the file, line 6'], ['http', 'Set by a command-line flag'], ['limits.domains', 'Default']]) {
      assert.match(await setting(p, key).locator('.settings-origin').textContent(), new RegExp('^' + said), key)
    }
    const editable = inRows.filter((s) => s.editable && !['file', 'flag', 'environment'].includes(s.source)).map((s) => s.key)
    const fields = await main(p).locator('.settings-row').evaluateAll((rows) => rows.filter((r) => r.querySelector('input, select, textarea')).map((r) => r.querySelector('code.small').textContent))
    assert.deepEqual(fields.sort(), editable.sort())
  })

  test('what is changed is in force at once, shows where it comes from, and goes back to the default', async (t) => {
    const p = await open(t, '/settings')
    await setting(p, 'limits.domains').getByLabel('Domains').fill('42')
    await p.keyboard.press('Control+s')
    await saved(p)
    assert.equal((await own.api('GET', '/v1/account/usage')).domains.limit, 42)
    assert.equal((await row('limits.domains')).source, 'store')
    assert.match(await setting(p, 'limits.domains').locator('.settings-origin').textContent(), /^Set here · Default: 500/)
    assert.equal(await bar(p).isVisible(), false)
    await setting(p, 'limits.domains').getByRole('button', { name: 'Reset' }).click()
    await setting(p, 'limits.domains').getByText('The default, once you save.').waitFor()
    await bar(p).getByRole('button', { name: 'Save' }).click()
    await until('the default holds', async () => (await row('limits.domains')).source === 'default')
    assert.equal((await own.api('GET', '/v1/account/usage')).domains.limit, 500)
    await until('the page says so', async () => (await setting(p, 'limits.domains').locator('.settings-origin').textContent()) === 'Default')
  })

  test('the audit log has the keys of settings as the file has them', async (t) => {
    await set({ 'retention.trash_days': 21 })
    const p = await open(t, '/audit?action=update_settings')
    await main(p).getByText('retention.trash_days', { exact: true }).first().waitFor()
    await set({ 'retention.trash_days': null })
  })

  test('each kind of value has its field, and all are saved by one request', async (t) => {
    const p = await open(t, '/settings'), sent = []
    p.on('request', (r) => { if (r.method() === 'PATCH') sent.push(r.postDataJSON().values) })
    await setting(p, 'spam.greylisting').getByRole('switch').click()
    await setting(p, 'backup.full_every').getByLabel('Full backup interval', { exact: true }).fill('36')
    await setting(p, 'backup.full_every').getByLabel('Unit of').selectOption('hours')
    await setting(p, 'doctor.blocklists').getByLabel('Blocklists').fill('zen.example\nbl.example\n')
    await setting(p, 'log.level').getByLabel('Log level').selectOption('warn')
    await setting(p, 'alerts.url').getByLabel('Alert URL').fill('https://alerts.example.com/a?token=hidden')
    await bar(p).getByRole('button', { name: 'Save' }).click()
    await saved(p)
    const want = { 'spam.greylisting': true, 'backup.full_every': '36h', 'doctor.blocklists': ['zen.example', 'bl.example'], 'log.level': 'warn', 'alerts.url': 'https://alerts.example.com/a?token=hidden' }
    assert.deepEqual(sent, [want])
    for (const [key, value] of Object.entries(want)) assert.deepEqual((await row(key)).value, key === 'alerts.url' ? 'https://alerts.example.com/a' : value, key)
    await set(Object.fromEntries(Object.keys(want).map((key) => [key, null])))
  })

  test('what the file has cannot be changed, by the page or past it', async (t) => {
    const p = await open(t, '/settings', { expect: [/status of 409/] })
    for (const key of ['limits.recipients_per_mailbox_per_day', 'spam.junk_score']) assert.equal(await setting(p, key).locator('input, select, textarea, button').count(), 0, key)
    const entry = main(p).locator('.settings-entry', { hasText: 'filed' })
    await entry.getByRole('button', { name: 'Test' }).waitFor()
    assert.deepEqual(await entry.getByRole('button').allTextContents(), ['Show', 'Test'])
    const past = await p.context().request.patch(own.server.url + '/v1/settings', { data: { values: { 'spam.junk_score': 0.5 } }, headers: { Origin: own.server.url } })
    assert.deepEqual([past.status(), (await past.json()).error.code], [409, 'set_in_file'])
    assert.equal((await row('spam.junk_score')).value, 0.8)
  })

  test('an error stands at its field, once, even if a search hid the field', async (t) => {
    const p = await open(t, '/settings', { expect: [/status of 400/] })
    await setting(p, 'sending.source_ipv4').getByLabel('Source IPv4').fill('nowhere')
    await setting(p, 'limits.domains').getByLabel('Domains').fill('43')
    await main(p).getByLabel('Search settings').fill('classifier')
    await setting(p, 'sending.source_ipv4').waitFor({ state: 'detached' })
    await bar(p).getByRole('button', { name: 'Save' }).click()
    const field = setting(p, 'sending.source_ipv4')
    await field.getByRole('alert').waitFor()
    assert.match(await field.getByRole('alert').textContent(), /nowhere/)
    assert.equal(await main(p).getByRole('alert').count(), 1)
    await until('it has the focus', () => field.getByLabel('Source IPv4').evaluate((e) => e === document.activeElement))
    assert.equal((await row('limits.domains')).source, 'default', 'nothing of it is saved')
    await field.getByLabel('Source IPv4').fill('')
    await bar(p).getByRole('button', { name: 'Discard' }).click()
  })

  test('leaving the page with changes asks', async (t) => {
    const p = await open(t, '/settings')
    await setting(p, 'limits.domains').getByLabel('Domains').fill('44')
    await p.getByRole('navigation').getByRole('link', { name: 'Domains' }).click()
    await p.getByRole('dialog').getByRole('heading', { name: 'Discard' }).waitFor()
    await p.keyboard.press('Escape')
    assert.equal(new URL(p.url()).pathname, '/settings')
    assert.equal(await setting(p, 'limits.domains').getByLabel('Domains').inputValue(), '44')
    await bar(p).getByRole('button', { name: 'Discard' }).click()
  })

  test('a relay is tried, added, moved and deleted', async (t) => {
    const p = await open(t, '/settings?group=relay', { expect: [/status of 4(00|09)/] })
    const dialog = p.getByRole('dialog'), entry = main(p).locator('.settings-entry', { hasText: 'second' }), { port } = relay.address()
    await main(p).getByRole('button', { name: 'Add relay' }).click()
    const add = dialog.getByRole('button', { name: 'Add relay' })
    assert.ok(await add.isDisabled(), 'before anything is entered')
    await dialog.getByLabel('Name', { exact: true }).fill('filed')
    await dialog.getByText('There is a relay of this name already.').waitFor()
    await dialog.getByLabel('Name', { exact: true }).fill('second')
    await dialog.getByLabel('Host').fill('127.0.0.1')
    await dialog.getByLabel('Port').fill('1')
    await dialog.getByLabel('TLS').selectOption('none')
    await dialog.getByRole('button', { name: 'as entered' }).click()
    await dialog.locator('.notice.bad').waitFor()
    await dialog.getByLabel('Port').fill(String(port))
    await dialog.getByRole('button', { name: 'as entered' }).click()
    await dialog.getByText('The relay second can be reached.').waitFor()
    await add.click()
    await entry.getByText(`127.0.0.1:${port}`).waitFor()
    await entry.getByText('Set here').waitFor()
    assert.equal((await row('relay."second".port')).value, port)

    await main(p).getByRole('button', { name: 'Actions for second' }).click()
    await p.getByRole('button', { name: 'Edit', exact: true }).click()
    await dialog.getByLabel('Host').fill('relay.example.com')
    await dialog.getByLabel('TLS').selectOption('STARTTLS')
    await dialog.getByLabel('Username').fill('harbour')
    await dialog.getByRole('button', { name: 'Set Password' }).click()
    await dialog.getByLabel('Password').fill('never shown again')
    await dialog.getByRole('button', { name: 'Save' }).click()
    await entry.getByText('as harbour').waitFor()
    assert.equal((await row('relay."second".password')).value, true)
    await main(p).getByRole('button', { name: 'Actions for second' }).click()
    await p.getByRole('button', { name: 'Edit', exact: true }).click()
    await dialog.getByLabel('Host').fill('elsewhere.example.com')
    await dialog.getByText('Enter it again').waitFor()
    assert.ok(await dialog.getByRole('button', { name: 'Save' }).isDisabled(), 'a secret is not sent to another place')
    assert.equal((await p.content()).includes('never shown again'), false)
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await p.getByRole('dialog', { name: 'Discard' }).getByRole('button', { name: 'Discard' }).click()

    await main(p).getByRole('button', { name: 'Actions for second' }).click()
    await p.getByRole('button', { name: 'Delete', exact: true }).click()
    await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
    await entry.waitFor({ state: 'detached' })
    assert.equal(await row('relay."second".host'), undefined)
  })

  test('the relay of the file is tried as it is', async (t) => {
    const p = await open(t, '/settings?group=relay')
    await main(p).getByRole('button', { name: 'Test filed' }).click()
    await main(p).locator('.settings-entry', { hasText: 'filed' }).locator('.notice').waitFor()
  })

  test('a destination is added and edited, and a relay that it names cannot be deleted', async (t) => {
    const p = await open(t, '/settings?group=destination', { expect: [/status of 409/] })
    const dialog = p.getByRole('dialog'), entry = main(p).locator('.settings-entry', { hasText: 'google.com' })
    await set({ 'relay.third.kind': 'custom', 'relay.third.host': 'relay.example.com' })
    await p.reload()
    await main(p).getByRole('button', { name: 'Add destination' }).click()
    await dialog.getByLabel('Operator').fill('google.com')
    await dialog.getByLabel('Connections at a time').fill('5')
    await dialog.getByLabel('Pause', { exact: true }).fill('10')
    await dialog.getByLabel('Relay').selectOption('third')
    await dialog.getByRole('button', { name: 'Add destination' }).click()
    await entry.getByText('5 connections · pause 10m · through third').waitFor()
    await main(p).getByLabel('Group').selectOption('Relays')
    await main(p).getByRole('button', { name: 'Actions for third' }).click()
    await p.getByRole('button', { name: 'Delete', exact: true }).click()
    await dialog.getByRole('button', { name: 'Delete' }).click()
    await dialog.getByRole('alert').filter({ hasText: 'in use' }).waitFor()
    await p.keyboard.press('Escape')
    await set({ 'destination."google.com"': null, 'relay.third': null })
  })

  test('a secret is set and never shown', async (t) => {
    const p = await open(t, '/settings?group=registrar')
    const dialog = p.getByRole('dialog'), entry = main(p).locator('.settings-entry', { hasText: 'name.com' })
    const told = []
    p.on('response', async (r) => told.push(await r.text().catch(() => '')))
    await entry.getByText('Not set up').waitFor()
    await entry.getByRole('button', { name: 'Set up name.com' }).click()
    await dialog.getByLabel('Username').fill('harbour')
    await dialog.getByRole('button', { name: 'Set API token' }).click()
    await dialog.getByLabel('API token').fill('a token of the registrar')
    await dialog.getByRole('button', { name: 'Save' }).click()
    await entry.getByText('Set here').waitFor()
    await main(p).getByRole('button', { name: 'Actions for name.com' }).click()
    await p.getByRole('button', { name: 'Edit', exact: true }).click()
    await dialog.getByText('Set', { exact: true }).first().waitFor()
    assert.equal((await p.content()).includes('a token of the registrar') || told.some((text) => text.includes('a token of the registrar')), false)
    await p.keyboard.press('Escape')
    await set({ 'registrar.namecom': null })
  })

  test('who signed in a while ago signs in again, and what they wanted is done', async (t) => {
    const p = await open(t, '/settings?group=limits', { expect: [/status of 401/] }), dialog = p.getByRole('dialog', { name: 'Sign in again' })
    const sent = []
    p.on('request', (r) => { if (r.method() === 'PATCH') sent.push(r.postDataJSON().values) })
    await setting(p, 'limits.domains').getByLabel('Domains').fill('45')
    await wait()
    await p.keyboard.press('Control+s')
    await until('the password has the focus', () => dialog.getByLabel('Password').evaluate((e) => e === document.activeElement))
    await sound(p, 'sign in again', moderate)
    await shot(p, 'sign-in-again')
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await bar(p).getByRole('alert').filter({ hasText: 'Sign in again' }).waitFor()
    assert.equal((await row('limits.domains')).source, 'default')

    await bar(p).getByRole('button', { name: 'Save' }).click()
    await dialog.getByLabel('Password').fill('not this one')
    await dialog.getByRole('button', { name: 'Sign in', exact: true }).click()
    await dialog.getByText('Wrong password. Enter your current password.').waitFor()
    await dialog.getByLabel('Password').fill(operator.password)
    await dialog.getByRole('button', { name: 'Sign in', exact: true }).click()
    await saved(p)
    assert.deepEqual(sent, Array(3).fill({ 'limits.domains': 45 }))
    assert.equal((await row('limits.domains')).value, 45)
    assert.equal(await dialog.count(), 0)
    await setting(p, 'limits.domains').getByLabel('Domains').fill('46') // now nothing is asked
    await p.keyboard.press('Control+s')
    await until('it holds', async () => (await row('limits.domains')).value === 46)
    await set({ 'limits.domains': null })
  })

  test('signing in again takes a passkey too', async (t) => {
    const server = { ...own.server, url: own.server.url.replace('127.0.0.1', 'localhost') } // passkeys belong to a name
    const p = await open(t, '/profile', { server, expect: [/status of 401/] })
    const device = await p.context().newCDPSession(p)
    await device.send('WebAuthn.enable')
    await device.send('WebAuthn.addVirtualAuthenticator', { options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true } })
    await p.getByRole('button', { name: 'Add passkey' }).click()
    await p.getByRole('dialog').getByLabel('Name').fill('Thumb')
    await p.getByRole('dialog').getByLabel('Current password').fill(operator.password)
    await p.getByRole('dialog').getByRole('button', { name: 'Continue' }).click()
    await p.getByText('Passkey added.').waitFor()
    await wait()
    await p.getByRole('navigation').getByRole('link', { name: 'Settings' }).click()
    await setting(p, 'limits.domains').getByLabel('Domains').fill('47')
    await p.keyboard.press('Control+s')
    await p.getByRole('dialog', { name: 'Sign in again' }).getByRole('button', { name: 'Sign in with a passkey' }).click()
    await saved(p)
    assert.equal((await row('limits.domains')).value, 47)
    await set({ 'limits.domains': null })
  })

  test('the navigation has a group for the server, which others have not', async (t) => {
    const p = await open(t, '/settings')
    const server = p.getByRole('navigation', { name: 'Main' }).locator('div', { has: p.getByRole('heading', { name: 'Server', exact: true }) })
    await server.getByRole('link').first().waitFor()
    assert.deepEqual((await server.getByRole('link').allTextContents()).map((s) => s.trim()), ['Settings', 'Host', 'Backups', 'Accounts', 'Requests'])
    const tenant = await account(unique('tenant') + '@people.test', own.server), other = await page(t, { as: tenant })
    for (const path of ['/settings', '/host', '/backups', '/accounts', '/accounts/acc_other']) {
      await other.open(path)
      await other.getByText('Only the operator of this server can do this').waitFor()
    }
    assert.equal(await other.getByRole('heading', { name: 'Server', exact: true }).count(), 0)
    const names = await other.getByRole('navigation', { name: 'Main' }).getByRole('link').allTextContents()
    assert.deepEqual(['Audit log', 'Requests'].filter((name) => !names.some((text) => text.trim() === name)), [])
  })
})

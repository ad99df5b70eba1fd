// Who may sign in, and how: reset links, the second factor, sessions, invitations, tokens.
import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { describe } from 'node:test'
import { account, domain, mailbox, on, page, sound, unique, until } from './rig.mjs'

/** The code that an authenticator app shows, some steps of 30 seconds from now. */
function totp(secret, step = 0) {
  const bits = [...secret.replace(/[\s=]/g, '').toUpperCase()].map((c) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(c).toString(2).padStart(5, '0')).join('')
  const key = Buffer.from(bits.match(/.{8}/g).map((b) => parseInt(b, 2)))
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + step))
  const mac = createHmac('sha1', key).update(counter).digest()
  const at = mac.at(-1) & 15
  return String((mac.readUInt32BE(at) & 0x7fffffff) % 1_000_000).padStart(6, '0')
}

/** Sets a password by the link that is given to who was invited, or sent to who forgot theirs. */
async function choose(p, link, email, password, passkeys) {
  await p.goto(link)
  await sound(p, 'choosing a password')
  const drop = p.getByRole('checkbox', { name: 'Delete my passkeys' })
  if (passkeys !== undefined) await drop.setChecked(passkeys)
  else assert.equal(await drop.count(), 0)
  await p.getByLabel('Password', { exact: true }).fill(password)
  await p.getByLabel('Repeat the password').fill(password)
  await p.getByRole('button', { name: 'Set password' }).click()
  await p.getByRole('link', { name: 'Continue to sign in' }).click()
  await signIn(p, email, password)
  await p.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
}

async function signIn(p, email, password) {
  await p.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor()
  await p.getByLabel('Email').fill(email)
  await p.getByLabel('Password').fill(password)
  await p.getByRole('button', { name: 'Sign in', exact: true }).click()
}

async function signOut(p, small) {
  if (small) await p.getByRole('button', { name: 'Navigation' }).click()
  await p.getByRole('button', { name: 'Sign out', exact: true }).click()
  await p.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor()
}

const inside = (p) => p.getByRole('main').getByRole('heading', { level: 1, name: 'Your profile' }).waitFor()

describe('people', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small)

    walk('a second factor is set up, asked for, replaced by a recovery code and taken off', async (t) => {
      const a = await account(unique('factor') + '@people.test')
      const p = await page(t, { as: a, phone: small, expect: [/status of 40[013]/] })
      await p.open('/profile')
      await p.getByRole('button', { name: 'Set up', exact: true }).click()
      const dialog = p.getByRole('dialog', { name: 'Set up two-factor authentication' })
      await dialog.getByLabel('Current password').fill('not the password')
      await dialog.getByRole('button', { name: 'Continue' }).click()
      await dialog.getByRole('alert').waitFor()
      await dialog.getByLabel('Current password').fill(a.password)
      await dialog.getByRole('button', { name: 'Continue' }).click()
      const secret = (await dialog.locator('.copyable code').textContent()).trim()
      await dialog.getByLabel('6-digit code').fill('000000')
      await dialog.getByRole('button', { name: 'Turn on' }).click()
      await dialog.getByRole('alert').waitFor()
      await dialog.getByLabel('6-digit code').fill(totp(secret))
      await dialog.getByRole('button', { name: 'Turn on' }).click()
      const codes = p.getByRole('dialog', { name: 'Recovery codes' })
      await codes.waitFor()
      await sound(p, 'recovery codes')
      const all = await codes.getByRole('listitem').allTextContents()
      assert.equal(all.length, 10)
      await codes.getByRole('button', { name: 'I saved them' }).click()

      for (const code of [() => totp(secret, 1), () => all[0].trim()]) {
        await signOut(p, small)
        await signIn(p, a.email, a.password)
        await p.getByLabel('Code').fill('123456')
        await p.getByRole('button', { name: 'Sign in', exact: true }).click()
        await p.getByRole('alert').waitFor()
        await p.getByLabel('Code').fill(code())
        await p.getByRole('button', { name: 'Sign in', exact: true }).click()
        await p.getByLabel('Code').waitFor({ state: 'detached' })
        await p.open('/profile')
        await inside(p)
      }
      await p.getByText('9 recovery codes left').waitFor()
      await p.getByRole('button', { name: 'Turn off', exact: true }).click()
      await p.getByRole('dialog').getByLabel('Current password').fill(a.password)
      await p.getByRole('dialog').getByRole('button', { name: 'Turn off' }).click()
      await p.getByRole('button', { name: 'Set up', exact: true }).waitFor()
    })

    walk('somebody is invited, signs in by the link, and is removed', async (t) => {
      const a = await account(unique('team') + '@people.test'), email = unique('guest') + '@people.test'
      const p = await page(t, { as: a, phone: small })
      await p.open('/team')
      await p.getByRole('button', { name: 'Invite', exact: true }).click()
      await p.getByLabel('Email').fill(email)
      await p.getByLabel('First name').fill('Guest')
      await p.getByRole('dialog').getByRole('button', { name: 'Invite' }).click()
      const link = (await p.getByRole('dialog').locator('pre').textContent()).trim()
      await sound(p, 'the invitation')
      await p.keyboard.press('Escape')
      await p.getByText('invited', { exact: true }).waitFor()

      const g = await page(t, { as: null, phone: small, server: a.server, expect: [/status of 401/] })
      await choose(g, link, email, 'a guest at the harbour')
      await g.open('/team')
      await g.getByText('(you)').waitFor()
      assert.equal(await g.getByRole('button', { name: 'Invite' }).count(), 0)

      await p.getByText('invited', { exact: true }).waitFor({ state: 'detached' })
      await p.getByRole('button', { name: 'Actions for ' + email }).click()
      await p.getByRole('button', { name: 'Edit', exact: true }).click()
      await p.getByRole('dialog').getByLabel('Role').selectOption('admin')
      await sound(p, 'changing somebody')
      await p.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
      await p.getByText('admin', { exact: true }).waitFor()
      await sound(p, 'the team')
      await p.getByRole('button', { name: 'Actions for ' + email }).click()
      await p.getByRole('button', { name: 'Remove', exact: true }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
      await p.getByText(email, { exact: true }).waitFor({ state: 'detached' })
      await g.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor()
    })

    walk('whoever signs in with a password that somebody else set chooses an own one first', async (t) => {
      const a = await account(unique('given') + '@people.test'), email = unique('given') + '@people.test'
      await a.api('POST', '/v1/account/users/invite', { email, role: 'admin', password: 'of somebody else' })
      const p = await page(t, { as: null, phone: small, server: a.server, expect: [/status of 40[013]/] })
      const asks = () => p.getByRole('heading', { level: 1, name: 'Choose your own password' }).waitFor()
      await p.open('/tokens')
      await signIn(p, email, 'of somebody else')
      await asks()
      await sound(p, 'a password of one’s own')
      for (const path of ['/tokens', '/', '/inbox', '/profile', '/sign-in']) {
        await p.open(path)
        await asks()
        assert.equal(await p.getByRole('navigation').count(), 0, 'nothing else is shown at ' + path)
      }
      await p.open('/tokens')
      const now = p.getByLabel('Current password'), next = p.getByLabel('New password'), change = p.getByRole('button', { name: 'Change password' })
      await now.waitFor()
      assert.ok(await now.evaluate((e) => e === document.activeElement), 'one can type at once')
      await now.fill('not that one')
      await next.fill('a sentence of my own')
      await change.click()
      await p.getByRole('alert').waitFor()
      await now.fill('of somebody else')
      await next.fill('of somebody else')
      await p.getByText('This is the password you already have').waitFor()
      assert.ok(await change.isDisabled(), 'the same one is no choice')
      await next.fill('seven s')
      await p.getByText('Use at least 8 characters.').waitFor()
      await next.fill('a sentence of my own')
      await change.click()
      await p.getByRole('heading', { level: 1, name: 'API tokens' }).waitFor()
      assert.equal(new URL(p.url()).pathname, '/tokens', 'it leads on to where one wanted to go')
      await signOut(p, small)
      await signIn(p, email, 'a sentence of my own')
      await p.getByRole('heading', { level: 1, name: 'API tokens' }).waitFor()
    })

    walk('a forgotten password is set anew by a link that comes by mail', async (t) => {
      const name = unique('reset') + '.test'
      const a = await account('me@' + name)
      const box = await mailbox(await domain(name, a), 'me', a)
      const p = await page(t, { as: null, phone: small, expect: [/status of 401/] })
      await p.open('/forgot')
      await p.getByLabel('Email').fill(a.email)
      await p.getByRole('button', { name: 'Send link' }).click()
      await p.getByText('we sent a link to it').waitFor()
      await sound(p, 'the link is on its way')
      const inbox = `/v1/email-users/${box.user_id}/inbox`
      const letter = await until('the link arrives', async () => (await a.api('GET', inbox)).data[0])
      const { text } = await a.api('GET', `${inbox}/${letter.uid}`)
      await choose(p, /http\S+\/reset\?token=\S+/.exec(text)[0], a.email, 'a new sentence to remember')
      await signOut(p, small)
      await signIn(p, a.email, a.password)
      await p.getByRole('alert').waitFor()
      await signIn(p, a.email, 'a new sentence to remember')
      await p.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
    })

    walk('a reset asks whether passkeys stay', async (t) => {
      const name = unique('keys') + '.test'
      const a = await account('me@' + name)
      const box = await mailbox(await domain(name, a), 'me', a), inbox = `/v1/email-users/${box.user_id}/inbox`
      a.server = { ...a.server, url: a.server.url.replace('127.0.0.1', 'localhost') }
      const p = await page(t, { as: a, server: a.server, phone: small, expect: [/status of 401/, /^request to http:..127/] })
      const device = await p.context().newCDPSession(p)
      await device.send('WebAuthn.enable')
      await device.send('WebAuthn.addVirtualAuthenticator', { options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true } })
      await p.open('/profile')
      await p.getByRole('button', { name: 'Add passkey' }).click()
      await p.getByRole('dialog').getByLabel('Name').fill('My thumb')
      await p.getByRole('dialog').getByLabel('Current password').fill(a.password)
      await p.getByRole('dialog').getByRole('button', { name: 'Continue' }).click()
      await p.getByText('My thumb', { exact: true }).waitFor()
      await signOut(p, small)
      for (const drop of [false, true]) {
        const before = (await a.api('GET', inbox)).data.length
        await p.open('/forgot')
        await p.getByLabel('Email').fill(a.email)
        await p.getByRole('button', { name: 'Send link' }).click()
        const letter = await until('the link arrives', async () => { const { data } = await a.api('GET', inbox); return data.length > before && data[0] })
        const { text } = await a.api('GET', `${inbox}/${letter.uid}`)
        await choose(p, /http\S+\/reset\?token=\S+/.exec(text)[0], a.email, 'a new sentence to remember ' + drop, drop)
        await p.goto(new URL('/profile', p.url()).href)
        await inside(p)
        assert.equal(await p.getByText('My thumb', { exact: true }).count(), drop ? 0 : 1)
        await signOut(p, small)
      }
    })

    walk('sessions are listed, ended one by one and all at once', async (t) => {
      const a = await account(unique('sessions') + '@people.test'), again = { ...a }
      const p = await page(t, { as: a, phone: small, expect: [/status of 401/] }), other = await page(t, { as: again, phone: small, expect: [/status of 401/] })
      await other.open('/profile')
      await inside(other)
      await p.open('/profile')
      await p.getByText('this device').waitFor()
      await sound(p, 'sessions')
      await p.getByRole('button', { name: /^End session:/ }).first().click()
      await other.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor()
      await signIn(other, a.email, a.password)
      await inside(other)
      await p.getByRole('button', { name: 'Sign out everywhere' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Sign out everywhere' }).click()
      await p.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor()
      await other.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor()
    })

    walk('a token is made, shown once, works, and is deleted', async (t) => {
      const a = await account(unique('tokens') + '@people.test')
      const p = await page(t, { as: a, phone: small })
      await p.open('/tokens')
      await p.getByRole('button', { name: 'Create token' }).click()
      await p.getByLabel('Name').fill('Night script')
      await p.getByRole('checkbox', { name: /^Write/ }).uncheck()
      await sound(p, 'making a token')
      await p.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
      const token = (await p.getByRole('dialog').locator('pre').textContent()).trim()
      const ask = (method, path) => fetch(a.server.url + path, { method, headers: { Authorization: 'Bearer ' + token } })
      assert.equal((await ask('GET', '/v1/account')).status, 200)
      assert.equal((await ask('POST', '/v1/domains/connect')).status, 403)
      await p.keyboard.press('Escape')
      await p.getByRole('cell', { name: /^Night script/ }).waitFor()
      await sound(p, 'tokens')
      assert.equal(await p.getByText(token).count(), 0, 'it is not shown again')
      await p.getByRole('button', { name: 'Delete Night script' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
      await p.getByRole('cell', { name: /^Night script/ }).waitFor({ state: 'detached' })
      assert.equal((await ask('GET', '/v1/account')).status, 401)
    })

    walk('an assistant is connected, and the account is changed', async (t) => {
      const a = await account(unique('account') + '@people.test')
      const p = await page(t, { as: a, phone: small })
      await p.open('/connect')
      await p.getByRole('button', { name: 'Create token' }).click()
      await p.getByText('Copy the token now').waitFor()
      await sound(p, 'an assistant')
      const token = (await p.getByRole('region', { name: 'token', exact: true }).textContent()).trim()
      assert.match(await p.getByRole('region', { name: 'Configuration' }).textContent(), new RegExp(`Bearer ${token}`))
      const hello = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'walk', version: '1' } } }
      const answer = await fetch(a.server.url + '/mcp', { method: 'POST', headers: { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' }, body: JSON.stringify(hello) })
      assert.match(await answer.text(), /"serverInfo"/, 'the token works')
      await p.open('/account')
      await p.getByLabel('Name').fill('Night shift')
      await p.getByRole('button', { name: 'Rename', exact: true }).click()
      const is = (what, look) => until(what, async () => look(await a.api('GET', '/v1/account')))
      await is('it has a new name', ({ name }) => name === 'Night shift')
      const universal = p.getByLabel('Fetch external mailboxes in the background'), before = await universal.isChecked()
      await universal.setChecked(!before)
      await is('the universal inbox is turned', ({ universal_inbox_enabled: on }) => on === !before)
      await p.getByLabel('Phrases, one per line').fill('kitten parade')
      await p.locator('.card', { has: p.getByRole('heading', { name: 'Warm-up mail' }) }).getByRole('button', { name: 'Save' }).click()
      await is('the phrase is kept', ({ warmup_phrases: phrases }) => phrases.join() === 'kitten parade')
      await p.getByLabel('Header fields, one per line').fill('X-Warm\nX-Id: a:b')
      await p.getByLabel('Folder', { exact: true }).fill('Warm-up')
      await p.locator('.card', { has: p.getByRole('heading', { name: 'Warm-up mail' }) }).getByRole('button', { name: 'Save' }).click()
      await is('the fields and the folder are kept', ({ warmup_headers: headers, warmup_folder: folder, warmup_days: days }) =>
        JSON.stringify(headers) === '[{"name":"X-Warm","value":null},{"name":"X-Id","value":"a:b"}]' && folder === 'Warm-up' && days === 7)
      await sound(p, 'the account')
    })

    walk('one changes one’s name, address, password and theme', async (t) => {
      const a = await account(unique('profile') + '@people.test'), email = unique('moved') + '@people.test', password = 'quite another sentence'
      const p = await page(t, { as: a, phone: small, expect: [/status of 401/] })
      await p.open('/profile')
      const card = (name) => p.locator('.card', { has: p.getByRole('heading', { name, exact: true }) })
      await card('Name and email').getByLabel('Name').fill('Wanda')
      await card('Name and email').getByLabel('Email').fill(email)
      await card('Name and email').getByLabel('Current password').fill(a.password)
      await card('Name and email').getByRole('button', { name: 'Save' }).click()
      await p.getByRole('status').getByText('Saved.').waitFor()
      await card('Password').getByLabel('Current password').fill(a.password)
      await card('Password').getByLabel('New password').fill(password)
      await card('Password').getByRole('button', { name: 'Change password' }).click()
      await p.getByRole('status').getByText('Password changed.').waitFor()
      await sound(p, 'the profile')
      if (small) await p.getByRole('button', { name: 'Navigation' }).click()
      await p.getByRole('button', { name: 'Use dark theme' }).click()
      await p.waitForFunction(() => document.documentElement.dataset.theme === 'dark')
      await sound(p, 'the profile in the dark')
      await p.getByRole('button', { name: 'Sign out', exact: true }).click()
      await signIn(p, email, password)
      await inside(p)
      await p.waitForFunction(() => document.documentElement.dataset.theme === 'dark')
      if (small) await p.getByRole('button', { name: 'Navigation' }).click()
      await p.getByRole('link', { name: /Wanda/ }).waitFor()
    })

    walk('a passkey is added, signs in, and is deleted', async (t) => {
      const a = await account(unique('passkey') + '@people.test')
      a.server = { ...a.server, url: a.server.url.replace('127.0.0.1', 'localhost') } // passkeys belong to a name
      const p = await page(t, { as: a, server: a.server, phone: small, expect: [/status of 401/] })
      const device = await p.context().newCDPSession(p)
      await device.send('WebAuthn.enable')
      await device.send('WebAuthn.addVirtualAuthenticator', { options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true } })
      await p.open('/profile')
      await p.getByRole('button', { name: 'Add passkey' }).click()
      await p.getByRole('dialog').getByLabel('Name').fill('My thumb')
      await p.getByRole('dialog').getByLabel('Current password').fill(a.password)
      await p.getByRole('dialog').getByRole('button', { name: 'Continue' }).click()
      await p.getByText('My thumb', { exact: true }).waitFor()
      await sound(p, 'a passkey')
      await signOut(p, small)
      await p.getByRole('button', { name: 'Sign in with a passkey' }).click()
      await inside(p)
      await p.getByRole('button', { name: 'Delete passkey My thumb' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
      await p.getByText('My thumb', { exact: true }).waitFor({ state: 'detached' })
    })
  }
})

// A program asks to act for somebody, who is led through the sign-in to the question and back to the program.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import test from 'node:test'
import { account, here, page, shot, sound, unique } from './rig.mjs'

const form = (path, fields) => fetch(here.url + path, { method: 'POST', body: new URLSearchParams(fields) }).then(async (r) => ({ status: r.status, ...await r.json() }))

/** A client that has registered, and its request; the answer comes to a page of the dashboard's own, which is on this machine. */
async function client(name) {
  const redirect_uri = here.url + '/account', verifier = randomBytes(32).toString('base64url')
  const made = await fetch(here.url + '/oauth/register', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ client_name: name, redirect_uris: [redirect_uri] }) })
  const { client_id } = await made.json()
  const query = new URLSearchParams({
    response_type: 'code', client_id, redirect_uri, state: 'kept', resource: here.url + '/mcp',
    code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
  })
  const exchange = (code) => form('/oauth/token', { grant_type: 'authorization_code', code, client_id, redirect_uri, code_verifier: verifier, resource: here.url + '/mcp' })
  return { path: '/oauth/authorize?' + query, exchange }
}

for (const small of [false, true]) {
  test('somebody who signs in allows a program to act ' + (small ? 'on a phone' : ''), async (t) => {
    const a = await account(unique('consent') + '@people.test'), c = await client('Night helper')
    const p = await page(t, { as: null, phone: small })
    await p.open(c.path)
    await p.getByLabel('Email').fill(a.email)
    await p.getByLabel('Password').fill(a.password)
    await p.getByRole('button', { name: 'Sign in', exact: true }).click()
    await p.getByRole('heading', { name: 'Night helper' }).waitFor()
    assert.equal(new URL(p.url()).pathname, '/oauth/authorize')
    await p.getByText('Any app can use this name.').waitFor()
    await sound(p, 'the question')
    await shot(p, 'consent' + (small ? '-phone' : ''))
    assert.equal(await p.getByLabel('May send').inputValue(), 'approval')
    assert.ok(await p.getByLabel('Be careful after reading strangers’ mail').isChecked())
    await p.getByLabel('May send').selectOption('reply_only')
    await p.getByRole('button', { name: 'Allow', exact: true }).click()
    await p.waitForURL(/\/account\?code=/)
    const back = new URL(p.url()).searchParams
    assert.equal(back.get('state'), 'kept')
    assert.equal(back.get('iss'), here.url)
    const given = await c.exchange(back.get('code'))
    assert.equal(given.scope, 'read write')
    const [row] = (await a.api('GET', '/v1/auth/tokens')).data
    assert.deepEqual([row.kind, row.client_name, row.policy.send, row.policy.taint], ['oauth', 'Night helper', 'reply_only', true])

    await p.open('/tokens')
    await p.getByRole('cell', { name: /^Night helper signed-in app/ }).waitFor()
    await sound(p, 'tokens with one of a program')
    await p.getByRole('button', { name: 'Delete Night helper' }).click()
    await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
    await p.getByRole('cell', { name: /^Night helper/ }).waitFor({ state: 'detached' })
    const answer = await fetch(here.url + '/mcp', { method: 'POST', headers: { Authorization: 'Bearer ' + given.access_token } })
    assert.equal(answer.status, 401)
    assert.match(answer.headers.get('www-authenticate'), /resource_metadata=/)
  })

  test('somebody who is signed in denies it, or gives less ' + (small ? 'on a phone' : ''), async (t) => {
    const a = await account(unique('consent') + '@people.test')
    const p = await page(t, { as: a, phone: small })
    const no = await client('Night helper')
    await p.open(no.path)
    await p.getByRole('button', { name: 'Deny' }).click()
    await p.waitForURL(/\/account\?error=access_denied/)
    assert.deepEqual((await a.api('GET', '/v1/auth/tokens')).data.map((t) => t.kind), ['api'])

    const less = await client('Reader')
    await p.open(less.path)
    await p.getByLabel(/^Write/).uncheck()
    assert.equal(await p.getByLabel('May send').count(), 0)
    await p.getByRole('radio', { name: 'Only some mailboxes' }).click()
    assert.ok(await p.getByRole('button', { name: 'Allow', exact: true }).isDisabled(), 'some mailboxes are at least one')
    await p.getByRole('radio', { name: 'All mailboxes' }).click()
    await p.getByRole('button', { name: 'Allow', exact: true }).click()
    await p.waitForURL(/\/account\?code=/)
    assert.equal((await less.exchange(new URL(p.url()).searchParams.get('code'))).scope, 'read')
  })
}

test('a request that is wrong leads nowhere', async (t) => {
  const p = await page(t, { expect: [/status of 400/] })
  const c = await client('Night helper')
  await p.open(c.path.replace('%2Faccount', '%2Felsewhere'))
  await p.getByRole('heading', { name: 'Sign-in not possible' }).waitFor()
  await sound(p, 'a request that is wrong')
})

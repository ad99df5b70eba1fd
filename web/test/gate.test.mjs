// Signing in and out.
import assert from 'node:assert/strict'
import test from 'node:test'
import { owner, page, shot } from './rig.mjs'

for (const small of [false, true]) {
  test(`signs in and out ${small ? 'on a phone' : ''}`, async (t) => {
    const p = await page(t, { phone: small, as: null, expect: [/status of 401/] })
    await p.open('/jobs')
    await p.getByLabel('Email').fill(owner.email)
    await p.getByLabel('Password').fill('not the password at all')
    await p.getByRole('button', { name: 'Sign in', exact: true }).click()
    await p.getByRole('alert').waitFor()
    await shot(p, 'sign-in' + (small ? '-phone' : ''))
    await p.getByLabel('Password').fill(owner.password)
    await p.getByRole('button', { name: 'Sign in', exact: true }).click()
    await p.getByRole('main').getByRole('heading', { level: 1, name: 'Sign in' }).waitFor({ state: 'detached' })
    assert.equal(new URL(p.url()).pathname, '/jobs', 'it leads to where one wanted to go')
    if (small) await p.getByRole('button', { name: 'Navigation' }).click()
    await p.getByRole('button', { name: 'Sign out', exact: true }).click()
    await p.getByLabel('Email').waitFor()
    await p.open('/jobs')
    await p.getByLabel('Email').waitFor()
  })
}

test('whoever is signed in is led on from the gate, and never to elsewhere', async (t) => {
  const p = await page(t)
  await p.open('/sign-in?next=/%5Celsewhere.test')
  await p.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
  assert.equal(new URL(p.url()).pathname, '/')
})

test('a page is shown whose part of the script comes between its first drawing and what follows that', async (t) => {
  const p = await page(t)
  await p.addInitScript(() => { // what follows a drawing comes after the part, which is fetched ahead a second after the sign-in
    const real = globalThis.setTimeout
    globalThis.requestAnimationFrame = (f) => real(f, 3000)
    globalThis.setTimeout = (f, ms = 0, ...args) => real(f, ms > 0 && ms <= 100 ? 3000 : ms, ...args)
  })
  await p.open('/tokens')
  await p.getByRole('heading', { level: 1, name: 'API tokens' }).waitFor()
})

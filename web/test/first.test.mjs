// From the link that the first start prints to the first message, live on the page.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deliver, fresh, message, page, pocket, shot, sound, unique } from './rig.mjs'

for (const small of [false, true]) {
  test('first run: the link, a domain, a mailbox, the first message' + (small ? ' on a phone' : ''), async (t) => {
    const server = small ? pocket : fresh
    const p = await page(t, { as: null, phone: small, server, expect: [/status of 40[04]/] })
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
    await shot(p, 'first' + (small ? '-phone' : ''))
    await sound(p)

    const name = unique('first') + '.test'
    await p.getByRole('main').getByRole('link', { name: 'Add domain' }).click()
    await p.getByLabel('Domain').fill(name)
    await p.getByRole('button', { name: 'Next', exact: true }).click()
    await p.getByText('is registered at').waitFor()
    await p.getByRole('button', { name: 'Add domain' }).click()
    await p.getByRole('heading', { name: 'Ready. Create the first mailbox' }).waitFor() // the page's own look finds the nameservers, and setup continues without a call
    if (small) await p.getByRole('button', { name: 'Navigation' }).click()
    await p.getByRole('navigation', { name: 'Main', exact: true }).getByRole('link', { name: 'Overview' }).click()
    await p.getByLabel('Username').fill('hello')
    await p.getByRole('button', { name: 'Create mailbox' }).click()
    await p.getByText('Waiting for mail').waitFor()
    await p.getByText(`swaks --server 127.0.0.1:${server.smtp.split(':').at(-1)} `).waitFor()
    await p.getByText('sends real mail to external recipients through a relay').waitFor()
    await deliver(`hello@${name}`, message({ to: `hello@${name}`, subject: 'Good morning' }), 'stranger@elsewhere.test', server)
    const arrived = p.getByRole('link', { name: /Arrived.*Good morning/ })
    await arrived.waitFor()
    await sound(p)
    await shot(p, 'first-message' + (small ? '-phone' : ''))
    await arrived.click()
    await p.getByRole('heading', { name: 'Good morning' }).waitFor()

    await p.goto(server.welcome)
    await p.getByRole('heading', { name: 'Link expired or already used' }).waitFor()
    assert.equal(await p.getByLabel('Password').count(), 0, 'the link opens once')
  })
}

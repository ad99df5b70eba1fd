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
    await p.getByLabel('E-mail').fill('ada@people.test')
    await p.getByLabel('Your name').fill('Ada')
    await p.getByLabel('Password').fill('short')
    await p.getByRole('button', { name: 'Start' }).click()
    await p.getByRole('alert').waitFor()
    await p.getByText('It needs at least 6 characters.').waitFor()
    await p.getByLabel('Password').fill('password1')
    await p.getByText('Others try this one first.').waitFor()
    await p.getByLabel('Password').fill('seven ships sail at dawn')
    await p.getByRole('button', { name: 'Start' }).click()
    await p.getByRole('heading', { name: 'From nothing to your first message' }).waitFor()
    await shot(p, 'first' + (small ? '-phone' : ''))
    await sound(p)

    const name = unique('first') + '.test'
    await p.getByRole('main').getByRole('link', { name: 'Add a domain' }).click()
    await p.getByLabel('Domain').fill(name)
    await p.getByRole('button', { name: 'Go on' }).click()
    await p.getByText('is registered at').waitFor()
    await p.getByRole('button', { name: 'Add the domain' }).click()
    await p.getByRole('heading', { name: 'Set these nameservers at your registrar' }).waitFor()
    await p.getByRole('button', { name: /check now|Continue|Activate/ }).click()
    await p.getByRole('heading', { name: 'Ready. Now make its first mailbox' }).waitFor()
    if (small) await p.getByRole('button', { name: 'Navigation' }).click()
    await p.getByRole('navigation', { name: 'Main', exact: true }).getByRole('link', { name: 'Overview' }).click()
    await p.getByLabel('Name before the @').fill('hello')
    await p.getByRole('button', { name: 'Make the mailbox' }).click()
    await p.getByText('Waiting for mail').waitFor()
    await p.getByText(`swaks --server 127.0.0.1:${server.smtp.split(':').at(-1)} `).waitFor()
    await p.getByText('mail to other people is really sent, through a relay').waitFor()
    await deliver(`hello@${name}`, message({ to: `hello@${name}`, subject: 'Good morning' }), 'stranger@elsewhere.test', server)
    const arrived = p.getByRole('link', { name: /Arrived.*Good morning/ })
    await arrived.waitFor()
    await sound(p)
    await shot(p, 'first-message' + (small ? '-phone' : ''))
    await arrived.click()
    await p.getByRole('heading', { name: 'Good morning' }).waitFor()

    await p.goto(server.welcome)
    await p.getByRole('heading', { name: 'This link leads nowhere' }).waitFor()
    assert.equal(await p.getByLabel('Password').count(), 0, 'the link opens once')
  })
}

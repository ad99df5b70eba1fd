// From the link that the first start prints to the first message, live on the page.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deliver, fresh, message, page, shot, sound, unique } from './rig.mjs'

test('first run: the link, a domain, a mailbox, the first message', async (t) => {
  const p = await page(t, { as: null, server: fresh, expect: [/status of 40[04]/] })
  await p.route('**/v1/domains/check-provider', (route) => route.fulfill({ json: { domain: route.request().postDataJSON().domain, registrar: 'Walk Registrar', nameservers: ['ns1.walk.example'], is_edge: false } }))
  await p.goto(fresh.welcome)
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
  await shot(p, 'first')
  await sound(p)

  const name = unique('first') + '.test'
  await p.getByRole('main').getByRole('link', { name: 'Add a domain' }).click()
  await p.getByLabel('Domain').fill(name)
  await p.getByRole('button', { name: 'Go on' }).click()
  await p.getByRole('button', { name: 'Add the domain' }).click()
  await p.getByRole('heading', { name: 'Set these nameservers at your registrar' }).waitFor()
  await p.getByRole('button', { name: 'I have set them, check now' }).click()
  await p.getByRole('heading', { name: 'Ready. Now make its first mailbox' }).waitFor()
  await p.getByRole('link', { name: 'Overview' }).first().click()
  await p.getByLabel('Name before the @').fill('hello')
  await p.getByRole('button', { name: 'Make the mailbox' }).click()
  await p.getByText('Waiting for mail').waitFor()
  await p.getByText(`swaks --server 127.0.0.1:${fresh.smtp.split(':').at(-1)} `).waitFor()
  await p.getByText('mail to other people is really sent, through a relay').waitFor()
  await deliver(`hello@${name}`, message({ to: `hello@${name}`, subject: 'Good morning' }), 'stranger@elsewhere.test', fresh)
  const arrived = p.getByRole('link', { name: /Arrived.*Good morning/ })
  await arrived.waitFor()
  await shot(p, 'first-message')
  await arrived.click()
  await p.getByRole('heading', { name: 'Good morning' }).waitFor()

  await p.goto(fresh.welcome)
  await p.getByRole('heading', { name: 'This link leads nowhere' }).waitFor()
  assert.equal(await p.getByLabel('Password').count(), 0, 'the link opens once')
})

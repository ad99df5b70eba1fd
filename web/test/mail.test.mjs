// Mailboxes made one by one and in bulk, the sending log, and webhooks.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { before, describe, test } from 'node:test'
import { account, domain, fresh, mailbox, page, sound, unique, until } from './rig.mjs'
import { receiver } from './harbour.mjs'

let a, d

before(async () => {
  a = await account(unique('mail') + '@people.test', fresh)
  d = await domain(unique('mail') + '.test', a)
})

const main = (p) => p.getByRole('main')
const toast = (p, text) => p.getByRole('status').getByText(text).first().waitFor()

describe('mail', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const at = small ? ' on a phone' : ''

    test('a mailbox is made, suspended and deleted' + at, async (t) => {
      const p = await page(t, { as: a, phone: small }), name = unique('anna'), email = `${name}@${d.name}`
      await p.open('/mailboxes')
      await p.getByRole('button', { name: 'Make a mailbox' }).click()
      await p.getByLabel('Name before the @').fill(name)
      await p.getByRole('button', { name: 'Make it' }).click()
      const password = (await p.getByRole('dialog').locator('pre').textContent()).trim()
      assert.ok(password.length >= 12)
      await sound(p, 'the password')
      await p.getByRole('button', { name: 'Open it' }).click()
      await p.getByRole('heading', { level: 1, name: new RegExp(email) }).waitFor()
      assert.equal(await p.getByText(password).count(), 0, 'it is shown once')
      for (const [does, then] of [['Suspend', 'is suspended'], ['Activate', 'is active again']]) {
        await p.getByRole('button', { name: 'More actions' }).click()
        await p.getByRole('button', { name: does }).click()
        await toast(p, then)
      }
      await p.getByRole('button', { name: 'More actions' }).click()
      await p.getByRole('button', { name: 'Delete' }).click()
      await p.getByRole('dialog').getByRole('textbox').fill(email)
      await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
      await until('it is gone', async () => !(await a.api('GET', '/v1/email-users?q=' + email)).data.some((u) => u.status !== 'deleting'))
    })

    test('many are made from a pasted list, with a look at them first' + at, async (t) => {
      const p = await page(t, { as: a, phone: small }), one = unique('csv'), two = unique('csv')
      await p.open('/mailboxes/bulk')
      await p.getByLabel('Paste it here').fill(`username,name\n${one},Anna Rossi\n${two},"Okri, Ben"\nnot right,Nobody`)
      const preview = p.getByRole('region', { name: 'Preview' })
      await preview.getByText('Okri, Ben').waitFor()
      await preview.getByText('is no user name').waitFor()
      await sound(p, 'the preview')
      await p.getByRole('button', { name: 'Leave out the 1 that cannot be' }).click()
      await p.getByRole('button', { name: 'Make 2 mailboxes' }).click()
      await p.getByText('2 mailboxes made').waitFor()
      const [file] = await Promise.all([p.waitForEvent('download'), p.getByRole('link', { name: 'Download with passwords' }).click()])
      assert.match(await readFile(await file.path(), 'utf8'), new RegExp(`${one}@${d.name},Anna Rossi,\\S{12,},`))
    })

    test('what became of a message is told, with every attempt' + at, async (t) => {
      const box = await mailbox(d, unique('sender'), a), p = await page(t, { as: a, phone: small })
      const send = (to, subject) => a.api('POST', `/v1/email-users/${box.user_id}/inbox/send`, { to: [to], subject, text: 'Hello.' })
      await p.open('/sent?mailbox=' + encodeURIComponent(box.email))
      await p.getByRole('heading', { name: 'No message fits' }).waitFor()
      const far = unique('far') + '.test' // an address that bounced once is written to no more
      await send('gone@' + far, 'To nobody')
      await send('later@' + far, 'Not now')
      const row = (to) => p.getByRole('list', { name: 'Sent messages' }).getByRole('link').filter({ hasText: to })
      await row('gone@' + far).getByText('bounced').waitFor()
      await row('gone@' + far).click()
      await main(p).getByText('550 5.1.1 no such user').first().waitFor()
      assert.equal(await p.getByRole('button', { name: 'Try now' }).count(), 0)
      await p.goBack()
      await row('later@' + far).getByText('deferred').waitFor()
      await row('later@' + far).click()
      await main(p).getByText('451 4.3.0 not now').first().waitFor()
      await p.getByRole('heading', { name: '1 attempt', exact: true }).waitFor()
      await p.getByRole('button', { name: 'Try now' }).click()
      await p.getByRole('heading', { name: '2 attempts' }).waitFor()
      await p.getByRole('button', { name: 'Take it back' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Take it back' }).click()
      await p.getByText('It was taken back before it was sent.').waitFor()

      await p.open('/sent/suppressions')
      const email = unique('never') + '@far.test'
      await p.getByRole('button', { name: 'Add an address' }).click()
      await p.getByRole('dialog').getByLabel('E-mail').fill(email)
      await p.getByRole('button', { name: 'Add it' }).click()
      await p.getByRole('list', { name: 'Suppressed addresses' }).getByText(email).waitFor()
      await p.getByRole('button', { name: `Take ${email} off the list` }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Allow it' }).click()
      await p.getByRole('list', { name: 'Suppressed addresses' }).getByText(email).waitFor({ state: 'detached' })
    })

    test('a webhook is made, tested, given a new secret, and its failures are sent again' + at, async (t) => {
      const calls = await receiver(), p = await page(t, { as: a, phone: small })
      await p.open('/webhooks')
      await main(p).getByRole('button', { name: 'Add a webhook' }).first().click()
      await p.getByLabel('Address').fill(calls.url + '/bad')
      await p.getByRole('button', { name: 'Add it' }).click()
      const secret = (await p.getByRole('dialog').locator('pre').textContent()).trim()
      assert.match(secret, /^whsec_/)
      await p.getByRole('button', { name: 'Go on' }).click()
      await p.getByRole('button', { name: 'Show', exact: true }).click()
      await p.getByText(secret).waitFor()
      await p.getByRole('button', { name: 'Send a test' }).click()
      await p.getByRole('heading', { name: 'Attempts' }).scrollIntoViewIfNeeded()
      await p.evaluate(() => scrollTo(0, document.scrollingElement.scrollHeight))
      const attempts = p.getByRole('list', { name: 'Attempts' })
      await attempts.getByText('failed', { exact: true }).first().waitFor()
      await attempts.getByRole('button').filter({ hasText: 'failed' }).first().click() // the next one may wait already
      await p.getByRole('dialog').getByText('The database is asleep.').waitFor()
      await p.getByRole('dialog').getByText('answered 500').waitFor()
      await sound(p, 'an attempt')
      const before = calls.told.length
      await p.getByRole('button', { name: 'Send it again' }).click()
      await until('it is called again', () => calls.told.length > before)
      for (const language of ['Python', 'Go', 'Shell', 'JavaScript']) {
        await p.getByRole('button', { name: language, exact: true }).click()
        await p.getByRole('region', { name: 'Example in ' + language }).getByText('MAILSTEAD_SECRET').first().waitFor()
      }
      await p.getByRole('button', { name: 'Make a new secret' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Make it' }).click()
      const next = p.getByRole('dialog', { name: 'The new secret' }).locator('pre')
      assert.notEqual((await next.textContent()).trim(), secret)
      await p.keyboard.press('Escape')
      await p.getByRole('button', { name: 'More actions' }).click()
      await p.getByRole('button', { name: 'Delete' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
      await toast(p, 'The webhook was deleted.')
    })
  }

  test('many are made from generated names and from a template, and exported', async (t) => {
    const p = await page(t, { as: a })
    await p.open('/mailboxes/templates')
    await p.getByRole('button', { name: 'Make a template' }).click()
    await p.getByLabel('Name', { exact: true }).fill('Shop')
    const names = [unique('info'), unique('sales')]
    await p.getByLabel('User names').fill(names.join('\n'))
    await p.getByRole('button', { name: 'Save' }).click()
    await p.getByRole('link', { name: 'Use it' }).click()
    await p.getByRole('button', { name: 'Make 2 mailboxes' }).click()
    await p.getByText('2 mailboxes made').waitFor()
    await p.open('/mailboxes/bulk')
    await p.getByRole('button', { name: 'From generated names' }).click()
    await p.getByLabel('How many').fill('3')
    await p.getByRole('button', { name: 'Make names' }).click()
    await p.getByRole('button', { name: 'Make 3 mailboxes' }).click()
    await p.getByText('3 mailboxes made').waitFor()
    await p.open('/mailboxes')
    await p.getByRole('button', { name: 'Export' }).click()
    await p.getByRole('button', { name: 'Make the file' }).click()
    const [file] = await Promise.all([p.waitForEvent('download'), p.getByRole('link', { name: 'Download' }).click()])
    assert.ok((await readFile(await file.path(), 'utf8')).includes(`${names[0]}@${d.name}`))
  })

  test('jobs go on before one’s eyes', async (t) => {
    const p = await page(t, { as: a }), name = unique('job') + '.test'
    await p.open('/jobs?domain=' + name)
    await p.getByRole('heading', { name: 'No job fits' }).waitFor()
    await a.api('POST', '/v1/domains/setup', { domain: name, users: [{ username: 'one' }] })
    const row = p.getByRole('list', { name: 'Jobs' }).getByRole('link').filter({ hasText: name }).first()
    await row.waitFor()
    await a.api('POST', '/v1/domains/check-ns', { domains: [name] })
    await p.getByRole('list', { name: 'Jobs' }).getByText('done').first().waitFor()
    await row.click()
    await p.getByRole('heading', { name: 'Steps' }).waitFor()
  })
})

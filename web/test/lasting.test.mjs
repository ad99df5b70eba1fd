// What outlasts a reload, a dialog and a refusal: the files of a draft, undo, and a read that came too often.
import assert from 'node:assert/strict'
import { before, test } from 'node:test'
import { account, deliver, domain, kept, mailbox, message, page, sound, unique, until } from './rig.mjs'

let a, box

before(async () => {
  a = await account(unique('lasting') + '@people.test')
  box = await mailbox(await domain(unique('lasting') + '.test', a), 'writer', a)
})

test('the files of a draft outlive a reload, but neither its sending nor signing out', async (t) => {
  const p = await page(t, { as: null })
  await p.open('/')
  await p.getByLabel('Email').fill(a.email)
  await p.getByLabel('Password').fill(a.password)
  await p.getByRole('button', { name: 'Sign in', exact: true }).click()
  await p.getByRole('button', { name: 'Sign out', exact: true }).waitFor()
  const attach = (name, text) => p.locator('input[type=file]').setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from(text) })
  const write = async () => {
    await p.open(`/compose?from=${box.user_id}&to=${encodeURIComponent(box.email)}&subject=Plans&text=Here`)
    await p.getByRole('button', { name: 'From: ' + box.email }).waitFor()
  }
  await write()
  await attach('plan.txt', 'the plan')
  await attach('map.txt', 'the map')
  await until('both are kept', async () => (await kept(p)).length === 2)
  await p.getByRole('button', { name: 'Remove map.txt' }).click()
  await until('one is kept', async () => (await kept(p)).join() === 'plan.txt')
  await p.reload()
  await p.getByText('plan.txt').waitFor()
  assert.equal(await p.getByText('map.txt').count(), 0)
  await p.getByRole('button', { name: 'Send', exact: true }).click()
  await p.getByRole('heading', { level: 1, name: 'Sent' }).waitFor()
  assert.deepEqual(await kept(p), [])
  const [m] = await until('it came', async () => {
    const { data } = await a.api('GET', `/v1/email-users/${box.user_id}/inbox`)
    return data.length > 0 && data
  })
  assert.deepEqual((await a.api('GET', `/v1/email-users/${box.user_id}/inbox/${m.uid}`)).attachments.map((f) => [f.filename, f.size]), [['plan.txt', 8]])

  await write()
  await attach('lost.txt', 'forgotten')
  await until('it is kept', async () => (await kept(p)).length === 1)
  await p.evaluate(() => new Promise((done) => {
    const request = indexedDB.open('drafts')
    request.onsuccess = () => {
      const t = request.result.transaction('files', 'readwrite')
      t.objectStore('files').clear()
      t.oncomplete = () => { request.result.close(); done() }
    }
  }))
  await p.reload()
  await p.getByText('did not keep lost.txt').waitFor()
  await sound(p, 'a draft whose file was not kept')
  await p.getByRole('button', { name: 'Send', exact: true }).click()
  await p.getByRole('heading', { name: 'Send without lost.txt?' }).waitFor()
  await p.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
  await attach('lost.txt', 'found')
  await p.getByText('did not keep lost.txt').waitFor({ state: 'detached' })
  await until('it is kept', async () => (await kept(p)).length === 1)
  await p.getByRole('button', { name: 'Sign out', exact: true }).click()
  await p.getByRole('heading', { name: 'Sign in' }).waitFor()
  assert.deepEqual(await kept(p), [], 'nothing stays when somebody signs out')
})

test('undo can be reached over a dialog, and by the keyboard', async (t) => {
  await deliver(box.email, message({ to: box.email, subject: 'Take me back' }))
  const p = await page(t, { as: a })
  await p.open('/inbox?mailbox=' + encodeURIComponent(box.email))
  const row = p.getByRole('listitem').filter({ hasText: 'Take me back' })
  for (const way of ['click', 'key', 'tab']) {
    await row.getByRole('link').click()
    await p.getByRole('region', { name: 'Message', exact: true }).getByRole('heading', { name: 'Take me back' }).waitFor()
    await p.keyboard.press('#')
    await row.waitFor({ state: 'detached' })
    if (way === 'click') {
      await p.keyboard.press('?')
      const dialog = p.getByRole('dialog', { name: 'Keyboard' })
      await dialog.getByRole('status').getByText('moved to Trash').waitFor()
      await dialog.getByRole('button', { name: 'Undo' }).click()
      await p.keyboard.press('Escape')
    } else if (way === 'key') {
      await p.keyboard.press('Control+z')
    } else {
      await p.getByRole('button', { name: 'Undo', exact: true }).focus() // it waits for whoever is at it
      await p.keyboard.press('Enter')
    }
    await row.waitFor()
  }
})

test('a read that came too often is done again by itself', async (t) => {
  const p = await page(t, { as: a, expect: [/status of 429/] })
  let refused = 0
  await p.route(/\/v1\/webhooks(\?|$)/, async (route) => {
    if (++refused > 2) return route.fallback()
    await route.fulfill({ status: 429, headers: { 'Retry-After': '1' }, json: { error: { code: 'rate_limited', message: 'Too many requests. Wait a second.', request_id: 'req_x', retry_after: 1 } } })
  })
  await p.open('/webhooks')
  await p.getByText('Retrying automatically').waitFor()
  await p.getByRole('button', { name: 'Retry now', exact: true }).waitFor()
  await p.getByText('Retrying automatically').waitFor({ state: 'detached' })
  await p.getByRole('heading', { name: 'No webhooks yet' }).waitFor()
  assert.ok(refused >= 3)
})

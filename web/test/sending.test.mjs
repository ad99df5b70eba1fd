// Schedules, holds, message templates, the suppression list and the reputation.
import assert from 'node:assert/strict'
import { before, describe } from 'node:test'
import { account, domain, fresh, mailbox, main, on, page, sound, toast, unique, until } from './rig.mjs'

let a, d

before(async () => {
  a = await account(unique('sending') + '@people.test', fresh)
  d = await domain(unique('sending') + '.test', a)
})

describe('sending', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small)

    walk('a message is scheduled, moved and taken back', async (t) => {
      const box = await mailbox(d, unique('later'), a), p = await page(t, { as: a, phone: small })
      await p.open(`/compose?from=${box.user_id}&to=ann@far.test&subject=Tomorrow&text=Hello`)
      await p.getByRole('button', { name: 'Choose a time' }).click()
      await sound(p, 'a message with a time')
      await p.getByRole('button', { name: 'Schedule', exact: true }).click()
      await p.getByRole('heading', { level: 1, name: 'Scheduled' }).waitFor()
      await p.getByRole('link', { name: 'ann@far.test' }).click()
      await p.getByText('Waiting for the time it is scheduled for.').waitFor()
      assert.equal(await p.getByRole('button', { name: 'Retry now', exact: true }).count(), 0)
      await p.getByRole('button', { name: 'Change time' }).click()
      const [local, utc] = await p.evaluate(() => { // in the browser's zone
        const at = new Date(Math.floor(Date.now() / 60_000) * 60_000 + 3 * 86_400_000)
        return [new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16), at.toISOString()]
      })
      await p.getByRole('dialog').getByLabel('Send at').fill(local)
      await p.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
      await toast(p, 'The time was changed')
      const row = (await a.api('GET', '/v1/messages?mailbox=' + encodeURIComponent(box.email))).data[0]
      assert.equal(row.send_at, utc)
      await p.getByRole('button', { name: 'Cancel message' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Cancel message' }).click()
      await p.getByText('Cancelled before it was sent.').waitFor()
    })

    walk('a held message is read and approved, another rejected', async (t) => {
      const box = await mailbox(d, unique('agent'), a), p = await page(t, { as: a, phone: small })
      const agent = a.as((await a.api('POST', '/v1/auth/tokens', { name: 'Agent', policy: { send: 'approval' } })).token)
      const send = async (subject) => (await agent('POST', `/v1/email-users/${box.user_id}/inbox/send`, { to: ['ann@far.test'], bcc: ['hidden@far.test'], subject, text: 'Plain words', html: '<p>Rich words</p><p hidden>Hidden words</p>', attachments: [{ filename: 'berth.txt', content: btoa('Words of a file') }] })).approval_id
      const yes = unique('Yes'), no = unique('No')
      const approved = await send(yes), rejected = await send(no)
      const status = async (id) => (await a.api('GET', '/v1/approvals/' + id)).status

      await p.open('/approvals')
      await main(p).getByRole('link', { name: no }).waitFor()
      await sound(p, 'approvals')
      await main(p).getByRole('link', { name: yes }).click()
      await p.getByRole('heading', { level: 1, name: yes }).waitFor()
      await p.frameLocator('iframe').getByText('Rich words').waitFor()
      for (const text of ['The sending policy requires approval', 'Rich words', 'hidden@far.test', 'API, Agent']) await main(p).getByText(text).first().waitFor()
      for (const text of ['Plain words', 'Hidden words']) assert.equal(await main(p).getByText(text).count(), 0)
      await sound(p, 'a held message')
      await main(p).getByRole('button', { name: 'berth.txt' }).click()
      await p.getByRole('dialog').frameLocator('iframe').getByText('Words of a file').waitFor()
      await sound(p, 'a file of a held message')
      await p.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
      await p.getByRole('button', { name: 'Approve', exact: true }).click()
      await sound(p, 'an approval')
      await p.getByRole('dialog').getByLabel('Note').fill('Fine with me')
      await p.getByRole('dialog').getByRole('button', { name: 'Approve and send' }).click()
      await toast(p, 'Message approved')
      await main(p).getByText('Fine with me').waitFor()
      assert.equal(await p.getByRole('button', { name: 'Reject', exact: true }).count(), 0)
      assert.equal(await status(approved), 'approved')
      await until('it was sent', async () => (await a.api('GET', '/v1/messages?recipient=hidden@far.test&status=relayed')).data.some((m) => m.approval_id === approved))

      await p.open('/approvals/' + rejected)
      await p.getByRole('button', { name: 'Reject', exact: true }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Reject', exact: true }).click()
      await toast(p, 'Message rejected')
      await main(p).getByText('It was not sent.').waitFor()
      assert.equal(await status(rejected), 'rejected')
      await p.open('/sent?status=rejected')
      await main(p).getByRole('link', { name: 'hidden@far.test' }).first().click()
      await p.getByText('Not sent: it was not approved.').waitFor()
      await p.getByRole('link', { name: 'Show approval' }).click()
      await p.getByRole('heading', { level: 1, name: no }).waitFor()
    })

    walk('waiting mail is held with a suspension, and discarded', async (t) => {
      const box = await mailbox(d, unique('held'), a), p = await page(t, { as: a, phone: small })
      await a.api('POST', `/v1/email-users/${box.user_id}/inbox/send`, { to: ['bob@far.test'], subject: 's', text: 't', send_at: new Date(Date.now() + 9e7).toISOString() })
      await p.open('/mailboxes/' + box.user_id)
      await p.getByRole('button', { name: 'More actions' }).click()
      await p.getByRole('button', { name: 'Suspend', exact: true }).click()
      await p.getByRole('dialog').getByLabel('Hold waiting messages').check()
      await p.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click()
      await p.getByText('Messages are on hold.').waitFor()
      await sound(p, 'a mailbox with held mail')
      await p.getByRole('button', { name: 'Discard', exact: true }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Discard them' }).click()
      await toast(p, '1 discarded')
      await p.getByText('Messages are on hold.').waitFor({ state: 'detached' })
    })

    walk('a template is made, filled in and deleted', async (t) => {
      const p = await page(t, { as: a, phone: small, expect: [/status of 400/] }), name = unique('Welcome')
      await p.open('/sent/templates')
      await p.getByRole('button', { name: 'Create template' }).click()
      const dialog = p.getByRole('dialog')
      await dialog.getByLabel('Name').fill(name)
      await dialog.getByLabel('Subject').fill('Welcome, {{name}')
      await dialog.getByLabel('Text').fill('Hello {{ name }}')
      await dialog.getByRole('button', { name: 'Create', exact: true }).click()
      await dialog.getByText(/name between two braces/).first().waitFor()
      await dialog.getByLabel('Subject').fill('Welcome, {{name}}')
      await dialog.getByRole('button', { name: 'Create', exact: true }).click()
      await toast(p, 'Saved')
      const line = main(p).locator('.line').filter({ hasText: name })
      await line.getByRole('button', { name: 'Preview' }).click()
      await dialog.getByLabel('name', { exact: true }).fill('Ann & Bob')
      await dialog.getByRole('button', { name: 'Preview' }).click()
      await dialog.getByText('Welcome, Ann & Bob').waitFor()
      await sound(p, 'the preview')
      await dialog.getByRole('button', { name: 'Close' }).click()
      await line.getByRole('button', { name: 'Actions for ' + name }).click()
      await line.getByRole('button', { name: 'Delete' }).click()
      await dialog.getByRole('button', { name: 'Delete' }).click()
      await line.waitFor({ state: 'detached' })
    })

    walk('addresses are imported into the suppression list', async (t) => {
      const p = await page(t, { as: a, phone: small }), one = unique('one') + '@far.test'
      await p.open('/sent/suppressions')
      await p.getByRole('button', { name: 'Import', exact: true }).click()
      await p.getByRole('dialog').getByLabel('Addresses').fill(`${one}\nnot-an-address\n${one}`)
      await p.getByRole('dialog').getByLabel('Reason').selectOption('bounce')
      await p.getByRole('dialog').getByRole('button', { name: 'Import' }).click()
      await toast(p, '1 address added')
      assert.equal((await a.api('GET', '/v1/suppressions')).data.find((s) => s.email === one).reason, 'bounce')
    })

    walk('a mailbox whose mail bounces is paused, shown, and resumed', async (t) => {
      const own = await domain(unique('paused') + '.test', a), box = await mailbox(own, 'ann', a), p = await page(t, { as: a, phone: small })
      const far = unique('far') + '.test'
      for (let k = 0; k < 2; k++) {
        await a.api('POST', `/v1/email-users/${box.user_id}/inbox/send`, { to: Array.from({ length: 25 }, (_, n) => `gone@g${k * 25 + n}.${far}`), subject: 's', text: 't' })
      }
      await until('it is paused', async () => (await a.api('GET', '/v1/email-users/' + box.user_id)).sending_paused)
      await p.open('/sent/reputation')
      await main(p).locator('.line').filter({ hasText: box.email }).getByText('paused', { exact: true }).waitFor()
      await sound(p, 'the reputation')
      await main(p).getByRole('link', { name: box.email }).click()
      await p.getByText('Sending is paused.').waitFor()
      await p.getByRole('button', { name: 'Resume sending' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Resume sending' }).click()
      await toast(p, 'can send again')
      await p.getByText('Sending is paused.').waitFor({ state: 'detached' })
    })
  }
})

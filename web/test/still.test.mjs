// What a page that stays open must not get wrong: nothing old, nothing of others, nothing lost.
import assert from 'node:assert/strict'
import test from 'node:test'
import { account, deliver, domain, mailbox, message, page, unique, until } from './rig.mjs'

/** A promise that is kept from outside. */
function gate() {
  let open
  const passed = new Promise((done) => { open = done })
  return { open, passed }
}

async function enter(p, { email, password }) {
  await p.getByLabel('Email').fill(email)
  await p.getByLabel('Password').fill(password)
  await p.getByRole('button', { name: 'Sign in', exact: true }).click()
  await p.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor({ state: 'detached' })
}

test('what the dashboard keeps in its memory', { concurrency: true }, async (t) => {
  const ann = await account(unique('ann') + '@team.test'), ben = await account(unique('ben') + '@team.test')
  const d = await domain(unique('still') + '.test', ann)
  const box = await mailbox(d, 'anna', ann)

  await ann.api('POST', '/v1/email-user-templates', { name: 'A set of hers', usernames: ['info'] })

  await Promise.all([
    t.test('what changes while the stream opens is seen', async (t) => {
      const p = await page(t, { as: ann })
      const stream = gate()
      await p.route('**/session/stream', async (route) => { await stream.passed; await route.continue() })
      await p.open('/mailboxes/templates')
      await p.getByText('A set of hers').waitFor()
      await ann.api('POST', '/v1/email-user-templates', { name: 'Made meanwhile', usernames: ['info'] })
      stream.open()
      await p.getByText('Made meanwhile').waitFor()
    }),

    t.test('who signs in after another sees nothing of theirs', async (t) => {
      const p = await page(t, { as: null, expect: [/status of 401/] }) // her list may be asked for once more as she leaves
      const first = gate(), second = gate()
      let asked = 0
      await p.route('**/v1/email-user-templates', async (route) => {
        const answer = await route.fetch()
        await (asked++ === 0 ? first : second).passed
        await route.fulfill({ response: answer })
      })
      await p.open('/mailboxes/templates')
      await enter(p, ann)
      await until('hers are asked for', () => asked > 0)
      await p.getByRole('button', { name: 'Sign out', exact: true }).click()
      await p.evaluate(() => history.replaceState(null, '', '/jobs'))
      await enter(p, ben)
      const answered = p.waitForResponse('**/v1/email-user-templates')
      first.open()
      await (await answered).finished()
      await p.getByRole('link', { name: 'Mailboxes', exact: true }).click()
      await p.getByRole('link', { name: 'Templates', exact: true }).click()
      await until('his are asked for', () => asked > 1)
      assert.equal(await p.getByText('A set of hers').count(), 0)
      second.open()
      await p.getByText('No templates yet').waitFor()
    }),

    t.test('a refusal that comes late signs nobody out who came after', async (t) => {
      const p = await page(t, { as: null, expect: [/status of 401/] })
      const left = gate(), entered = gate()
      let asked = 0
      await p.route('**/v1/email-user-templates', async (route) => {
        if (asked++ > 0) return route.continue()
        await left.passed
        const answer = await route.fetch()
        assert.equal(answer.status(), 401)
        await entered.passed
        await route.fulfill({ response: answer })
      })
      await p.open('/mailboxes/templates')
      await enter(p, ann)
      await until('hers are asked for', () => asked > 0)
      await p.getByRole('button', { name: 'Sign out', exact: true }).click()
      await p.getByLabel('Email').waitFor()
      left.open()
      const refused = p.waitForResponse((r) => r.status() === 401)
      await enter(p, ben)
      entered.open()
      await (await refused).finished()
      await p.getByText('No templates yet').waitFor()
      await p.getByRole('button', { name: 'Sign out', exact: true }).waitFor()
    }),

    t.test('what was deleted is deleted before one signs out', async (t) => {
      const gone = await mailbox(d, 'gone', ann)
      await deliver(gone.email, message({ to: gone.email, subject: 'Away with it' }))
      const p = await page(t, { as: null, expect: [/status of 401/] }) // the list may be read once more meanwhile
      await p.open('/inbox?mailbox=' + gone.email)
      await enter(p, ann)
      await p.getByRole('link', { name: /Away with it/ }).click()
      await p.getByRole('button', { name: 'Delete', exact: true }).first().click()
      await p.getByText('Message moved to Trash').waitFor()
      await p.getByRole('button', { name: 'Sign out', exact: true }).click()
      await p.getByLabel('Email').waitFor()
      assert.equal(await p.getByText('You are not signed in').count(), 0)
      const { data } = await ann.api('GET', `/v1/email-users/${gone.user_id}/inbox`)
      assert.equal(data.length, 0)
    }),

    t.test('a search keeps the space that was just typed', async (t) => {
      const p = await page(t, { as: ann })
      for (const [path, label] of [['/mailboxes', 'Search'], ['/sent', 'Recipient'], ['/inbox', 'Search messages']]) {
        await p.open(path)
        const field = p.getByLabel(label).first()
        await field.pressSequentially('anna ')
        await p.waitForURL(/=anna/)
        await field.pressSequentially('rossi')
        assert.equal(await field.inputValue(), 'anna rossi', path)
      }
    }),

    t.test('passwords that were made are shown, even if not all could be', async (t) => {
      const p = await page(t, { as: ann, expect: [/status of 503/] })
      let asked = 0
      await p.route('**/v1/email-users/bulk', async (route) => {
        if (asked++ > 0) return route.fulfill({ status: 503, json: { error: { code: 'shutting_down', message: 'The server is stopping.', request_id: 'r' } } })
        const { users } = route.request().postDataJSON()
        const made = users.map((u, i) => ({ id: 'eu_' + i, email: `${u.username}@${d.name}`, username: u.username, name: '', password: 'made-' + u.username, imap_host: 'h', imap_port: 993, smtp_host: 'h', smtp_port: 465 }))
        await route.fulfill({ status: 201, json: { domain: d.name, created: made.length, failed: 0, users: made, errors: [], job_id: null } })
      })
      await p.open('/mailboxes/bulk?domain=' + d.name)
      await p.getByLabel('Names or CSV').fill(Array.from({ length: 101 }, (_, i) => 'b' + i).join('\n'))
      await p.getByRole('button', { name: 'Create 101 mailboxes' }).click()
      await p.getByText('made-b99').waitFor()
      await p.getByText('1 mailbox could not be created').waitFor()
    }),

    t.test('a message whose answer was lost is not sent twice', async (t) => {
      const p = await page(t, { as: ann, expect: [/ERR_/] })
      let asked = 0
      await p.route('**/inbox/send', async (route) => {
        if (asked++ > 0) return route.continue()
        await route.fetch()
        await route.abort('connectionreset')
      })
      await p.open(`/compose?from=${box.user_id}&to=once@elsewhere.test&subject=Once&text=only`)
      await p.getByRole('button', { name: /^From: anna@/ }).waitFor()
      await p.getByRole('button', { name: 'Send', exact: true }).click()
      await p.getByText('Can’t reach the server').waitFor()
      await p.getByRole('button', { name: 'Send', exact: true }).click()
      await p.getByRole('heading', { level: 1, name: 'Sent' }).waitFor()
      const { data } = await ann.api('GET', '/v1/messages?recipient=once@elsewhere.test')
      assert.equal(data.length, 1)
    }),
  ])
})

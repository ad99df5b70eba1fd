// What a role forbids is neither offered by the pages nor done by the server.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { fresh, page, unique } from './rig.mjs'
import { harbour } from './harbour.mjs'

let h, operations

// What the pages call the operations that not every role may use, and where they offer them to those who may.
const offers = {
  connect_domains: ['/domains', 'Add a domain'], create_email_user: ['/mailboxes', 'Make a mailbox'], create_export: ['/mailboxes', 'Export'],
  create_email_users_bulk: ['/mailboxes/bulk', 'From a list'], update_email_user: ['mailbox', 'More actions'],
  create_webhook: ['/webhooks', 'Add a webhook'], update_webhook: ['webhook', 'More actions'], test_webhook: ['webhook', 'Send a test'],
  rotate_webhook_secret: ['webhook', 'Make a new secret'], get_webhook_secret: ['webhook', 'Show'],
  invite_team_user: ['/team', 'Invite'], delete_team_user: ['/team', /^Actions for ben@/], update_account: ['/account', 'Rename'],
  create_custom_dns_record: ['domain/records', 'Add a record'], delete_domain: ['domain/settings', 'Delete the domain'],
}

before(async () => {
  h = await harbour()
  const { paths } = await (await fetch(fresh.url + '/v1/openapi.json')).json()
  operations = Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).filter(([, o]) => o['x-roles']).map(([method, o]) => ({ method: method.toUpperCase(), path, id: o.operationId, roles: o['x-roles'] })))
  for (const role of ['member', 'admin']) h[role] = await join(role)
})

/** Somebody who was invited, and has chosen a password. */
async function join(role) {
  const email = unique(role) + '@people.test', password = 'a sentence that nobody guesses'
  const { reset_link: link } = await h.api('POST', '/v1/account/users/invite', { email, role })
  const answer = await fetch(fresh.url + '/session/welcome', {
    method: 'POST', headers: { 'Content-Type': 'application/json', Origin: fresh.url }, body: JSON.stringify({ token: new URL(link).searchParams.get('token'), password }),
  })
  assert.equal(answer.status, 200)
  return { email, password, server: fresh }
}

function placeOf(where) {
  return where.replace(/^domain/, '/domains/' + h.domain.id).replace(/^mailbox/, '/mailboxes/' + h.box.user_id).replace(/^webhook/, '/webhooks/' + h.hook.id)
}

/** How often a page offers something, after all that it reads is there. */
async function offered(p, [where, name]) {
  const at = placeOf(where)
  if (new URL(p.url()).pathname !== at) await p.open(at)
  await p.locator('h1').first().waitFor()
  await p.waitForFunction(() => !document.querySelector('.skeleton') && document.querySelector('main .card, main .empty'))
  const wanted = typeof name === 'string' ? { name, exact: true } : { name }
  return await p.getByRole('main').getByRole('button', wanted).count() + await p.getByRole('main').getByRole('link', wanted).count()
}

describe('roles', { concurrency: 3 }, () => {
  for (const role of ['owner', 'admin', 'member']) {
    test(`${role}: the pages offer what the role may do and nothing else`, async (t) => {
      const p = await page(t, { as: role === 'owner' ? h : h[role] })
      for (const [id, offer] of Object.entries(offers)) {
        const may = operations.find((o) => o.id === id).roles.includes(role)
        assert.equal(await offered(p, offer) > 0, may, `${id} at ${offer[0]} for the ${role}`)
      }
    })
  }

  test('the server refuses a member what it does not offer', async (t) => {
    const p = await page(t, { as: h.member, expect: [/status of 403/] })
    await p.open('/account')
    const asked = operations.filter((o) => !o.roles.includes('member'))
    assert.ok(asked.length >= 25, 'there is much that a member may not do')
    const answers = await p.evaluate((asked) => Promise.all(asked.map(async ({ method, path, id }) => {
      const answer = await fetch(path.replace(/\{\w+\}/g, 'x'), { method, headers: { 'Content-Type': 'application/json' }, body: method === 'GET' ? undefined : '{}' })
      return [id, answer.status]
    })), asked)
    assert.deepEqual(answers, asked.map(({ id }) => [id, 403]))
  })
})

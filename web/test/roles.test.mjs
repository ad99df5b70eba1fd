// What a role forbids is neither offered by the pages nor done by the server.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join as pathOf } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { account, brief, choosePassword, fresh, launch, page, unique } from './rig.mjs'
import { harbour, ill, laden, placesOf, rarities } from './harbour.mjs'
import { operations, press, refused } from './presser.mjs'

const roles = ['owner', 'admin', 'member']

// What the operator's pages ask for, which nobody else may.
const operators = ['check_health', 'list_settings', 'update_settings', 'test_settings', 'list_backups', 'create_backup', 'drill_backup', 'list_accounts', 'create_account', 'get_account_by_id', 'update_account_by_id', 'delete_account', 'get_account_usage', 'create_sign_in_link']
// What the pages have no need of: mailboxes picked on their list are deleted by the same operation's other method, what is held is
// downloaded by a link, and the records of a zone are set by name and type.
const unreached = ['delete_email_users_bulk', 'get_health', 'create_custom_dns_record', 'update_custom_dns_record', 'delete_custom_dns_record', 'delete_vacation', 'import_messages', 'export_messages', 'get_approval_raw']

// Places for a deed that members may not do, and what says so there.
const closed = ['/domains/add', '/mailboxes/bulk', '/account/dns']

// Links whose words promise a deed, and those of them that members may do.
const deed = /^(Add|Buy|Change|Create|Delete|Edit|Fix|Invite|Raise|Remove|Set|Several|Turn|Use|Verify)\b/
const ownDeeds = ['Create a token']

// Some of what each can be seen to do; of the owner it is told below.
const atLeast = {
  owner: [],
  admin: ['update_account', 'invite_team_user', 'update_team_user', 'delete_team_user', 'create_token', 'delete_token', 'set_universal_inbox', 'PATCH /session/profile'],
  member: ['send_email', 'bulk_mark_messages', 'bulk_move_messages', 'refresh_inbox', 'refresh_email_user_inbox', 'retry_message', 'cancel_message', 'create_suppression', 'delete_suppression',
    'create_template', 'update_template', 'delete_template', 'check_nameservers', 'verify_dns', 'create_token', 'delete_token', 'PATCH /session/profile'],
}

const soak = Boolean(process.env.MAILSTEAD_SOAK)

let h, places, pressedAt, team, own, operator, operatorPlaces

before(async () => {
  h = await harbour()
  const rare = await laden(h)
  const usual = await placesOf(h)
  places = { ...usual, ...rare }
  pressedAt = Object.values(soak ? places : { ...usual, external: rare['mailbox-external'], asleep: rare['mailbox-suspended'], kept: rare['domain-cloudflare/settings'] }) // most rare ones have the same to press, in other states
  for (const role of ['admin', 'member']) h[role] = await join(h, role)
  team = (await h.api('GET', '/v1/account/users')).users
  for (const role of ['admin', 'member']) await ownToken(h[role])
  own = await launch((dir) => `[backup]\nto = ${JSON.stringify(pathOf(dir, 'backups'))}\n`) // who runs it has the pages of the operator
  operator = await choosePassword(own.owner)
  const tenant = await account(unique('tenant') + '@people.test', own.server), { id } = await tenant.api('GET', '/v1/account')
  operatorPlaces = ['/settings', '/host', '/backups', '/accounts', '/accounts/' + id]
})
after(() => own.stop())

/** Somebody who was invited, and has chosen a password. */
async function join(a, role) {
  const email = unique(role) + '@people.test', password = 'a sentence that nobody guesses'
  const { id, reset_link: link } = await a.api('POST', '/v1/account/users/invite', { email, role })
  const answer = await fetch(fresh.url + '/session/welcome', {
    method: 'POST', headers: { 'Content-Type': 'application/json', Origin: fresh.url }, body: JSON.stringify({ token: new URL(link).searchParams.get('token'), password }),
  })
  assert.equal(answer.status, 200)
  return { id, email, password, role, server: fresh }
}

/** Signs somebody in, and makes a token that they may end. */
async function ownToken(who) {
  const headers = { 'Content-Type': 'application/json', Origin: fresh.url }
  const entry = await fetch(fresh.url + '/session', { method: 'POST', headers, body: JSON.stringify({ email: who.email, password: who.password }) })
  const made = await fetch(fresh.url + '/v1/auth/tokens', { method: 'POST', headers: { ...headers, Cookie: entry.headers.get('set-cookie').split(';')[0] }, body: JSON.stringify({ name: 'Of my own' }) })
  assert.equal(made.status, 201)
}

/** What of a request is beyond what the operation's roles tell: who may act on whom, and what may be given. */
function beyond(role, { id, path, body }) {
  const given = body ? JSON.parse(body) : {}, other = team.find((u) => path.endsWith('/' + u.id))
  switch (id) {
    case 'update_team_user':
    case 'delete_team_user':
      return other.role === 'owner' || role !== 'owner' && (other.role !== 'member' || given.role === 'admin')
    case 'invite_team_user':
      return given.role === 'admin' && role !== 'owner'
    case 'create_token':
      return role === 'member' && given.permissions.some((scope) => !['read', 'write'].includes(scope))
    case 'PATCH /session/profile':
      return given.email !== undefined && role !== 'owner'
  }
  return false
}

/** Asks the server as the page would, past what the page offers. */
async function ask(p, method, path, data) {
  const answer = await p.context().request.fetch(fresh.url + path, { method, data, headers: { Origin: fresh.url } })
  return { status: answer.status(), json: await answer.json() }
}

/** Whether the server does it; if not, it is the role that forbids it, or the thing is hidden from it. */
async function permits(p, method, path, data) {
  const { status, json } = await ask(p, method, path, data)
  assert.ok(status < 300 || status === 403 || status === 404 && path.startsWith('/v1/auth/tokens/'), `${method} ${path}: ${status} ${JSON.stringify(json)}`)
  return status < 300
}

describe('roles', { concurrency: 2 }, () => {
  const pressing = (name, walk) => test(name, { skip: brief && 'make soak NAME=walks presses' }, walk) // some thousand things
  // Of operations admins may use those that the owner may: what they may not is about people.
  const people = ['/', '/team', '/tokens', '/profile', '/account', '/connect']
  const walkers = [['owner', false], ['member', false], ['admin', false]]
  if (soak) walkers.push(['member', true]) // the width decides nothing about what is offered
  for (const [role, phone] of walkers) {
    pressing(`${role}${phone ? ' on a phone' : ''}: everything that can be pressed is allowed`, async (t) => {
      const p = await page(t, { as: role === 'owner' ? h : h[role], phone, expect: [refused] })
      await ill(p, h)
      await rarities(p, h)
      const began = Date.now()
      const { asked, links, pressed, lost } = await press(p, role === 'admin' ? people : pressedAt)
      const reached = new Set(asked.map((a) => a.id)), all = await operations()
      t.diagnostic(`${role}: ${Object.values(pressed).reduce((a, b) => a + b)} things pressed at ${Object.keys(pressed).length} places in ${Date.now() - began} ms, ${lost.length} not found again: ${lost.join('; ')}; asked for: ${[...reached].sort().join(' ')}`)
      assert.deepEqual(asked.filter((a) => (a.roles ? !a.roles.includes(role) : a.path.startsWith('/v1')) || beyond(role, a)), [])
      assert.deepEqual(atLeast[role].filter((id) => !reached.has(id)), [], 'the walk reaches what there is to do')
      const barred = (l) => closed.includes(l.href.split('?')[0])
      if (role === 'admin') {
        assert.deepEqual(all.filter((o) => o.roles.includes('owner') && !o.roles.includes('admin') && !unreached.includes(o.id) && !operators.includes(o.id)), [], 'admins walk everywhere once something is closed to them')
      } else if (role === 'member') {
        assert.deepEqual(links.filter((l) => barred(l) || deed.test(l.name) && !l.href.startsWith('/jobs/') && !ownDeeds.includes(l.name)), [])
      } else {
        assert.deepEqual(closed.filter((at) => !links.some((l) => l.href.split('?')[0] === at)), [], 'links lead there')
        assert.deepEqual(all.filter((o) => o.roles.includes('owner') && !o.roles.includes('member') && !reached.has(o.id) && !operators.includes(o.id)).map((o) => o.id), unreached)
        assert.ok(asked.some((a) => a.id === 'setup_domain' && JSON.parse(a.body).register), 'it buys')
      }
    })
  }

  pressing('operator: everything that can be pressed is allowed', async (t) => {
    const p = await page(t, { as: operator, expect: [refused] })
    const { asked, pressed, lost } = await press(p, operatorPlaces)
    const reached = new Set(asked.map((a) => a.id))
    t.diagnostic(`${Object.values(pressed).reduce((a, b) => a + b)} things pressed, ${lost.length} not found again: ${lost.join('; ')}; asked for: ${[...reached].sort().join(' ')}`)
    assert.deepEqual(asked.filter((a) => (a.roles ? !a.roles.includes('owner') : a.path.startsWith('/v1'))), [])
    assert.deepEqual(operators.filter((id) => !reached.has(id)), [])
  })

  test('every page is among the places that are walked', async () => {
    const [text] = (await readFile(new URL('../src/pages/index.ts', import.meta.url), 'utf8')).split('export const ownPlaces') // those are walked in own.test.mjs
    const patterns = [...text.matchAll(/(?:path: |(?:team|operator)\()'([^']+)'/g)].map(([, path]) => path), all = [...Object.values(places), ...operatorPlaces]
    assert.ok(patterns.length > 20)
    const walked = (pattern) => all.some((at) => new RegExp('^' + pattern.replace(/:\w+/g, '[^/]+') + '$').test(at.split('?')[0]))
    assert.deepEqual(patterns.filter((pattern) => pattern !== '/oauth/authorize' && !walked(pattern)), []) // that one is walked in consent.test.mjs
  })

  test('a member who types the address of a place for others is told who can', async (t) => {
    const p = await page(t, { as: h.member })
    for (const at of [...closed, '/domains/add?way=buy', '/mailboxes/bulk?template=x']) {
      await p.open(at)
      await p.getByRole('heading', { level: 1, name: 'Your role can’t' }).waitFor()
      await p.getByText('Only the account’s owner or an admin can do this').waitFor()
      assert.equal(await p.getByRole('main').locator('form, input, button').count(), 0)
    }
  })

  for (const role of ['member', 'admin']) {
    test(`the server refuses ${role}s what is closed to them`, async (t) => {
      const p = await page(t, { as: h[role] })
      const asked = (await operations()).filter((o) => !o.roles.includes(role))
      if (role === 'member') assert.ok(asked.length >= 25, 'there is much that a member may not do')
      const answers = await Promise.all(asked.map(async ({ method, path, id }) => [id, (await ask(p, method, path.replace(/\{\w+\}/g, 'x'), method === 'GET' ? undefined : {})).status]))
      assert.deepEqual(answers, asked.map(({ id }) => [id, 403]))
    })
  }

  test('who may act on whom: the pages offer what the server permits', async (t) => {
    const a = await account(unique('ship') + '@people.test', fresh)
    const crew = { owner: a, admin: await join(a, 'admin'), member: await join(a, 'member') }
    for (const role of ['admin', 'member']) await a.api('POST', '/v1/account/users/invite', { email: unique('cook') + '@people.test', role })
    const pages = {}
    for (const role of roles) pages[role] = await page(t, { as: crew[role], expect: [/status of 401/] }) // once they are removed
    for (const role of roles) {
      await sameProfile(pages[role], crew[role])
      await sameScopes(pages[role])
      await sameTokens(pages, role)
      await sameTeam(pages[role], role)
    }
    for (const role of roles.toReversed()) await sameRemovals(pages[role], role)
  })
})

async function sameProfile(p, me) {
  await p.open('/profile')
  assert.ok(await p.getByLabel('Name', { exact: true }).isEnabled())
  assert.ok(await permits(p, 'PATCH', '/session/profile', { name: 'Sea Dog' }))
  const email = unique('moved') + '@people.test'
  assert.equal(await p.getByLabel('Email').isEnabled(), await permits(p, 'PATCH', '/session/profile', { email, current_password: me.password }))
}

async function sameScopes(p) {
  await p.open('/tokens')
  await p.getByRole('button', { name: 'Create token' }).click()
  await p.getByRole('dialog').getByLabel('Name', { exact: true }).waitFor()
  for (const scope of ['read', 'write', 'purchase', 'admin']) {
    const offered = await p.getByRole('checkbox', { name: new RegExp('^' + scope, 'i') }).count() > 0
    assert.equal(offered, await permits(p, 'POST', '/v1/auth/tokens', { name: scope, permissions: [scope] }), scope)
  }
}

/** A token of each: the page shows those that may be ended, and the server ends no other. */
async function sameTokens(pages, role) {
  const p = pages[role], may = { owner: roles, admin: ['admin', 'member'], member: ['member'] }[role]
  const made = await Promise.all(roles.map(async (whose) => ({ whose, id: (await ask(pages[whose], 'POST', '/v1/auth/tokens', { name: `For ${role}, of ${whose}` })).json.id })))
  await p.open('/tokens')
  await p.getByRole('button', { name: `Delete For ${role}, of ${role}` }).waitFor()
  for (const { whose, id } of made) {
    const offered = await p.getByRole('button', { name: `Delete For ${role}, of ${whose}` }).count() > 0
    assert.equal(offered, may.includes(whose), `the ${role} and a token of the ${whose}`)
    assert.equal(await permits(p, 'DELETE', '/v1/auth/tokens/' + id), offered)
  }
}

async function offersOf(p, { users }) {
  await p.open('/team')
  await p.getByText('(you)').waitFor()
  return Promise.all(users.map(async (u) => ({ ...u, offered: await p.getByRole('button', { name: 'Actions for ' + u.email }).count() > 0 })))
}

async function sameTeam(p, role) {
  const { user } = (await ask(p, 'GET', '/session')).json
  const rows = await offersOf(p, (await ask(p, 'GET', '/v1/account/users')).json)
  const may = { owner: ['admin', 'member'], admin: ['member'], member: [] }[role]
  for (const u of rows) {
    assert.equal(u.offered, u.id !== user.id && may.includes(u.role), `the ${role} and ${u.email}, ${u.role}`)
    const self = u.id === user.id && role !== 'owner' // by the profile
    for (const given of [{ first_name: 'Sea' }, { email: u.email }]) assert.equal(await permits(p, 'PATCH', '/v1/account/users/' + u.id, given), u.offered || self && !given.email)
  }
  const one = rows.find((u) => u.offered && u.role === 'member')
  let promotes = false
  if (one) {
    await p.getByRole('button', { name: 'Actions for ' + one.email }).click()
    await p.getByRole('button', { name: 'Edit', exact: true }).click()
    await p.getByRole('dialog').getByLabel('Email').waitFor()
    promotes = await p.getByRole('dialog').getByLabel('Role').count() > 0
    await p.keyboard.press('Escape')
  }
  const promoted = await permits(p, 'PATCH', '/v1/account/users/' + (one ?? rows.find((u) => u.role === 'member')).id, { role: 'admin' })
  assert.equal(promotes, promoted, `the ${role} makes admins of members`)
  if (promoted) await ask(p, 'PATCH', '/v1/account/users/' + one.id, { role: 'member' })
  const invite = p.getByRole('button', { name: 'Invite', exact: true }), invites = await invite.count() > 0
  if (invites) {
    await invite.click()
    await p.getByRole('dialog').getByLabel('Email').waitFor()
  }
  for (const given of ['member', 'admin']) {
    const offered = invites && await p.getByRole('dialog').locator(`option[value=${given}]`).count() > 0
    assert.equal(offered, await permits(p, 'POST', '/v1/account/users/invite', { email: unique('guest') + '@people.test', role: given }), `the ${role} invites: ${given}`)
  }
}

/** At last, since it takes away who is offered. */
async function sameRemovals(p, role) {
  const rows = await offersOf(p, (await ask(p, 'GET', '/v1/account/users')).json)
  for (const u of rows) assert.equal(await permits(p, 'DELETE', '/v1/account/users/' + u.id), u.offered, `the ${role} removes ${u.email}, ${u.role}`)
}

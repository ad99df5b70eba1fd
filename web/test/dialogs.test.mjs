// Every dialog of the team's pages: it can be cancelled, it saves nothing before something was
// changed, it loses nothing unasked, and what is wrong with a field is said at that field, once.
import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { before, describe, test } from 'node:test'
import { on, page, shot, sound } from './rig.mjs'
import { harbour, ill, laden, placesOf, rarities } from './harbour.mjs'

const far = '2099-01-01T12:00'

/**
 * The dialogs, by the file that has them. at is a place by its name and open the buttons that lead
 * there; type what is entered, by the label of its field, of which the last has what is wrong.
 * choose and clear are done before. optional: it can be sent as it is. refuse names the field of an
 * answer that no input here would get from the server. shows: it has nothing to enter.
 */
const dialogs = [
  { file: 'account/dns-credential', at: 'dns-credentials', open: ['Add credential'], type: { Name: 'Pier', 'API token': 'a secret' } },
  { file: 'approvals/approval', at: 'approval', open: ['Approve'], optional: true, type: { Note: 'Off it goes' }, refuse: 'note' },
  { file: 'approvals/approval', at: 'approval', open: ['plan.txt'], shows: true },
  { file: 'domains/dmarc-reports', shows: true }, { file: 'domains/tls-reports', shows: true }, // opened in domains.test.mjs
  { file: 'domains/elsewhere', at: 'domain-mail', open: ['Add sender'], type: { 'DKIM selector': 's1', 'Host or network': '10.0.0.0/8' } },
  { file: 'domains/in-use', at: 'domain-staying', open: ['Bring mail here'], optional: true, type: { 'Addresses that receive mail now': 'ann@x.test' }, refuse: 'mx.expected_addresses' },
  { file: 'domains/provider', at: 'domain-cloudflare/settings', open: ['Move to another provider'] },
  { file: 'domains/purchase', at: 'buy-walk', open: ['Buy walk.test'], optional: true, type: { 'Mailboxes to create': 'ann' } },
  { file: 'domains/repair', at: 'domain-token', open: ['Set up again'], optional: true, type: { 'Cloudflare API token': 'a secret' }, refuse: 'edge_api_token' },
  { file: 'domains/zone', at: 'domain-zone', open: [/^View MX/], shows: true },
  { file: 'domains/zone-edit', at: 'domain-zone', open: ['Add record'], type: { Text: 'a text', Name: 'no name' } },
  { file: 'domains/zone-history', at: 'domain-zone', open: ['More actions', 'History'], shows: true },
  { file: 'domains/zone-import', at: 'domain-zone', open: ['Import'], type: { 'Or paste it here': 'www IN A (' } },
  { file: 'domains/zone-spf', at: 'domain-zone', open: ['More actions', 'SPF record'], type: { 'Additional terms': 'all' } },
  { file: 'mailboxes/create', at: 'mailboxes', open: ['Create mailbox'], type: { Username: 'no name' } },
  { file: 'mailboxes/create', after: 'Create mailbox' },
  { file: 'mailboxes/credentials', at: 'mailbox-access', open: ['New app password'], type: { Name: 'Phone', 'Only from': 'nowhere' } },
  { file: 'mailboxes/credentials', after: 'New app password' },
  { file: 'mailboxes/expiry', at: 'mailbox', open: ['More actions', 'Set expiry'], optional: true, type: { Expires: '2020-01-01T12:00' } },
  { file: 'mailboxes/export', at: 'mailboxes', open: ['Export'], optional: true, choose: { Format: 'columns' }, type: { Columns: 'Login = {nonsense}' } },
  { file: 'mailboxes/groups', at: 'groups', open: ['Create group'], type: { Address: 'all@DOMAIN', Members: 'nobody' } },
  { file: 'mailboxes/mailbox', at: 'mailbox', open: ['More actions', 'Suspend'], optional: true },
  { file: 'mailboxes/mailbox', at: 'mailbox', open: ['More actions', 'Set password'], optional: true, type: { Password: 'short' } },
  { file: 'mailboxes/password-link', at: 'mailbox', open: ['More actions', 'Get a password link'], optional: true },
  { file: 'mailboxes/rules', at: 'mailbox-rules', open: ['New rule'], type: { Name: 'A rule', 'Value of condition 1': '' } },
  { file: 'mailboxes/rules', at: 'mailbox-rules', open: ['Try on stored mail'], shows: true },
  { file: 'mailboxes/templates', at: 'templates', open: ['Create template'], type: { Name: 'Company', Usernames: '..' } },
  { file: 'mailboxes/temporary', at: 'mailboxes', open: ['Temporary inbox'], optional: true, type: { Username: '..' } },
  { file: 'mailboxes/temporary', after: 'Temporary inbox' },
  { file: 'people/factor', at: 'profile', open: ['Set up'], type: { 'Current password': 'wrong' } },
  { file: 'people/factor', at: 'profile', secured: true, open: ['Turn off'], type: { 'Current password': 'wrong' } },
  { file: 'people/factor', after: 'Set up' },
  { file: 'people/passkeys', at: 'profile', named: true, open: ['Add passkey'], type: { 'Current password': 'wrong' } },
  { file: 'people/team', at: 'team', open: ['Invite'], type: { Email: 'nobody' } },
  { file: 'people/team', at: 'team', open: [/^Actions for ben@/, 'Edit'], type: { Email: 'nobody' } },
  { file: 'people/team', after: 'Invite' },
  { file: 'people/tokens', at: 'tokens', open: ['Create token'], clear: ['Read', 'Write'], type: { Name: 'An app' }, part: 'Permissions' },
  { file: 'people/tokens', after: 'Create token' },
  { file: 'sent/message', at: 'sent-scheduled', open: ['Change time'], type: { 'Send at': far } },
  { file: 'sent/suppressions', at: 'suppressions', open: ['Import'], type: { Addresses: 'ann@far.test' }, refuse: 'emails' },
  { file: 'sent/suppressions', at: 'suppressions', open: ['Add address'], type: { Email: 'nobody' } },
  { file: 'sent/templates', at: 'message-templates', open: ['Create template'], type: { Name: 'A template', Text: 'Hello', Subject: 'For {{name' } },
  { file: 'sent/templates', at: 'message-templates', open: ['Preview'], optional: true, type: { name: 'Ann', berth: '16' }, refuse: 'variables.berth' },
  { file: 'webhooks/attempts', at: 'webhook-failing', open: [/^failed/], shows: true },
  { file: 'webhooks/endpoint', at: 'webhook', open: ['More actions', 'Edit'], type: { 'Endpoint URL': 'nowhere' } },
  { file: 'webhooks/endpoint', after: 'Rotate secret' },
  { file: 'webhooks/events', at: 'events', open: [/email\.received/], shows: true },
  { file: 'webhooks/webhooks', at: 'webhooks', open: ['Add webhook'], type: { 'Endpoint URL': 'nowhere' } },
  { file: 'webhooks/webhooks', after: 'Add webhook' },
]

let h, places

before(async () => {
  h = await harbour()
  const rare = await laden(h)
  places = {
    ...await placesOf(h), ...rare, events: '/webhooks/events?type=email.received', 'buy-walk': '/domains/add?way=buy&name=walk.test',
    'domain-token': `/domains/${h.rare.bought.domain_id}/settings`, 'domain-staying': '/domains/' + h.rare.broken.domain_id,
  }
})

/** A page on which there is something of everything. */
async function opened(t, { named, secured, phone }) {
  const as = named ? { ...h, server: { ...h.server, url: h.server.url.replace('127.0.0.1', 'localhost') } } : h // passkeys belong to a name
  const p = await page(t, { as, server: as.server, phone, dark: phone, expect: [/status of 4\d\d/] })
  await ill(p, h)
  await rarities(p, h)
  const change = (what, how) => p.route(what, async (route) => {
    if (route.request().method() !== 'GET') return route.fallback()
    const answer = await route.fetch(), json = await answer.json()
    how(json)
    await route.fulfill({ response: answer, json })
  })
  await change('**/v1/domains/' + h.rare.bought.domain_id, (d) => Object.assign(d, { dns_provider: 'cloudflare', status: 'complete', dns_credential_id: null }))
  await change('**/v1/domains/' + h.rare.broken.domain_id, (d) => Object.assign(d, { status: 'pending_dns_records', mx: { mode: 'elsewhere', hosts: ['mx.before.example'] } }))
  if (secured) {
    await change('**/session/here', ({ session }) => { session.user.totp_enabled = true })
    await change('**/session', ({ user }) => { user.totp_enabled = true }) // asked for when the user changes
  }
  return p
}

const top = (p) => p.locator('dialog[open]').last()
const question = (p) => p.getByRole('dialog', { name: 'Discard changes?' })

async function openDialog(p, { open }) {
  for (const name of open) await p.getByRole('button', { name, exact: typeof name === 'string' }).first().click()
  await top(p).waitFor()
  await p.waitForFunction(() => !document.querySelector('dialog .skeleton'))
}

async function fill(p, row) {
  for (const [label, value] of Object.entries(row.choose ?? {})) await top(p).getByLabel(label, { exact: true }).selectOption(value)
  for (const label of row.clear ?? []) await top(p).getByRole('checkbox', { name: new RegExp('^' + label) }).uncheck()
  for (const [label, value] of Object.entries(row.type)) await top(p).getByLabel(label, { exact: true }).fill(value.replace('DOMAIN', h.domain.name))
}

const gone = (p) => p.locator('dialog[open]').waitFor({ state: 'detached' })

describe('dialogs', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small)
    for (const row of dialogs.filter((row) => row.open)) {
      const what = `${row.file}: ${row.open.at(-1)}`
      walk(what, async (t) => {
        const p = await opened(t, { ...row, phone: small })
        await p.open(places[row.at])
        await openDialog(p, row)
        await sound(p, what, { colours: true })
        await shot(p, `dialog-${row.file.replace('/', '-')}-${String(row.open.at(-1)).replace(/\W+/g, '-').toLowerCase()}` + (small ? '-phone' : ''))
        if (row.shows) {
          assert.equal(await top(p).locator('form').count(), 0)
          await top(p).getByRole('button', { name: 'Close' }).click()
          return gone(p)
        }
        const send = top(p).locator('form [type=submit]').last()
        assert.equal(await send.isEnabled(), row.optional ?? false, 'it is sent only once something was changed')
        assert.ok(await send.evaluate((e) => {
          const { left, top, width, height } = e.getBoundingClientRect()
          return e.contains(document.elementFromPoint(left + width / 2, top + height / 2))
        }), 'it is in view')
        await p.keyboard.press('Escape')
        await gone(p) // nothing is lost, so nothing is asked
        await openDialog(p, row)
        if (!row.type) {
          await top(p).getByRole('button', { name: 'Cancel', exact: true }).click()
          return gone(p)
        }
        await fill(p, row)
        const labels = Object.keys(row.type), field = top(p).getByLabel(labels.at(-1), { exact: true })
        await p.keyboard.press('Escape')
        await sound(p, what + ', which asks')
        await question(p).getByRole('button', { name: 'Keep editing' }).click()
        await question(p).waitFor({ state: 'detached' })
        assert.equal(await field.inputValue(), row.type[labels.at(-1)].replace('DOMAIN', h.domain.name), 'what was typed is there still')
        if (row.file !== 'domains/purchase') { // which sends nothing yet
          const refusal = { status: 400, json: { error: { code: 'validation_error', message: 'No.', request_id: 'req_walk', details: [{ field: row.refuse, code: 'invalid', message: 'is refused on this walk' }] } } }
          if (row.refuse) await p.route('**/v1/**', (route) => route.request().method() === 'GET' ? route.fallback() : route.fulfill(refusal))
          await send.click()
          const wrong = top(p).locator('.wrong, .part-wrong')
          await wrong.waitFor()
          const said = await wrong.textContent()
          assert.equal((await top(p).innerText()).split(said).length, 2, 'what is wrong is said once: ' + said)
          assert.equal(await top(p).locator('.notice.bad').count(), 0, 'and not in a notice')
          if (row.part) await top(p).getByRole('group', { name: row.part }).locator('.part-wrong').waitFor()
          else await field.and(p.locator('[aria-invalid=true]')).waitFor()
          await p.waitForFunction(() => document.activeElement?.matches('[aria-invalid=true], .part-wrong')) // it has the focus
          await sound(p, what + ', refused', { colours: true })
        }
        await top(p).getByRole('button', { name: 'Cancel', exact: true }).click()
        await question(p).getByRole('button', { name: 'Discard' }).click()
        await gone(p)
      })
    }

    walk('a question is left by Cancel and by Escape, and has the focus come back', async (t) => {
      const p = await opened(t, { phone: small })
      await p.open(places.mailbox)
      for (const leave of [() => p.getByRole('dialog').getByRole('button', { name: 'Cancel', exact: true }).click(), () => p.keyboard.press('Escape')]) {
        await p.getByRole('button', { name: 'More actions' }).click()
        await p.getByRole('button', { name: 'Delete', exact: true }).click()
        await p.getByRole('dialog').getByLabel(/^Type /).fill('not it')
        assert.ok(await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).isDisabled())
        await leave()
        await gone(p)
        await p.waitForFunction(() => document.activeElement?.getAttribute('aria-label') === 'More actions')
      }
    })

    walk('a dialog that the browser closes over our head asks as well', async (t) => {
      const p = await opened(t, { phone: small })
      await p.open(places.groups)
      await openDialog(p, { open: ['Create group'] })
      await top(p).getByLabel('Name', { exact: true }).fill('Kept')
      await p.evaluate(() => document.querySelector('dialog[open]').close())
      await question(p).getByRole('button', { name: 'Keep editing' }).click()
      assert.equal(await top(p).getByLabel('Name', { exact: true }).inputValue(), 'Kept')
      await p.keyboard.press('Escape')
      await question(p).getByRole('button', { name: 'Discard' }).click()
      await gone(p)
      await p.waitForFunction(() => document.activeElement?.textContent.trim() === 'Create group')
    })
  }

  test('each dialog of the team’s pages is among them', async () => {
    const folder = new URL('../src/pages/', import.meta.url), counts = {}
    for (const file of await readdir(folder, { recursive: true })) {
      if (!file.endsWith('.tsx') || /^(inbox\/|operator\/|gate\/again)/.test(file)) continue // those have walks of their own
      const text = await readFile(new URL(file, folder), 'utf8'), n = text.split('<Dialog ').length - 1
      if (n > 0) counts[file.replace('.tsx', '')] = n
      for (const row of dialogs.filter((row) => row.file + '.tsx' === file && row.shows && !row.open)) assert.ok(!text.includes('<Form'), row.file)
    }
    const known = {}
    for (const { file } of dialogs) known[file] = (known[file] ?? 0) + 1
    assert.deepEqual(known, Object.fromEntries(Object.entries(counts).sort()))
  })
})

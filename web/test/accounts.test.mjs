// The operator's accounts: added, limited, looked at, suspended, signed in to by a link, deleted
// and kept.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { account, browser, domain, here, mailbox, main, owner, page, shot, sound, toast, unique, until } from './rig.mjs'

const wide = { width: 1440, height: 900 }
const dialog = (p) => p.getByRole('dialog')

let people // other accounts, one for each width, with a domain and a mailbox

before(async () => {
  people = await Promise.all(['wide', 'small'].map(async (word) => {
    const a = await account(unique('tenant-' + word) + '@people.test')
    a.id = (await a.api('GET', '/v1/account')).id
    a.domain = await domain(unique('tenant') + '.test', a)
    a.box = await mailbox(a.domain, 'ann', a)
    return a
  }))
})

/** A page of the operator, who has just signed in, as changes of accounts need it. */
async function operator(t, small, more = {}) {
  const p = await page(t, { as: { ...owner }, phone: small, ...more })
  if (!small) await p.setViewportSize(wide)
  return p
}

/** Opens the list of accounts with those of an owner: other walks make many. */
async function look(p, email) {
  await p.open('/accounts?q=' + encodeURIComponent(email))
  await main(p).getByText(email).first().waitFor()
}

/** Looks at a page in both themes. */
async function seen(p, name) {
  for (const colorScheme of ['light', 'dark']) {
    await p.emulateMedia({ colorScheme })
    await p.waitForFunction((to) => document.documentElement.dataset.theme === to, colorScheme)
    await sound(p, `${name}, ${colorScheme}`, { moderate: true, colours: true })
    await shot(p, `${name}-${colorScheme}`, { whole: true })
  }
}

/** The account as the API shows it to the operator. */
async function stored(p, id) {
  return (await p.context().request.get(`${here.url}/v1/accounts/${id}`)).json()
}

for (const small of [false, true]) {
  describe('accounts' + (small ? ' on a phone' : ''), () => { // one after the other, since each changes the same account
    const where = small ? ' on a phone' : '', tail = small ? '-phone' : ''

    test('an account is added, and its owner gets a link' + where, async (t) => {
      const p = await operator(t, small, { expect: [/status of 403/] }), name = unique('Far & Co'), email = unique('far') + '@else.test'
      await look(p, 'owner@example.org')
      await p.getByRole('button', { name: 'Add account' }).click()
      await dialog(p).getByLabel('Name', { exact: true }).fill(name)
      await dialog(p).getByLabel('Owner’s email').fill('owner@example.org')
      await dialog(p).getByRole('button', { name: 'Add account' }).click()
      await dialog(p).getByText('Another user has this email address').waitFor()
      await dialog(p).getByLabel('Owner’s email').fill(email)
      await seen(p, 'accounts-add' + tail)
      await dialog(p).getByRole('button', { name: 'Add account' }).click()
      const link = await dialog(p).getByRole('region', { name: 'Link' }).innerText()
      assert.match(link, /\/reset\?token=\S+$/)
      await seen(p, 'accounts-added' + tail)
      await dialog(p).getByRole('button', { name: 'Close' }).click()
      await main(p).getByLabel('Search by name or owner').fill(name.toLowerCase())
      const rows = main(p).getByRole('table', { name: 'Accounts' }).locator('.virtual').getByRole('row')
      await until('the list has it alone', async () => await rows.count() === 1 && (await rows.first().innerText()).includes(email))
      await main(p).getByLabel('Status').selectOption('suspended')
      await main(p).getByText('No accounts match').waitFor()
      await main(p).getByRole('button', { name: 'Clear filters' }).click()
      await until('the list has others', async () => await rows.count() > 1)
      await seen(p, 'accounts' + tail)
    })

    test('limits are set, refused and taken back, with the use and the server’s own limits beside them' + where, async (t) => {
      const a = people[Number(small)], p = await operator(t, small, { expect: [/status of 400/] })
      await look(p, a.email)
      await main(p).getByText(a.email).first().click()
      await main(p).getByRole('heading', { level: 1, name: a.email }).waitFor()
      const field = (name) => main(p).getByLabel(name, { exact: true })
      await until('the limits of the server show', async () => await field('Domains').getAttribute('placeholder') === '500')
      assert.equal(await field('Storage').getAttribute('placeholder'), 'No limit')
      await main(p).getByText('1 used', { exact: true }).first().waitFor()
      const bar = p.getByRole('form', { name: 'Unsaved changes' }), save = bar.getByRole('button', { name: 'Save' })
      assert.equal(await save.count(), 0, 'nothing was changed')
      await field('Domains').fill('many')
      await main(p).getByText('Enter a whole number').waitFor()
      await save.click()
      await bar.getByText('Not saved').waitFor()
      await field('Domains').fill('7')
      await bar.getByText('Unsaved changes').waitFor()
      assert.equal(await p.getByText('Enter a whole number').count(), 0, 'it is one now')
      await field('Storage').fill('0.5')
      await field('Recipients per day').fill('0')
      await seen(p, 'account-limits' + tail)
      await save.click()
      await toast(p, 'Saved')
      const { limits } = await stored(p, a.id)
      assert.deepEqual([limits.domains, limits.storage_bytes, limits.recipients_per_account_per_day, limits.email_users], [7, 2 ** 29, 0, null])
      assert.equal((await a.api('GET', '/v1/account')).domains_limit, 7)
      await field('Domains').fill('')
      await save.click()
      await until('the limit is the server’s again', async () => (await stored(p, a.id)).limits.domains === null)
      await save.waitFor({ state: 'detached' })
      await field('Mailboxes').fill('9999999999')
      await save.click()
      await bar.getByText('Not saved').waitFor()
      await main(p).getByRole('alert').first().waitFor()
      assert.equal((await stored(p, a.id)).limits.email_users, null)
      await bar.getByRole('button', { name: 'Discard' }).click()
      await field('Name').fill('Harbour & Sons')
      await save.click()
      await p.getByRole('heading', { level: 1 }).getByText('Harbour & Sons').waitFor()
    })

    test('the use of each day is drawn' + where, async (t) => {
      const a = people[Number(small)], p = await operator(t, small), asked = []
      await p.route('**/v1/accounts/*/usage?*', async (route) => {
        asked.push(new URL(route.request().url()).searchParams.get('from'))
        const days = Array.from({ length: 30 }, (_, i) => ({ date: new Date(Date.now() - (29 - i) * 86_400_000).toISOString().slice(0, 10), sent: 20 + i, received: 50 + 2 * i, bounced: i % 7 === 0 ? 2 : 0, complained: 0, storage_bytes: (i + 1) * 2 ** 21, mailboxes: 1, domains: 1 }))
        await route.fulfill({ json: { data: days.filter((_, i) => i !== 9), count: 29 } }) // of one day nothing is known
      })
      await p.open('/accounts/' + a.id)
      const card = main(p).locator('.card', { has: p.getByRole('heading', { name: 'Usage' }) })
      await card.locator('canvas').nth(1).waitFor()
      await card.getByText('Storage by day: 2.0 MiB on the first day, 60.0 MiB on the last').waitFor({ state: 'attached' })
      await card.getByText('60.0 MiB', { exact: true }).waitFor()
      await seen(p, 'account-usage' + tail)
      await card.getByLabel('Period').selectOption('400')
      await until('more is asked for', () => asked.length > 1 && Date.now() - Date.parse(asked.at(-1)) > 398 * 86_400_000)
    })

    test('an account is suspended, resumed, deleted and kept' + where, async (t) => {
      const a = people[Number(small)], p = await operator(t, small), status = async () => (await stored(p, a.id)).status
      const badge = (word) => p.getByRole('heading', { level: 1 }).getByText(word, { exact: true }).waitFor()
      await p.open('/accounts/' + a.id)
      await p.getByRole('button', { name: 'Suspend', exact: true }).click()
      await dialog(p).getByText('no mail is received or sent').waitFor()
      await dialog(p).getByRole('button', { name: 'Suspend', exact: true }).click()
      await toast(p, 'Account suspended')
      await badge('suspended')
      assert.equal(await status(), 'suspended')
      assert.equal(await p.getByRole('button', { name: 'Sign-in link' }).count(), 0)
      await seen(p, 'account-suspended' + tail)
      await p.getByRole('button', { name: 'Resume' }).click()
      await badge('active')
      assert.equal(await status(), 'active')

      await p.getByRole('button', { name: 'Delete', exact: true }).click()
      await dialog(p).getByText('After 7 days it is deleted').waitFor()
      const sure = dialog(p).getByRole('button', { name: 'Delete account' })
      await dialog(p).getByRole('textbox').fill('another name')
      assert.ok(await sure.isDisabled())
      await dialog(p).getByRole('textbox').fill((await stored(p, a.id)).name)
      await seen(p, 'account-delete' + tail)
      await sure.click()
      await dialog(p).getByText('still points to this server').waitFor()
      await dialog(p).getByText(a.domain.name).waitFor()
      await seen(p, 'account-points-here' + tail)
      await dialog(p).getByRole('button', { name: 'Done' }).click()
      await badge('deleting')
      assert.equal(await status(), 'deleting')
      await main(p).getByText('This account will be deleted.').waitFor()
      await seen(p, 'account-deleting' + tail)
      await p.getByRole('button', { name: 'Cancel deletion' }).click()
      await toast(p, 'Deletion cancelled')
      await badge('active')
      assert.equal((await stored(p, a.id)).delete_at, null)
    })

    test('a sign-in link says what it does, signs in once, and shows in the log of the account' + where, async (t) => {
      const a = await account(unique('helped') + '@people.test'), p = await operator(t, small)
      a.id = (await a.api('GET', '/v1/account')).id
      await p.open('/accounts/' + a.id)
      await p.getByRole('button', { name: 'Sign-in link' }).click()
      await dialog(p).getByText('recorded in the account’s audit log').waitFor()
      await dialog(p).getByText('The owner is told by email').waitFor()
      await seen(p, 'account-link' + tail)
      await dialog(p).getByRole('button', { name: 'Create link' }).click()
      const link = (await dialog(p).getByRole('region', { name: 'Link' }).innerText()).trim()
      assert.match(link, new RegExp(`/sign-in-link/${a.id}\\.\\w{40,}$`))
      await dialog(p).getByText('In this browser it ends your own session').waitFor()
      assert.equal(await dialog(p).getByRole('link', { name: 'Open in this browser' }).getAttribute('href'), link)
      await seen(p, 'account-link-made' + tail)

      const other = await page(t, { as: null, phone: small, expect: [/status of 40[134]/] })
      await other.goto(here.url + new URL(link).pathname)
      const banner = other.getByRole('region', { name: 'Signed in by a link' })
      await banner.getByText('Signed in to').waitFor()
      await other.open('/audit')
      const rows = main(other).getByRole('table', { name: 'Audit log' })
      await rows.getByText('Create sign-in link').waitFor()
      await rows.getByText('The operator').first().waitFor()
      await seen(other, 'account-linked-audit' + tail)
      const again = await (await browser()).newContext()
      t.after(() => again.close())
      assert.equal((await again.request.get(here.url + new URL(link).pathname, { maxRedirects: 0 })).status(), 404)
    })
  })
}

describe('accounts of others', { concurrency: 2 }, () => {
  test('the operator’s own account can be neither suspended nor deleted', async (t) => {
    const p = await operator(t, false)
    await look(p, 'owner@example.org')
    await main(p).getByText('owner@example.org').click()
    await main(p).getByText('This is the account of this server’s operator').waitFor()
    for (const name of ['Suspend', 'Delete', 'Sign-in link']) assert.equal(await p.getByRole('button', { name, exact: true }).count(), 0, name)
    await sound(p, 'the own account', { moderate: true })
  })

  test('where sign-in links are forbidden, the dialog says so', async (t) => {
    const a = people[0], p = await operator(t, false, { expect: [/status of 403/] })
    await p.route('**/sign-in-link', (route) => route.fulfill({ status: 403, json: { error: { code: 'forbidden_role', message: 'The settings of this installation forbid links to sign in: [operator] sign_in_links is false.', request_id: 'req_x' } } }))
    await p.open('/accounts/' + a.id)
    await p.getByRole('button', { name: 'Sign-in link' }).click()
    await dialog(p).getByRole('button', { name: 'Create link' }).click()
    await dialog(p).getByText('Sign-in links are turned off on this server').waitFor()
  })

  test('owners of other accounts neither find nor open the accounts', async (t) => {
    const a = people[0], p = await page(t, { as: a })
    await p.open('/')
    await p.getByRole('link', { name: 'Audit log' }).waitFor()
    assert.equal(await p.locator('.side a[href="/accounts"]').count(), 0)
    for (const path of ['/accounts', '/accounts/' + a.id]) {
      await p.open(path)
      await p.getByText('Only the operator of this server can do this').waitFor()
    }
  })
})

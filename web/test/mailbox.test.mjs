// The pages with tabs, of a mailbox and of a domain: what is changed on any tab is saved by one
// bar, and nothing of it is lost unasked.
import assert from 'node:assert/strict'
import { before, describe } from 'node:test'
import { account, domain, mailbox, on, page, shot, sound, toast, unique, until } from './rig.mjs'

let a, d

before(async () => {
  a = await account(unique('tabs') + '@tabs.test')
  d = await domain(unique('tabs') + '.test', a)
})

const tab = (p, name) => p.getByRole('tab', { name, exact: true })
const bar = (p) => p.getByRole('form', { name: 'Unsaved changes' })
const question = (p) => p.getByRole('dialog', { name: 'Discard changes?' })

/** What was asked to be changed: method, path and body of each request. */
function changes(p) {
  const asked = []
  p.on('request', (r) => { if (/PATCH|PUT|POST|DELETE/.test(r.method()) && r.url().includes('/v1/')) asked.push([r.method(), new URL(r.url()).pathname.split('/').at(-1), r.postDataJSON()]) })
  return asked
}

describe('tabs', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small), name = (n) => n + (small ? '-phone' : '')
    const box = async () => {
      const { user_id } = await mailbox(d, unique('box'), a), at = '/v1/email-users/' + user_id
      return { id: user_id, place: '/mailboxes/' + user_id, get: () => a.api('GET', at), change: (to) => a.api('PATCH', at, to), reply: () => a.api('GET', at + '/vacation') }
    }

    walk('tabs are links: they have addresses, the browser’s buttons lead back, and the keys go through them', async (t) => {
      const b = await box(), p = await page(t, { as: a, phone: small, dark: small })
      await p.open(b.place)
      await p.getByRole('tabpanel', { name: 'Settings' }).waitFor()
      assert.deepEqual(await p.getByRole('tab').allTextContents(), ['Settings', 'Addresses', 'Access', 'Rules', 'Automatic reply'])
      for (const [id, title] of [['addresses', 'Addresses'], ['access', 'Access'], ['rules', 'Rules'], ['reply', 'Automatic reply']]) {
        await tab(p, title).click()
        await p.getByRole('tabpanel', { name: title }).waitFor()
        assert.equal(new URL(p.url()).pathname, `${b.place}/${id}`)
        assert.equal(await p.getByRole('tab', { selected: true }).textContent(), title)
        await p.waitForFunction((title) => document.title.includes(title) && !document.querySelector('.skeleton'), title)
        await sound(p, title, { colours: true })
        await shot(p, name('mailbox-' + id))
        const seen = await p.getByRole('tab', { selected: true }).evaluate((e) => e.getBoundingClientRect().right <= innerWidth && e.getBoundingClientRect().left >= 0)
        assert.ok(seen, 'the open tab is in view')
      }
      if (small) assert.ok(await p.getByRole('tablist').evaluate((e) => e.scrollWidth > e.clientWidth), 'the tabs scroll')
      await p.goBack()
      await p.getByRole('tabpanel', { name: 'Rules' }).waitFor()
      await p.reload()
      await p.getByRole('tabpanel', { name: 'Rules' }).waitFor()
      await tab(p, 'Rules').focus()
      await p.keyboard.press('ArrowRight')
      await p.keyboard.press('ArrowRight') // past the last one to the first
      assert.equal(await p.evaluate(() => document.activeElement.textContent), 'Settings')
      await p.keyboard.press('End')
      await p.keyboard.press('ArrowLeft')
      await p.keyboard.press('ArrowLeft')
      await p.keyboard.press('Enter')
      await p.getByRole('tabpanel', { name: 'Access' }).waitFor()
      assert.equal(await p.evaluate(() => document.activeElement.textContent), 'Access', 'the focus stays on the tab')
      await p.keyboard.press('Home')
      await p.keyboard.press(' ')
      await p.getByRole('tabpanel', { name: 'Settings' }).waitFor()
      await p.open(b.place + '/nothing')
      await p.getByRole('heading', { name: 'Page not found' }).waitFor()
    })

    walk('one bar saves what was changed on several tabs, and nothing else', async (t) => {
      const b = await box(), alias = unique('alias') + '@' + d.name, p = await page(t, { as: a, phone: small })
      await p.open(b.place)
      const asked = changes(p)
      await p.getByLabel('Footer').waitFor()
      assert.equal(await bar(p).count(), 0, 'there is no bar before a change')
      await p.getByLabel('Display name').fill('Harbour Mistress')
      await bar(p).waitFor()
      await sound(p, 'the save bar', { colours: true })
      await shot(p, name('save-bar'))
      assert.ok(await bar(p).evaluate((e) => e.getBoundingClientRect().bottom <= innerHeight), 'the bar is in view')
      await tab(p, 'Addresses').click()
      await bar(p).waitFor()
      await p.getByRole('textbox', { name: 'Addresses' }).fill(alias)
      await tab(p, 'Automatic reply').click()
      await p.getByLabel('Answer new mail').check()
      await p.getByLabel('Text', { exact: true }).fill('I am at sea.')
      await tab(p, 'Settings').click()
      assert.equal(await p.getByLabel('Display name').inputValue(), 'Harbour Mistress', 'the tabs keep what was typed')
      await b.change({ footer: 'Of somebody else.' })
      await until('the page shows what others change', async () => await p.getByLabel('Footer').inputValue() === 'Of somebody else.')
      assert.equal(await p.getByLabel('Display name').inputValue(), 'Harbour Mistress')
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await toast(p, 'Saved. New mail is answered.')
      await bar(p).waitFor({ state: 'detached' })
      assert.deepEqual(asked.map(([method, path, body]) => [method, path === b.id ? 'mailbox' : path, Object.keys(body).sort().join()]), [['PATCH', 'mailbox', 'aliases,name'], ['PUT', 'vacation', 'enabled,ends_at,from,starts_at,subject,text']])
      const now = await b.get()
      assert.deepEqual([now.name, now.footer, now.aliases], ['Harbour Mistress', 'Of somebody else.', [alias]])
      assert.equal((await b.reply()).text, 'I am at sea.')
    })

    walk('Discard takes back, Ctrl-S and Enter save', async (t) => {
      const b = await box(), { name: first } = await b.get(), p = await page(t, { as: a, phone: small })
      await p.open(b.place)
      const asked = changes(p), field = p.getByLabel('Display name')
      await field.fill('Nobody')
      await p.getByLabel('Relay').fill('nowhere')
      await bar(p).getByRole('button', { name: 'Discard' }).click()
      await bar(p).waitFor({ state: 'detached' })
      assert.deepEqual([await field.inputValue(), await p.getByLabel('Relay').inputValue()], [first, ''])
      await field.fill('Typed')
      await field.fill(first)
      await bar(p).waitFor({ state: 'detached' }) // what is as it was is no change
      await p.keyboard.press('Control+s')
      await field.fill('By a key')
      await p.keyboard.press('Control+s')
      await until('it is saved', async () => (await b.get()).name === 'By a key')
      await bar(p).waitFor({ state: 'detached' })
      await field.fill('By Enter')
      await field.press('Enter')
      await until('it is saved as well', async () => (await b.get()).name === 'By Enter')
      await bar(p).waitFor({ state: 'detached' })
      assert.equal(asked.length, 2)
    })

    walk('leaving the page asks first, whichever way', async (t) => {
      const b = await box(), p = await page(t, { as: a, phone: small, expect: [/status of 401/] })
      await p.open('/mailboxes')
      await p.getByRole('link', { name: d.name }).first().waitFor()
      await p.getByRole('searchbox').fill((await b.get()).email)
      await p.getByRole('table', { name: 'Mailboxes' }).getByRole('link').filter({ hasText: (await b.get()).email }).click()
      const field = p.getByLabel('Display name')
      await field.fill('Not yet saved')
      const stays = async (how) => {
        await question(p).waitFor()
        await sound(p, how)
        await question(p).getByRole('button', { name: 'Keep editing' }).click()
        await question(p).waitFor({ state: 'detached' })
        assert.equal(new URL(p.url()).pathname, b.place, how)
        assert.equal(await field.inputValue(), 'Not yet saved', how)
      }
      await p.getByRole('main').getByRole('link', { name: 'Mailboxes' }).click()
      await stays('by a link')
      await p.goBack()
      await stays('by the browser’s button')
      await tab(p, 'Access').click()
      await tab(p, 'Settings').click()
      assert.equal(await question(p).count(), 0, 'not from tab to tab')
      if (small) await p.getByRole('button', { name: 'Navigation' }).click()
      await p.getByRole('button', { name: 'Sign out', exact: true }).click()
      await stays('by signing out')
      const closing = p.waitForEvent('dialog')
      await p.close({ runBeforeUnload: true })
      const asks = await closing
      assert.equal(asks.type(), 'beforeunload')
      await asks.dismiss()
      await p.goBack() // from the second time on Settings
      await p.goBack()
      await p.goBack()
      await question(p).getByRole('button', { name: 'Discard' }).click()
      await p.getByRole('heading', { level: 1, name: 'Mailboxes' }).waitFor()
      assert.notEqual((await b.get()).name, 'Not yet saved')
    })

    walk('an error stands at its field, once, and opens its tab', async (t) => {
      const b = await box(), p = await page(t, { as: a, phone: small, expect: [/status of 400/] })
      await p.open(b.place + '/addresses')
      await p.getByRole('textbox', { name: 'Addresses' }).fill('me@nobody-connected-it.test')
      await tab(p, 'Settings').click()
      await p.getByLabel('Display name').fill('With an error')
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await p.getByRole('tabpanel', { name: 'Addresses' }).waitFor()
      const field = p.getByRole('textbox', { name: 'Addresses' }).and(p.locator('[aria-invalid=true]'))
      await field.waitFor()
      await until('it has the focus', () => field.evaluate((e) => e === document.activeElement))
      const said = await p.locator('.wrong').allTextContents()
      assert.equal(said.length, 1)
      assert.match(said[0], /nobody-connected-it\.test/i)
      await bar(p).getByText('Not saved').waitFor()
      assert.equal((await p.locator('body').innerText()).split(said[0]).length, 2, 'it is said once')
      await sound(p, 'an error on another tab', { colours: true })
      await shot(p, name('save-error'))
      const alias = unique('alias') + '@' + d.name
      await p.getByRole('textbox', { name: 'Addresses' }).fill(alias)
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await bar(p).waitFor({ state: 'detached' })
      assert.deepEqual([(await b.get()).name, (await b.get()).aliases], ['With an error', [alias]])
      await p.getByRole('tab', { name: 'Automatic reply' }).click()
      await p.getByLabel('Answer new mail').check()
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await p.getByLabel('Text', { exact: true }).and(p.locator('[aria-invalid=true]')).waitFor()
    })

    walk('the settings of a domain are saved by one bar too', async (t) => {
      const one = await domain(unique('tabs') + '.test', a), get = () => a.api('GET', '/v1/domains/' + one.id)
      const p = await page(t, { as: a, phone: small, dark: small, expect: [/status of 400/] })
      await p.open(`/domains/${one.id}/mail`)
      await p.getByRole('tabpanel', { name: 'Mail and web' }).waitFor()
      await p.getByLabel('Deliver to').fill('nobody@' + one.name)
      await p.getByLabel('Redirect to').fill('https://elsewhere.example/')
      await tab(p, 'Settings').click()
      await p.getByLabel('Notes').fill('Ask Anna first.')
      await p.getByLabel('New tags').fill('north, harbour')
      await tab(p, 'DMARC policy').click()
      await p.getByRole('radio', { name: 'None' }).check()
      await tab(p, 'Settings').click()
      await sound(p, 'the settings of a domain', { colours: true })
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await p.getByLabel('Deliver to').and(p.locator('[aria-invalid=true]')).waitFor() // on its tab
      await sound(p, 'an error of a domain', { colours: true })
      let now = await get()
      assert.equal(now.redirect.url, 'https://elsewhere.example/', 'what has no error is saved')
      assert.match(now.dmarc_override.value, /p=none/)
      assert.equal(now.notes, null)
      await p.getByRole('button', { name: 'Remove catch-all' }).click()
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await bar(p).waitFor({ state: 'detached' })
      now = await get()
      assert.deepEqual([now.notes, now.tags, now.catch_all], ['Ask Anna first.', ['north', 'harbour'], null])
      await p.getByRole('button', { name: 'Remove redirect' }).click()
      await p.getByRole('main').getByRole('link', { name: 'Domains' }).click()
      await question(p).getByRole('button', { name: 'Keep editing' }).click()
      await bar(p).getByRole('button', { name: 'Save' }).click()
      await bar(p).waitFor({ state: 'detached' })
      assert.equal((await get()).redirect, null)
    })
  }
})

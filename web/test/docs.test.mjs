// The documentation of the server: a guide, a page of the reference and the search, on a wide
// screen and on a phone, light and dark, with the keyboard alone, and without scripts.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { base, browser, page, shot, sound } from './rig.mjs'

const soak = Boolean(process.env.MAILSTEAD_SOAK || process.env.MAILSTEAD_SHOTS)
const pages = { index: '/docs', guide: '/docs/performance', group: '/docs/api/tokens', search: '/docs/search?q=mailbox' }
if (soak) Object.assign(pages, { configuration: '/docs/configuration', pictures: '/docs/dashboard', overview: '/docs/api', inbox: '/docs/api/inbox', events: '/docs/api/events', errors: '/docs/api/errors', 'search-empty': '/docs/search?q=zzzz', missing: '/docs/nowhere' })

for (const small of [false, true]) {
  for (const dark of [false, true]) {
    test(`the docs are sound ${small ? 'on a phone' : 'on a wide screen'}, ${dark ? 'dark' : 'light'}`, async (t) => {
      const p = await page(t, { phone: small, dark, as: null, expect: [/status of 404/] })
      for (const [name, path] of Object.entries(pages)) {
        await p.open(path)
        await p.getByRole('heading', { level: 1 }).waitFor()
        await shot(p, `docs-${name}${small ? '-phone' : ''}${dark ? '-dark' : ''}`)
        await sound(p, `${name} ${small} ${dark}`, { colours: true })
      }
      const paper = await p.evaluate(() => getComputedStyle(document.body).backgroundColor)
      assert.equal(paper, dark ? 'rgb(18, 21, 19)' : 'rgb(246, 246, 242)')
    })
  }
}

test('the docs are searched with the keyboard', async (t) => {
  const p = await page(t, { as: null })
  await p.open('/docs/sending')
  await p.keyboard.press('/')
  const field = p.getByRole('searchbox', { name: 'Search the docs' })
  assert.ok(await field.evaluate((e) => e === document.activeElement))
  await p.keyboard.type('list_inbox')
  const results = p.locator('#found a')
  await results.first().waitFor()
  assert.equal(await results.first().getAttribute('href'), '/docs/api/inbox#list_inbox')
  await p.waitForFunction(() => /result/.test(document.getElementById('found-count').textContent))
  await shot(p, 'docs-found')
  await sound(p, 'results below the field')
  await p.keyboard.press('ArrowDown')
  await p.keyboard.press('ArrowDown')
  assert.ok(await results.nth(1).evaluate((e) => e === document.activeElement))
  await p.keyboard.press('ArrowUp')
  await p.keyboard.press('ArrowUp')
  assert.ok(await field.evaluate((e) => e === document.activeElement))
  await p.keyboard.press('Escape')
  await p.locator('#found').waitFor({ state: 'hidden' })
  await p.keyboard.press('Control+a')
  await p.keyboard.type('certificate')
  await results.first().waitFor()
  await p.keyboard.press('ArrowDown')
  await p.keyboard.press('Enter')
  await p.waitForURL(/\/docs\/certificates/)
  await field.fill('zzzz')
  await field.press('Enter')
  await p.waitForURL('**/docs/search?q=zzzz')
  await p.getByText('No results').first().waitFor()
})

test('the language of examples is chosen once', async (t) => {
  const p = await page(t, { as: null })
  await p.open('/docs/api/webhooks')
  const shown = () => p.locator('.choice').evaluateAll((all) => all.map((c) => [...c.querySelectorAll('pre')].filter((pre) => pre.checkVisibility()).map((pre) => pre.textContent.split('\n')[0]).join()))
  assert.ok((await shown()).every((text) => text.startsWith('curl ')))
  await p.getByRole('radio', { name: 'curl' }).first().focus()
  await p.keyboard.press('ArrowRight')
  await p.keyboard.press('ArrowRight')
  assert.ok((await shown()).every((text) => text.startsWith('import ')), 'the arrows choose Python, for all of the page')
  await p.open('/docs/api/account')
  assert.ok((await shown()).every((text) => text.startsWith('import ')), 'and for the next page')
  await p.getByRole('button', { name: 'Copy' }).first().click()
  await p.getByRole('button', { name: 'Copied' }).waitFor()
  assert.match(await p.evaluate(() => navigator.clipboard.readText()), /^import /)
})

test('the docs take the theme that was chosen in the dashboard', async (t) => {
  const p = await page(t, { as: null })
  await p.open('/docs')
  await p.evaluate(() => localStorage.setItem('theme', 'dark'))
  await p.open('/docs/sending')
  assert.equal(await p.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(18, 21, 19)')
})

test('the contents of the docs cover a phone and leave it', async (t) => {
  const p = await page(t, { as: null, phone: true })
  await p.open('/docs/sending')
  const contents = p.getByRole('navigation', { name: 'Contents' })
  assert.equal(await contents.isVisible(), false)
  await p.getByRole('link', { name: 'Contents' }).click()
  await contents.waitFor()
  await shot(p, 'docs-contents-phone')
  await sound(p, 'contents')
  await p.getByRole('link', { name: 'Close' }).click()
  await contents.waitFor({ state: 'hidden' })
  await p.getByRole('link', { name: 'Contents' }).click()
  await contents.getByText('Mail', { exact: true }).click()
  await contents.getByRole('link', { name: 'IMAP' }).click()
  await p.waitForURL('**/docs/imap')
  assert.equal(await contents.isVisible(), false)
})

test('without scripts the docs are searched by the server, and examples are there', async (t) => {
  const context = await (await browser()).newContext({ javaScriptEnabled: false })
  t.after(() => context.close())
  const p = await context.newPage()
  await p.goto(base + '/docs/api/webhooks')
  await p.getByRole('radio', { name: 'Go' }).first().check()
  await p.getByText('package main').first().waitFor()
  await p.getByRole('searchbox').fill('dkim')
  await p.getByRole('searchbox').press('Enter')
  await p.waitForURL('**/docs/search?q=dkim')
  assert.ok(await p.locator('main .results li').count() > 3)
  await p.locator('main .results a').first().click()
  await p.waitForURL((url) => !url.pathname.includes('/search'))
})

// Every page, with something to show: on a wide screen and on a phone, light and dark; in CI half of them on a wide screen,
// the others on a phone. axe finds nothing serious, nothing scrolls sideways, and nothing is said on the console or asked
// of elsewhere.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { brief, fresh, page, shot, sound } from './rig.mjs'
import { harbour, ill, placesOf } from './harbour.mjs'

const soak = Boolean(process.env.MAILSTEAD_SOAK)

let h, places

before(async () => {
  h = await harbour(process.env.MAILSTEAD_SHOTS && '') // pictures have simple names
  places = await placesOf(h)
})

/**
 * Goes to a place as a link does, without loading everything again: make soak does load each. Where an address has a query,
 * or something lies over the page, it is loaded all the same.
 */
async function goTo(p, path) {
  if (soak || path.includes('?') || p.url() === 'about:blank' || await p.locator('dialog[open], .compose-dock').count() > 0) return p.open(path)
  const go = (path) => p.evaluate((path) => {
    history.pushState(null, '', path)
    dispatchEvent(new PopStateEvent('popstate'))
  }, path)
  const nowhere = p.getByRole('heading', { level: 1, name: 'Not found', exact: true })
  await go('/nowhere')
  await nowhere.waitFor()
  if (path === '/nowhere') return
  await go(path)
  await nowhere.waitFor({ state: 'detached' })
}

/** Waits until all that a page reads is there. */
async function settled(p) {
  await p.locator('h1').first().waitFor({ state: 'attached' })
  await p.waitForFunction(() => !document.querySelector('.skeleton'))
}

/**
 * Looks at a page in one theme: the light one on a wide screen, the dark one on a phone. Colours do not depend on the width,
 * so that both themes are seen; the other theme of each width is for the pictures. Nor do most rules, all of which are
 * looked at on a wide screen, and on a phone by make soak.
 */
async function looked(p, name, small) {
  await settled(p)
  await shot(p, name)
  await sound(p, name, small && !soak ? { always: true, only: ['color-contrast', 'target-size', 'scrollable-region-focusable', 'meta-viewport'] } : { always: true, colours: true })
  if (!process.env.MAILSTEAD_SHOTS) return
  const [from, to] = small ? ['dark', 'light'] : ['light', 'dark']
  await p.emulateMedia({ colorScheme: to })
  await p.waitForFunction((to) => document.documentElement.dataset.theme === to, to)
  await sound(p, `${name}, ${to}`, { only: ['color-contrast'] })
  await shot(p, `${name}-${to}`)
  await p.emulateMedia({ colorScheme: from })
}

describe('every page', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    test('is sound ' + (small ? 'on a phone' : 'on a wide screen'), async (t) => {
      const p = await page(t, { phone: small, dark: small, as: h })
      await ill(p, h)
      const faults = []
      for (const [n, [name, path]] of Object.entries(places).entries()) {
        if (brief && small !== (n % 2 === 1)) continue
        await goTo(p, path)
        await looked(p, name + (small ? '-phone' : ''), small).catch((e) => faults.push(name + ': ' + e.message))
        assert.equal(await p.getByRole('main').getByRole('alert').filter({ hasText: 'Couldn’t load this' }).count(), 0, name)
      }
      assert.deepEqual(faults, [])
    })

    test('is sound before one has signed in ' + (small ? 'on a phone' : 'on a wide screen'), async (t) => {
      const p = await page(t, { phone: small, dark: small, as: null, server: fresh, expect: [/status of 40[14]/] })
      for (const [name, path] of Object.entries({ 'sign-in': '/sign-in', forgot: '/forgot', 'welcome-used': '/welcome?token=none', welcome: '/welcome' + new URL(h.invited.reset_link).search })) {
        await p.open(path)
        await looked(p, name + (small ? '-phone' : ''), small)
      }
    })
  }
})

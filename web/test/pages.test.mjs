// Every page, with something to show: on a wide screen and on a phone, light and dark. axe finds nothing serious, nothing
// scrolls sideways, and nothing is said on the console or asked of elsewhere.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { fresh, page, shot, sound } from './rig.mjs'
import { harbour } from './harbour.mjs'

let h, places

before(async () => {
  h = await harbour()
  const { data: jobs } = await h.api('GET', '/v1/jobs?limit=100')
  const letter = (await h.api('GET', `/v1/email-users/${h.box.user_id}/inbox`)).data.find((m) => m.subject.startsWith('Keys'))
  const d = '/domains/' + h.domain.id
  places = {
    overview: '/', inbox: '/inbox', message: `/inbox/${h.box.user_id}/${letter.uid}`, compose: '/compose',
    mailboxes: '/mailboxes', mailbox: '/mailboxes/' + h.box.user_id, bulk: '/mailboxes/bulk', templates: '/mailboxes/templates',
    sent: '/sent', 'sent-bounced': '/sent/' + h.bounced.id, 'sent-deferred': '/sent/' + h.deferred.id, suppressions: '/sent/suppressions', lookup: '/sent/lookup',
    domains: '/domains', domain: d, 'domain-pending': '/domains/' + h.waiting.domain_id, 'domain-manual': '/domains/' + h.manual.domain_id,
    'domain-failing': '/domains/' + h.second.id, add: '/domains/add', buy: '/domains/add?way=buy',
    ...Object.fromEntries(['dns', 'records', 'dmarc', 'mail', 'reports', 'mailboxes', 'jobs', 'settings'].map((tab) => ['domain-' + tab, `${d}/${tab}`])),
    webhooks: '/webhooks', webhook: '/webhooks/' + h.hook.id, 'webhook-failing': '/webhooks/' + h.failing.id, events: '/webhooks/events',
    jobs: '/jobs', job: '/jobs/' + jobs.find((j) => j.status === 'completed').id, 'job-failed': '/jobs/' + jobs.find((j) => j.status === 'completed').id + '?failed',
    team: '/team', tokens: '/tokens', profile: '/profile', account: '/account', connect: '/connect', nowhere: '/nowhere',
  }
})

/** What a young server with a healthy network does not have: failures and a past. */
async function ill(p) {
  await change(p, '**/v1/domains/' + h.second.id, (d) => Object.assign(d, { dns_health: { status: 'failing', checked_at: new Date().toISOString(), failing_since: new Date(Date.now() - 7.2e6).toISOString(),
    issues: [{ code: 'mismatch', purpose: 'MX', host: '@', message: 'Mail for it goes to others: 5 mx.other.example. Remove that.' }] } }))
  await change(p, '**/v1/jobs/*', (j) => p.url().endsWith('?failed') && Object.assign(j, { status: 'error', error: { code: 'ns_timeout', message: 'The nameservers were not changed within 72 hours.' } }))
  await change(p, '**/v1/account/usage', (u) => u.daily.forEach((day, i) => {
    const busy = /^(Sat|Sun)/.test(new Date(day.date).toUTCString()) ? 0.3 : 1
    day.received += Math.round(busy * (60 + 25 * Math.sin(i / 3) + 2 * i))
    day.sent += Math.round(busy * (30 + 10 * Math.cos(i / 2) + i))
    day.bounced += i % 9 === 4 ? 3 : 0
  }))
  await p.route('**/v1/domains/check-provider', (route) => route.fulfill({ json: { domain: route.request().postDataJSON().domain, registrar: 'Walk Registrar', nameservers: ['ns1.walk.example'], is_edge: false } }))
}

async function change(p, what, how) {
  await p.route(what, async (route) => {
    if (route.request().method() !== 'GET') return route.fallback()
    const answer = await route.fetch()
    const json = await answer.json()
    how(json)
    await route.fulfill({ response: answer, json })
  })
}

/** Waits until all that a page reads is there. */
async function settled(p) {
  await p.locator('h1').first().waitFor({ state: 'attached' })
  await p.waitForFunction(() => !document.querySelector('.skeleton'))
}

/**
 * Looks at a page by all rules in one theme, and at its colours in the other one. The colours do not depend on the width:
 * the second look is left out on a phone, unless pictures are wanted.
 */
async function looked(p, name, small) {
  await settled(p)
  await shot(p, name)
  await sound(p, name)
  if (small && !process.env.MAILSTEAD_SHOTS) return
  const [from, to] = small ? ['dark', 'light'] : ['light', 'dark']
  await p.emulateMedia({ colorScheme: to })
  await p.waitForFunction((to) => document.documentElement.dataset.theme === to, to)
  await sound(p, `${name}, ${to}`, ['color-contrast'])
  await shot(p, `${name}-${to}`)
  await p.emulateMedia({ colorScheme: from })
}

describe('every page', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    test('is sound ' + (small ? 'on a phone' : 'on a wide screen'), async (t) => {
      const p = await page(t, { phone: small, dark: small, as: h })
      await ill(p)
      const faults = []
      for (const [name, path] of Object.entries(places)) {
        await p.open(path)
        await looked(p, name + (small ? '-phone' : ''), small).catch((e) => faults.push(e.message))
        assert.equal(await p.getByRole('main').getByRole('alert').filter({ hasText: 'could not be read' }).count(), 0, name)
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

// Long lists: a few lines in the page however many there are, more of them as one scrolls, and the right ones far down.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { account, deliver, domain, mailbox, message, page, shot, unique, until } from './rig.mjs'

const soak = process.env.MAILSTEAD_SOAK === '1'
const mailboxes = soak ? 10_000 : 200 // a domain takes a hundred
const messages = soak ? 5000 : 300

/** Scrolls on until so many lines are known, and gives how many were in the page at most. */
async function scrollTo(p, list, wanted, each) {
  let most = 0
  const step = async () => p.evaluate((list) => {
    const all = document.querySelector(`[aria-label="${list}"].virtual, [aria-label="${list}"] .virtual`)
    let box = all.parentElement
    while (box !== document.documentElement && !(/auto|scroll/.test(getComputedStyle(box).overflowY) && box.scrollHeight > box.clientHeight)) box = box.parentElement
    box.scrollTop = box.scrollHeight
    return { rows: all.children.length, height: all.clientHeight }
  }, list)
  await until(`${wanted} lines of ${list}`, async () => {
    const { rows, height } = await step()
    most = Math.max(most, rows)
    return height >= wanted * each
  }, soak ? 300 : 60)
  return most
}

/** The lines in the page, by their place in the list. */
const lines = (p, list) => p.evaluate((list) => [...document.querySelector(`[aria-label="${list}"].virtual, [aria-label="${list}"] .virtual`).children].map((e) => [Number(e.getAttribute('aria-posinset') ?? e.getAttribute('aria-rowindex') - 1), e.textContent]), list)

describe('long lists', { concurrency: 2 }, () => {
  test(`${mailboxes} mailboxes scroll`, async (t) => {
    const a = await account(unique('long') + '@people.test')
    const name = (n) => 'box' + String(n).padStart(5, '0')
    for (let from = 0; from < mailboxes; from += 100) {
      const d = await domain(unique('long') + '.test', a)
      await a.api('POST', '/v1/email-users/bulk', { domain: d.name, users: Array.from({ length: 100 }, (_, i) => ({ username: name(from + i), password: 'the same for all of them' })) })
    }
    const order = []
    for (let cursor = ''; order.length < mailboxes;) {
      const { data, pagination } = await a.api('GET', '/v1/email-users?limit=100' + cursor)
      order.push(...data.map((u) => u.email))
      if (!pagination.cursor) break
      cursor = '&cursor=' + encodeURIComponent(pagination.cursor)
    }
    assert.equal(order.length, mailboxes)
    const p = await page(t, { as: a })
    await p.open('/mailboxes')
    await p.getByText(order[0]).waitFor()
    const most = await scrollTo(p, 'Mailboxes', mailboxes, 46)
    assert.ok(most < 100, `${most} lines were in the page`)
    await p.evaluate(() => scrollTo(0, document.scrollingElement.scrollHeight))
    await p.getByText(order.at(-1)).waitFor()
    await p.evaluate((at) => scrollTo(0, at), Math.floor(mailboxes * 0.6) * 46)
    const deep = Math.floor(mailboxes * 0.6)
    await p.getByText(order[deep]).waitFor()
    const shown = await lines(p, 'Mailboxes')
    assert.ok(shown.length > 8, `${shown.length} lines are shown`)
    for (const [at, text] of shown) assert.ok(text.includes(order[at - 1]), `line ${at} shows ${text}, not ${order[at - 1]}`)
    await shot(p, 'mailboxes-long')
  })

  test(`an inbox of ${messages} messages scrolls`, async (t) => {
    const a = await account(unique('long') + '@people.test')
    const box = await mailbox(await domain(unique('long') + '.test', a), 'much', a)
    for (let n = 1; n <= messages; n += 20) {
      await Promise.all(Array.from({ length: 20 }, (_, i) => deliver(box.email, message({ to: box.email, subject: `Letter ${n + i} of many` }))))
    }
    const order = []
    await until('all are there', async () => {
      order.length = 0
      for (let cursor = '', more = true; more;) {
        const { data, pagination } = await a.api('GET', '/v1/inbox?limit=100' + cursor)
        order.push(...data.map((m) => m.subject))
        more = pagination.cursor !== null
        cursor = '&cursor=' + encodeURIComponent(pagination.cursor)
      }
      return order.length === messages
    })
    const p = await page(t, { as: a, phone: true })
    await p.open('/inbox')
    await p.getByText(order[0]).waitFor()
    const height = await p.locator('[role=list][aria-label="Messages"] [role=listitem]').first().evaluate((e) => e.clientHeight)
    const most = await scrollTo(p, 'Messages', messages, height)
    assert.ok(most < 100, `${most} lines were in the page`)
    await p.getByText(order.at(-1)).waitFor()
    const shown = await lines(p, 'Messages')
    assert.ok(shown.length > 8, `${shown.length} lines are shown`)
    for (const [at, text] of shown) assert.ok(text.includes(order[at - 1]), `line ${at} shows ${text}, not ${order[at - 1]}`)
  })
})

// The request log and the audit log: what is found in them, where their rows lead, and what they
// never show of others.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { account, domain, here, mailbox, main, owner, page, shot, sound, unique, until } from './rig.mjs'

const { outputFiles: [file] } = await build({ entryPoints: [new URL('../src/pages/operator/curl.ts', import.meta.url).pathname], bundle: true, write: false, format: 'esm' })
const { curlOf, readable } = await import('data:text/javascript,' + encodeURIComponent(file.text))
const run = promisify(execFile)

/**
 * What a real bash hands curl as its arguments, with a program in the place of curl that writes
 * them down.
 */
async function handed(t, command) {
  const dir = await mkdtemp(join(tmpdir(), 'curl-'))
  t.after(() => rm(dir, { recursive: true }))
  await writeFile(join(dir, 'curl'), `#!/bin/sh\nprintf '%s\\0' "$@" >"${dir}/args"\n`, { mode: 0o700 })
  await run('bash', ['-c', command], { cwd: dir, env: { PATH: dir + ':' + process.env.PATH, MAILSTEAD_TOKEN: 'mst_secret' } })
  return (await readFile(join(dir, 'args'), 'utf8')).split('\0').slice(0, -1)
}

test('bash hands curl the body, the address and the method of a request', async (t) => {
  const bodies = [
    { name: 'simple' }, {}, { text: `it's "quoted" and 'single'` }, { text: '$HOME $(id) `id` ${x} !! \\ \\n \\\' * ? [a] {b,c} ~ # ; & | < >' },
    { text: 'line\nbreak\ttab\r\u0000\u001f' }, { 'näme': 'Grüße 日本語 🎉 \u2028 \u202e' }, { list: ["a'b", { deep: ["''", "'", "\\'"] }], n: -1.5, yes: true, none: null }, { long: "'x".repeat(5000) },
  ]
  for (const body of bodies) {
    const args = await handed(t, curlOf({ method: 'PATCH', path: '/v1/domains/dom_1', body }, 'https://mail.example.com').text)
    assert.deepEqual(args, ['-X', 'PATCH', 'https://mail.example.com/v1/domains/dom_1', '-H', 'Authorization: Bearer mst_secret', '-H', 'Content-Type: application/json', '--data-raw', JSON.stringify(body)])
  }
  const path = "/v1/suppressions/it's $HOME `id`+ü?#[1]{2}%@a.test"
  const [url, ...rest] = await handed(t, curlOf({ method: 'GET', path, body: null }, "http://127.0.0.1:8080").text)
  assert.deepEqual(rest, ['-H', 'Authorization: Bearer mst_secret'])
  assert.equal(decodeURIComponent(url), 'http://127.0.0.1:8080' + path)
  assert.doesNotMatch(url, /[?#[\]{} ]/, 'curl neither cuts nor multiplies the address')
})

test('what is not kept is named in the command, and its length in the body', async (t) => {
  const body = { to: ['a@b.test'], subject: { length: 5 }, attachments: [{ filename: { length: 3 }, content: { length: 9 } }], '…': { length: 400 } }
  const { text, missing } = curlOf({ method: 'POST', path: '/v1/x', body }, 'https://m.test')
  assert.deepEqual(JSON.parse((await handed(t, text)).at(-1)), { to: ['a@b.test'], subject: '<subject>', attachments: [{ filename: '<filename>', content: '<content>' }] })
  assert.deepEqual(missing, { fields: ['subject', 'filename', 'content', '…'], body: false })
  assert.match(readable(body), /"subject": ‹5 bytes, not kept›,/)
  const whole = curlOf({ method: 'POST', path: '/v1/x', body: { length: 14 } }, 'https://m.test')
  assert.deepEqual((await handed(t, whole.text)).slice(-2), ['--data-binary', '@FILE'])
  assert.ok(whole.missing.body)
})

const wide = { width: 1440, height: 900 }
const lines = (p, list) => main(p).getByRole('table', { name: list }).locator('.virtual').getByRole('row')

let a, b // two accounts that know nothing of each other

before(async () => {
  for (const word of ['ours', 'theirs']) {
    const one = await account(unique(word) + '@people.test')
    one.domain = await domain(unique(word) + '.test', one)
    one.box = await mailbox(one.domain, 'ann', one)
    await one.api('POST', `/v1/email-users/${one.box.user_id}/inbox/send`, { to: ['far@far.test'], subject: 'It’s ' + word, text: 'Words of ' + word })
    await one.api('POST', '/v1/suppressions', { email: 'no-address' }).catch(() => {})
    await one.api('PATCH', '/v1/domains/' + one.domain.id, { notes: 'Of ' + word })
    if (word === 'ours') a = one
    else b = one
  }
})

async function open(t, small, as, more = {}) {
  const p = await page(t, { as, phone: small, ...more })
  if (!small) await p.setViewportSize(wide)
  return p
}

/** Looks at a page in both themes. */
async function seen(p, name) {
  for (const colorScheme of ['light', 'dark']) {
    await p.emulateMedia({ colorScheme })
    await p.waitForFunction((to) => document.documentElement.dataset.theme === to, colorScheme)
    await sound(p, `${name}, ${colorScheme}`, { moderate: true, colours: true })
    await shot(p, `${name}-${colorScheme}`)
  }
}

/** Waits until a list has so many lines, each of which has the text. */
function shows(p, list, n, text) {
  return until(`${n} lines with ${text}`, async () => {
    const texts = await lines(p, list).allInnerTexts()
    return texts.length === n && texts.every((line) => line.includes(text))
  })
}

describe('logs', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const where = small ? ' on a phone' : '', tail = small ? '-phone' : ''

    test('requests are found by each filter' + where, async (t) => {
      const p = await open(t, small, a)
      await p.open('/requests')
      await lines(p, 'Requests').filter({ hasText: 'send_email' }).waitFor()
      assert.equal(await lines(p, 'Requests').filter({ hasText: 'Dashboard' }).count(), 0, 'apps alone at first')
      await seen(p, 'logs-requests' + tail)
      await main(p).getByLabel('Status', { exact: true }).selectOption('4')
      await shows(p, 'Requests', 1, 'validation_error')
      await main(p).getByRole('button', { name: 'Clear', exact: true }).click()
      await main(p).getByLabel('Method', { exact: true }).selectOption('PATCH')
      await shows(p, 'Requests', 1, 'update_domain')
      await main(p).getByRole('button', { name: 'Clear', exact: true }).click()
      await main(p).getByLabel('Path contains').fill(a.box.user_id)
      await shows(p, 'Requests', 1, 'send_email')
      await main(p).getByLabel('Operation', { exact: true }).fill('list_inbox')
      await main(p).getByText('No requests match').waitFor()
      await seen(p, 'requests-none' + tail)
      await main(p).getByRole('button', { name: 'Clear filters' }).click()
      await lines(p, 'Requests').filter({ hasText: 'send_email' }).waitFor()
      await main(p).getByLabel('Made by', { exact: true }).selectOption('dashboard')
      await lines(p, 'Requests').filter({ hasText: 'list_requests' }).first().waitFor()
      const id = (await a.api('GET', '/v1/requests?operation=send_email')).data[0].request_id
      await main(p).getByRole('button', { name: 'Clear', exact: true }).click()
      await main(p).getByLabel('Request ID').fill(id)
      await shows(p, 'Requests', 1, 'send_email')
    })

    test('a request shows who made it, what was asked and answered, and is copied as curl' + where, async (t) => {
      const p = await open(t, small, a)
      await p.open('/requests?class=4')
      await lines(p, 'Requests').getByRole('link').click()
      await p.getByRole('heading', { level: 1 }).getByText('POST /v1/suppressions').waitFor()
      for (const text of ['create_suppression', 'first token', '127.0.0.1', 'validation_error']) await main(p).getByText(text).first().waitFor()
      await main(p).getByRole('region', { name: 'Body' }).getByText('‹10 bytes, not kept›').waitFor()
      await main(p).getByRole('region', { name: 'Answer' }).getByText('validation_error').waitFor()
      await p.getByRole('button', { name: 'Copy as curl' }).click()
      await p.getByRole('status').getByText('Copied').waitFor()
      const args = await handed(t, await p.evaluate(() => navigator.clipboard.readText()))
      assert.deepEqual(args, ['-X', 'POST', here.url + '/v1/suppressions', '-H', 'Authorization: Bearer mst_secret', '-H', 'Content-Type: application/json', '--data-raw', '{"email":"<email>"}'])
      await seen(p, 'logs-request' + tail)
    })

    test('a sent message and a row of the audit log lead to the request that made them' + where, async (t) => {
      const p = await open(t, small, a)
      await p.open('/sent/' + (await a.api('GET', '/v1/messages?recipient=far@far.test')).data[0].id)
      await main(p).getByRole('link', { name: 'Show request' }).click()
      await p.getByRole('heading', { level: 1 }).getByText(`POST /v1/email-users/${a.box.user_id}/inbox/send`).waitFor()
      assert.equal(await main(p).getByText('Words of ours').count(), 0, 'the text is not kept')
      await p.open('/audit?action=update_domain')
      await lines(p, 'Audit log').getByRole('link', { name: 'API' }).click()
      await p.getByRole('heading', { level: 1 }).getByText(`PATCH /v1/domains/${a.domain.id}`).waitFor()
      await p.goBack()
      await lines(p, 'Audit log').getByRole('link', { name: a.domain.name }).click()
      await p.getByRole('heading', { level: 1 }).getByText(a.domain.name).waitFor()
    })

    test('the audit log is found by each filter' + where, async (t) => {
      const p = await open(t, small, a)
      await p.open('/audit')
      await lines(p, 'Audit log').filter({ hasText: 'Update domain' }).waitFor()
      await lines(p, 'Audit log').filter({ hasText: 'Sign in' }).first().waitFor()
      await seen(p, 'logs-audit' + tail)
      await main(p).getByLabel('Action', { exact: true }).fill('update_domain')
      await shows(p, 'Audit log', 1, 'notes')
      await main(p).getByRole('button', { name: 'Clear', exact: true }).click()
      await main(p).getByLabel('Record', { exact: true }).fill(a.box.email)
      await shows(p, 'Audit log', 1, 'Create mailbox')
      await main(p).getByLabel('By', { exact: true }).fill('nobody')
      await main(p).getByText('No rows match').waitFor()
      await main(p).getByRole('button', { name: 'Clear filters' }).click()
      const day = await p.evaluate(() => { const d = new Date(); return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 10) })
      await main(p).getByLabel('Since').fill(day)
      await main(p).getByLabel('Until').fill(day)
      await lines(p, 'Audit log').filter({ hasText: 'Update domain' }).waitFor()
      await main(p).getByLabel('Until').fill('2026-01-02')
      await main(p).getByLabel('Since').fill('')
      await main(p).getByText('No rows match').waitFor()
    })

    test('nobody sees the requests and rows of another account' + where, async (t) => {
      const p = await open(t, small, b, { expect: [/status of 404/] })
      await p.open('/requests?by=all&operation=send_email')
      await lines(p, 'Requests').filter({ hasText: 'send_email' }).waitFor()
      assert.equal(await main(p).getByText(a.box.user_id).count(), 0)
      const theirs = (await a.api('GET', '/v1/requests?operation=send_email')).data[0].request_id
      await p.open('/requests?by=all&id=' + theirs)
      await main(p).getByText('No requests match').waitFor()
      await p.open('/requests/' + theirs)
      await main(p).getByText('Not in the log').waitFor()
      await seen(p, 'request-none' + tail)
      await p.open('/audit')
      await lines(p, 'Audit log').filter({ hasText: b.domain.name }).first().waitFor()
      for (const text of [a.domain.name, a.box.email, a.email]) assert.equal(await main(p).getByText(text).count(), 0, text)
      await main(p).getByLabel('Record', { exact: true }).fill(a.domain.name)
      await main(p).getByText('No rows match').waitFor()
    })
  }

  test('the page goes on through more requests than one answer has', async (t) => {
    const c = await account(unique('many') + '@people.test')
    for (let n = 0; n < 120; n += 10) await Promise.all(Array.from({ length: 10 }, () => c.api('GET', '/v1/account')))
    const p = await open(t, false, c)
    await p.open('/requests?operation=get_account')
    await lines(p, 'Requests').first().waitFor()
    await until('all of them are read', () => p.evaluate(() => {
      scrollTo(0, document.scrollingElement.scrollHeight)
      return document.querySelector('[role=table][aria-label=Requests]').ariaRowCount === '121'
    }))
  })

  test('the operator’s log has a sign-in link, and the row leads to the account', async (t) => {
    const c = await account(unique('linked') + '@people.test'), { id } = await c.api('GET', '/v1/account')
    const p = await open(t, false, { ...owner })
    const made = await p.context().request.post(`${here.url}/v1/accounts/${id}/sign-in-link`, { headers: { Origin: here.url }, data: {} })
    assert.equal(made.status(), 200)
    await p.open('/audit?action=create_sign_in_link&target=' + id)
    const row = lines(p, 'Audit log')
    await row.getByText('Create sign-in link').waitFor()
    await row.getByText('owner@example.org').waitFor()
    await row.getByRole('link', { name: c.email }).click()
    await p.getByRole('heading', { level: 1 }).getByText(c.email).waitFor()
  })
})

// The operator's host and backups, on a server of their own: what is wrong and what to do, backups
// made by hand, and a drill that finds a changed byte.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { account, choosePassword, deliver, domain, launch, mailbox, main, message, page, shot, sound, unique, until } from './rig.mjs'

const moderate = { moderate: true, colours: true }
const card = (p, name) => p.locator('.card', { has: p.getByRole('heading', { name, exact: true, level: 2 }) })

let own, operator

/** Looks at a page in both themes. */
async function looked(p, name, small) {
  for (const scheme of small ? ['dark', 'light'] : ['light', 'dark']) {
    await p.emulateMedia({ colorScheme: scheme })
    await p.waitForFunction((scheme) => document.documentElement.dataset.theme === scheme, scheme)
    await sound(p, `${name}, ${scheme}`, moderate)
    await shot(p, `${name}-${scheme}${small ? '-phone' : ''}`, { whole: true })
  }
}

/** A page of the operator's, at one of the two widths. */
async function open(t, path, small, more = {}) {
  const p = await page(t, { as: operator, phone: small, ...more })
  if (!small) await p.setViewportSize({ width: 1440, height: 900 })
  await p.open(path)
  return p
}

/** Changes a byte in the middle of a file, or changes it back. */
async function flip(file) {
  const data = await readFile(file)
  data[data.length >> 1] ^= 4
  await writeFile(file, data)
}

/** The files of the newest backup below a folder of the place of backups. */
async function stored(kind) {
  const names = await readdir(join(own.dir, 'backups', kind))
  return names.sort().map((name) => ({ name: `${kind}/${name}`, path: join(own.dir, 'backups', kind, name) }))
}

describe('the host', () => {
  before(async () => {
    own = await launch((dir) => `[backup]\nto = ${JSON.stringify(join(dir, 'backups'))}\n`)
    operator = await choosePassword(own.owner)
    const d = await domain(unique('host') + '.test', own), box = await mailbox(d, 'ann', own)
    for (let n = 0; n < 5; n++) await deliver(box.email, message({ to: box.email, subject: 'Letter ' + n, text: 'words '.repeat(2000) }), 'stranger@elsewhere.test', own.server)
    await until('there is a backup', async () => (await own.api('GET', '/v1/health')).backup.last_success_at)
    await promisify(execFile)(process.env.MAILSTEAD_BIN, ['backup', '--data', own.server.data, '--full', '--to', join(own.dir, 'backups')]) // one that has the letters in a segment
  })
  after(() => own.stop())

  test('without problems, the checks are folded, and can be made now', async (t) => {
    const p = await open(t, '/host', false)
    await card(p, 'Checks').getByText('No problems found.').waitFor()
    const passed = main(p).locator('details').filter({ hasText: 'passed' })
    assert.equal(await passed.getByText('Backups', { exact: true }).isVisible(), false)
    await passed.locator('summary').click()
    await passed.getByText('Backups', { exact: true }).waitFor()
    await main(p).locator('summary').filter({ hasText: 'skipped' }).click()
    await p.getByText('This is the sandbox, which nobody outside reaches.').first().waitFor()
    const before = (await own.api('GET', '/v1/health')).checked_at
    await p.getByRole('button', { name: 'Check now' }).click()
    await p.getByText('All checks done.').waitFor()
    assert.ok((await own.api('GET', '/v1/health')).checked_at > before, 'they were made')
    const { version } = await own.api('GET', '/v1/health')
    await card(p, 'Server').getByText(version, { exact: true }).waitFor()
    await card(p, 'Disk').getByText('Used by Mailstead').waitFor()
    await card(p, 'Outgoing queue').getByText('nothing is waiting').waitFor()
    await card(p, 'Certificate').getByText('speaks no TLS itself').waitFor()
  })

  for (const small of [false, true]) {
    const where = small ? ' on a phone' : ''

    test('errors come before warnings, each with what to do and where' + where, async (t) => {
      const p = await page(t, { as: operator, phone: small })
      if (!small) await p.setViewportSize({ width: 1440, height: 900 })
      const bad = { code: 'relay', status: 'error', subject: 'relay "r1" at smtp.a-long-name-of-a-provider.example.com:587', message: 'It refuses the login: 535 5.7.8 wrong password.', mend: 'Set another password with `mailstead settings set relay."r1".password --data /var/lib/mailstead`.' }
      const asked = []
      await p.route('**/v1/health*', async (route) => {
        const answer = await route.fetch(), health = await answer.json()
        const more = { certificate: { names: ['mail.example.com', 'mta-sts.example.com'], expires_at: new Date(Date.now() + 3e9).toISOString() }, queue: { depth: 1204, oldest_seconds: 7300 }, role: 'primary', standby: { number: 4, lag_seconds: 1 }, objects: { reachable: true, pending: 3, cache_bytes: 1 << 30 } }
        await route.fulfill({ response: answer, json: { ...health, ...more, status: 'error', checks: [{ ...bad, code: 'clock', status: 'warning', subject: 'the clock of this host', message: 'It was moved by 2m0s.' }, ...health.checks.filter((c) => c.status === 'ok'), bad] } })
      })
      await p.route('**/v1/health/check', (route) => {
        asked.push(route.request().postDataJSON())
        return route.continue()
      })
      await p.open('/host')
      const problems = card(p, 'Checks').locator('.operator-problems > li')
      await problems.first().waitFor()
      const texts = await problems.allInnerTexts()
      assert.match(texts[0], /^Relays[^]*It refuses the login[^]*What to do: Set another password with mailstead settings set/)
      assert.match(texts[1], /^Clock/)
      assert.equal(await problems.first().locator('code').count(), 1, 'a command is set as one')
      assert.equal(await problems.first().getByRole('link', { name: 'Open settings' }).getAttribute('href'), '/settings?q=relay')
      assert.equal(await problems.nth(1).getByRole('link').count(), 0, 'no page fixes a clock')
      await card(p, 'Outgoing queue').getByText('2 hours 1 minute').waitFor()
      await card(p, 'Certificate').getByText('mta-sts.example.com').waitFor()
      await looked(p, 'host-problems', small)
      await problems.first().getByRole('button', { name: 'Check again: Relays' }).click()
      await p.getByText('Checked again.').waitFor()
      assert.deepEqual(asked, [{ code: 'relay' }])
    })

    test('a backup and a drill are made by hand, and a drill finds a changed byte' + where, async (t) => {
      const p = await open(t, '/backups', small)
      await card(p, 'Status').getByText(join(own.dir, 'backups')).waitFor()
      await card(p, 'Status').getByText('(every hour)').waitFor()
      await card(p, 'Status').getByText('any time from').waitFor()
      await card(p, 'Status').getByText('none: changes are sent within a second').waitFor()
      const rows = card(p, 'Backups').locator('tbody tr')
      await rows.first().waitFor()
      const had = await rows.count()
      await p.getByRole('button', { name: 'Back up now' }).click()
      await p.getByText('Backup started.').waitFor()
      await until('it is in the list', async () => await rows.count() === had + 1)
      assert.equal((await own.api('GET', '/v1/backups')).count, had + 1)

      const drilled = async (result) => {
        const { data: before } = await own.api('GET', '/v1/jobs?type=backup_drill&limit=100')
        await p.getByRole('button', { name: 'Drill now' }).click()
        await until('another drill has ended', async () => {
          const { data } = await own.api('GET', '/v1/jobs?type=backup_drill&limit=100')
          return data.length > before.length && data.every((j) => j.completed_at)
        })
        await card(p, 'Last drill').getByText(result).waitFor()
        await p.getByText('Drill in progress').waitFor({ state: 'detached' })
      }
      await drilled('No problems found.')
      await card(p, 'Last drill').getByText('was restored with 5 messages').waitFor()
      await looked(p, 'backups', small)

      for (const kind of ['db', 'open']) {
        const { name, path } = (await stored(kind)).at(-1)
        await flip(path)
        await drilled(/\d+ problems? found\./)
        await card(p, 'Last drill').getByRole('listitem').filter({ hasText: name }).waitFor()
        await card(p, 'Last drill').getByText(/^mailstead backup .*--full --to/).waitFor()
        if (kind === 'db') await looked(p, 'backups-damaged', small)
        if (kind === 'open') await onOverviewAndHost(p, small)
        await flip(path)
      }
      await drilled('No problems found.')
    })
  }

  /** What a drill found is on the overview before all else, and on the page of the host. */
  async function onOverviewAndHost(p, small) {
    await p.open('/')
    const first = card(p, 'Needs attention').getByRole('link').first()
    await first.getByText('Server: Backup drill').waitFor()
    await card(p, 'Server health').getByText('Error', { exact: true }).waitFor()
    await looked(p, 'overview-health', small)
    await first.click()
    await p.getByRole('heading', { level: 1, name: 'Backups' }).waitFor()
    await p.open('/host')
    const problem = card(p, 'Checks').locator('.operator-problems > li').first()
    await problem.getByText(/found \d+ problems? in the backup of/).waitFor()
    await problem.getByRole('link', { name: 'Open backups' }).click()
    await p.getByRole('heading', { level: 1, name: 'Backups' }).waitFor()
    await card(p, 'Last drill').getByText(/\d+ problems? found\./).waitFor()
  }

  test('a job under way shows how far it is, and nothing else can be started', async (t) => {
    const p = await page(t, { as: operator, phone: true })
    const job = { id: 'job_1', job_id: 'job_1', type: 'backup_drill', status: 'in_progress', status_detail: 'messages', progress: { completed: 43, total: 100, percent: 43 }, steps: [], result: null, error: null }
    await p.route((url) => url.pathname === '/v1/jobs' && url.searchParams.get('type') === 'backup_drill', (route) => route.fulfill({ json: { data: [job], pagination: { cursor: null, has_more: false } } }))
    await p.open('/backups')
    await card(p, 'Drill in progress').getByText('Now: messages').waitFor()
    assert.equal(await p.getByRole('progressbar', { name: 'Drill progress' }).getAttribute('aria-valuenow'), '43')
    for (const name of ['Back up now', 'Drill now']) assert.ok(await p.getByRole('button', { name }).isDisabled(), name)
    await sound(p, 'a drill', moderate)
  })

  test('a place that cannot be reached, and a disk that is too small for a drill, are told', async (t) => {
    const p = await page(t, { as: operator, expect: [/status of 507/] })
    await p.route('**/v1/health', async (route) => {
      const answer = await route.fetch(), health = await answer.json()
      await route.fulfill({ response: answer, json: { ...health, backup: { ...health.backup, error: 'put db/1: no space left on device' } } })
    })
    await p.route('**/v1/backups/drill', (route) => route.fulfill({ status: 507, json: { error: { code: 'storage_full', message: 'The disk has 3 MiB free.', request_id: 'req_1' } } }))
    await p.open('/backups')
    await p.getByText('put db/1: no space left on device').waitFor()
    await card(p, 'Status').getByText('are not saved yet').waitFor()
    await p.getByRole('button', { name: 'Drill now' }).click()
    await p.getByText('too little free space for a drill').waitFor()
    await sound(p, 'backups that fail', moderate)
  })

  test('only the operator has these pages', async (t) => {
    const a = await account(unique('other') + '@walk.test', own.server), p = await page(t, { as: a })
    for (const path of ['/host', '/backups']) {
      await p.open(path)
      await p.getByText('Only the operator of this server can do this').waitFor()
    }
    assert.equal(await p.getByRole('link', { name: 'Backups' }).count(), 0)
  })
})

describe('a host without backups', () => {
  let bare
  before(async () => { bare = await launch() })
  after(() => bare.stop())

  test('says how to have some', async (t) => {
    const as = await choosePassword(bare.owner), p = await page(t, { as, phone: true })
    await p.open('/backups')
    await p.getByText('No backups are configured').waitFor()
    assert.equal(await p.getByRole('button', { name: /Back up now|Drill now/ }).count(), 0)
    await looked(p, 'backups-none', true)
  })
})

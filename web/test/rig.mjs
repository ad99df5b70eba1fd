// What the walks through the dashboard share: a browser, a signed-in page that suffers no error, and the API to make what
// a walk needs. The server is a real one, named by the environment.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { connect } from 'node:net'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { chromium } from 'playwright-core'

const env = process.env
export const base = env.MAILSTEAD_URL
export const owner = { email: env.MAILSTEAD_OWNER, password: env.MAILSTEAD_PASSWORD }

/** The server of most walks, and a second one, which started in an empty directory and whose relay refuses some. */
export const here = { url: base, smtp: env.MAILSTEAD_SMTP, imap: env.MAILSTEAD_IMAP, data: env.MAILSTEAD_DIR }
export const fresh = { url: env.MAILSTEAD_FRESH_URL, smtp: env.MAILSTEAD_FRESH_SMTP, data: env.MAILSTEAD_FRESH_DIR, welcome: env.MAILSTEAD_FRESH_WELCOME }

/** A third one, started as the second was, for the first run on a phone. */
export const pocket = { url: env.MAILSTEAD_POCKET_URL, smtp: env.MAILSTEAD_POCKET_SMTP, welcome: env.MAILSTEAD_POCKET_WELCOME }

const desktop = env.MAILSTEAD_SHOTS ? { width: 1440, height: 900 } : { width: 1280, height: 800 }
const phone = { width: 390, height: 844 }

let opened

/** The browser, one for all tests of a process. */
export async function browser() {
  opened ??= chromium.launch({
    executablePath: env.MAILSTEAD_CHROMIUM ?? '/usr/bin/chromium-headless-shell',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      // Pages are open for seconds: less is compiled, and fewer processes start, than for a person. Where times are measured,
      // scripts run as they do for a person.
      ...(env.MAILSTEAD_LISTS === 'full' ? [] : ['--js-flags=--no-turbofan --no-maglev']), '--in-process-gpu', '--renderer-process-limit=1', '--disable-features=IsolateSandboxedIframes', '--disable-site-isolation-trials'],
  })
  return opened
}

after(async () => {
  if (opened) await (await opened).close()
})

const fingers = new WeakSet() // pages that have no mouse

/** Makes a click on a page of a phone a tap. */
function touch(p) {
  fingers.add(p)
  const kind = Object.getPrototypeOf(p.locator('body')), { click } = kind
  if (!click.taps) kind.click = Object.assign(function (options) { return fingers.has(this.page()) ? this.tap(options) : click.call(this, options) }, { taps: true })
}

const cookies = new Map() // of who was signed in, once for all tests of a process

/**
 * A page, signed in as the owner unless told otherwise. An error in its console, a fault of its scripts, a broken policy
 * or a request to elsewhere fails the test.
 */
export async function page(t, { phone: small = false, as = owner, dark = false, expect = [], locale = 'en-GB', server = as?.server ?? here } = {}) {
  const context = await (await browser()).newContext({
    viewport: small ? phone : desktop, hasTouch: small, isMobile: small, colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce',
    locale, timezoneId: 'Europe/Rome', permissions: ['clipboard-read', 'clipboard-write'],
  })
  context.setDefaultTimeout(40_000)
  const faults = []
  context.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') faults.push(`${m.type()}: ${m.text()} (${m.location().url})`) })
  context.on('weberror', (e) => faults.push(`fault: ${e.error().stack}`))
  context.on('request', (r) => { if (!r.url().startsWith(server.url) && !/^(data|blob|about):/.test(r.url())) faults.push(`request to ${r.url()}`) })
  t.after(async () => {
    if (t.passed === false) for (const one of context.pages()) console.log(`${t.name}: left at ${one.url()}\n${await one.locator('body').innerText().catch(String)}`)
    for (const one of [context, ...context.pages()]) await one.unrouteAll({ behavior: 'ignoreErrors' }) // what a mock still waits for
    await context.close()
    const unexpected = faults.filter((f) => !expect.some((e) => e.test(f)))
    if (unexpected.length > 0) throw new Error(unexpected.join('\n'))
  })
  if (as && cookies.has(as)) await context.addCookies(cookies.get(as))
  else if (as) {
    await signIn(context, as, server)
    cookies.set(as, await context.cookies())
  }
  const p = await context.newPage()
  if (small) touch(p)
  p.open = (path) => p.goto(server.url + path)
  return p
}

async function signIn(context, { email, password }, server) {
  const answer = await context.request.post(server.url + '/session', { data: { email, password }, headers: { Origin: server.url } })
  if (!answer.ok()) throw new Error(`sign in as ${email}: ${answer.status()} ${await answer.text()}`)
}

const run = promisify(execFile)

/** Another account, which no other test knows of; its owner, and the API as they call it. */
export async function account(email, server = here) {
  const password = 'a sentence that nobody guesses'
  const { stdout } = await run(env.MAILSTEAD_BIN, ['account', 'create', '--data', server.data, '--owner-email', email, '--owner-password', password, '--plan', 'enterprise', '--json'])
  const { token } = JSON.parse(stdout)
  return { email, password, server, token, api: (method, path, body) => request(server, token, method, path, body), as: (token) => (method, path, body) => request(server, token, method, path, body) }
}

/**
 * A server of its own, for what concerns a whole installation. Its settings are a function of its
 * directory. Gives the server, its owner with the password that init has printed, the API as the
 * owner calls it, and how to stop it.
 */
export async function launch(settings = () => '') {
  const dir = await mkdtemp(join(tmpdir(), 'walk-')), data = join(dir, 'data'), ready = join(dir, 'ready.json')
  await mkdir(data, { mode: 0o700 })
  await writeFile(join(data, 'mailstead.toml'), '[limits]\nrate_per_minute = 100000\nburst_per_minute = 100000\n' + settings(dir))
  const { stdout } = await run(env.MAILSTEAD_BIN, ['init', '--data', data, '--owner-email', 'owner@walk.test', '--json'])
  const { owner_password: password, token } = JSON.parse(stdout), at = (name) => [`--${name}`, '127.0.0.1:0']
  const child = spawn(env.MAILSTEAD_BIN, ['serve', '--data', data, '--ready-file', ready, ...['http', 'smtp', 'submission', 'imap', 'dns'].flatMap(at)], { stdio: 'ignore' })
  const ended = once(child, 'exit')
  const { http, smtp } = await until('the server is ready', async () => {
    if (child.exitCode !== null) throw new Error('the server has ended with ' + child.exitCode)
    return readFile(ready, 'utf8').then(JSON.parse, () => undefined)
  })
  const server = { url: 'http://' + http, smtp, data }
  const stop = async () => {
    child.kill('SIGTERM')
    await ended
    await rm(dir, { recursive: true, force: true })
  }
  return { dir, server, stop, owner: { email: 'owner@walk.test', password, server }, api: (method, path, body) => request(server, token, method, path, body) }
}

/** Has a user who signed in with a printed password choose another, and gives it. */
export async function choosePassword({ email, password, server }) {
  const headers = { 'Content-Type': 'application/json', Origin: server.url }, next = 'a sentence that nobody guesses'
  const entry = await fetch(server.url + '/session', { method: 'POST', headers, body: JSON.stringify({ email, password }) })
  const cookie = entry.headers.get('set-cookie').split(';')[0]
  const answer = await fetch(server.url + '/session/profile', { method: 'PATCH', headers: { ...headers, Cookie: cookie }, body: JSON.stringify({ password: next, current_password: password }) })
  assert.equal(answer.status, 200)
  return { email, password: next, server }
}

/** Calls the API as the owner. */
export function api(method, path, body) {
  return request(here, env.MAILSTEAD_TOKEN, method, path, body)
}

async function request(server, token, method, path, body) {
  const response = await fetch(server.url + path, {
    method, body: body && JSON.stringify(body),
    headers: { Authorization: 'Bearer ' + token, 'Content-Type': 'application/json' },
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
  return text === '' ? {} : JSON.parse(text)
}

/** Waits until a look gives something true, and gives that. */
export async function until(what, look, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end;) {
    const found = await look()
    if (found) return found
    await new Promise((done) => setTimeout(done, 100))
  }
  throw new Error('never: ' + what)
}

/** Whether the walks are to be brief, as in CI. */
export const brief = Boolean(env.MAILSTEAD_BRIEF)

const both = Boolean(env.MAILSTEAD_SOAK || env.MAILSTEAD_SHOTS)

/**
 * Gives the test function for walks that are done on a wide screen and on a phone. One after the other is done on the one
 * and on the other; make soak and make screenshots do each on both.
 */
export function on(small) {
  let n = 0
  return (name, walk) => { if (n++ % 2 === Number(small) || both) test(name + (small ? ' on a phone' : ''), walk) }
}

/** What is on a page, without the frame around it. */
export const main = (p) => p.getByRole('main')

/** Waits until a toast tells a text. */
export const toast = (p, text) => p.locator('.toasts').getByRole('status').getByText(text).first().waitFor()

/** The rows of the inbox that have a text. */
export const row = (p, text) => p.locator('.inbox-row').filter({ hasText: text })

/** The names of the files of drafts that the browser keeps. */
export const kept = (p) => p.evaluate(() => new Promise((done) => {
  const request = indexedDB.open('drafts')
  request.onsuccess = () => {
    const all = request.result.transaction('files').objectStore('files').getAll()
    all.onsuccess = () => { request.result.close(); done(all.result.flatMap((k) => k.files.map((f) => f.name))) }
  }
}))

let made = 0

/** A name that no other test uses. */
export function unique(word) {
  return `${word}-n${process.pid.toString(36)}${(++made).toString(36)}`
}

/** A domain that is ready for mail. */
export async function domain(name = unique('walk') + '.test', of = { api }) {
  const { api } = of
  const { domains } = await api('POST', '/v1/domains/connect', { domains: [name] })
  await api('POST', '/v1/domains/check-ns', { domains: [name] })
  const id = domains[0].domain_id
  await until(name + ' is complete', async () => (await api('GET', '/v1/domains/' + id)).status === 'complete')
  return { id, name }
}

/** A mailbox of a domain. */
export async function mailbox(domain, username = unique('box'), of = { api }) {
  return of.api('POST', '/v1/email-users', { username, domain: domain.name, name: 'Walk ' + username })
}

/** Delivers a message by SMTP, as a stranger's server would. */
export async function deliver(to, message, from = 'stranger@elsewhere.test', server = here) {
  const socket = connect(Number(server.smtp.split(':').at(-1)), '127.0.0.1')
  let have = ''
  socket.setEncoding('utf8').on('data', (text) => { have += text })
  const answer = async (code) => {
    while (!/^\d{3} .*\r\n/m.test(have)) await once(socket, 'data')
    const got = have
    have = ''
    if (!got.startsWith(code)) {
      socket.destroy() // an open one would keep the file of tests from ending
      throw new Error(`SMTP answered ${got}`)
    }
  }
  const say = async (line, code) => {
    socket.write(line + '\r\n')
    await answer(code)
  }
  await answer('220')
  await say('EHLO elsewhere.test', '250')
  await say(`MAIL FROM:<${from}>`, '250')
  await say(`RCPT TO:<${to}>`, '250')
  await say('DATA', '354')
  await say(message.replace(/\r?\n/g, '\r\n').replace(/^\./gm, '..') + '\r\n.', '250')
  socket.end('QUIT\r\n')
}

/** A simple message. */
export function message({ to, subject, text = 'Hello.', from = 'Stranger <stranger@elsewhere.test>', headers = '' }) {
  return `From: ${from}\nTo: ${to}\nSubject: ${subject}\nDate: ${new Date().toUTCString()}\nMessage-ID: <${unique('m')}@elsewhere.test>\n${headers}MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n${text}\n`
}

/** Takes a picture of the page, where pictures are wanted; whole also of what is below the fold. */
export async function shot(p, name, { whole = false } = {}) {
  if (!env.MAILSTEAD_SHOTS) return
  await mkdir(env.MAILSTEAD_SHOTS, { recursive: true })
  await p.screenshot({ path: `${env.MAILSTEAD_SHOTS}/${name}.png`, fullPage: whole })
}

let axe

/**
 * Fails on what axe finds serious, or moderate where that is asked for, by all of its rules or
 * those that are named, and on a page that scrolls sideways; on a phone also on targets that a
 * finger misses, and on what lies beyond the edge. The frame of a message runs no scripts: it is
 * left out, and on a phone the short messages at the foot, which go by themselves. Colours, which
 * take most of the time, are the same at both widths: walks look at them on a wide screen only.
 * Brief walks have axe look only where that is asked for.
 */
export async function sound(p, where = p.url(), { only, colours = !fingers.has(p), moderate = false, always = false } = {}) {
  const small = fingers.has(p)
  await p.waitForFunction(() => document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getTiming().iterations === Infinity))
  if (!brief || always) assert.deepEqual(await violations(p, { only, small, colours, moderate }), [], where)
  assert.ok(await p.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth), 'it scrolls sideways: ' + where)
  if (small) assert.deepEqual(await p.evaluate(beyond), [], 'beyond the edge: ' + where)
}

async function violations(p, how) {
  axe ??= await readFile(new URL('../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8')
  if (!await p.evaluate(() => Boolean(globalThis.axe))) await p.evaluate(`(() => {${axe}})()`)
  return p.evaluate(async ({ only, small, colours, moderate }) => {
    const foot = small ? [...document.querySelectorAll('.toasts')] : []
    for (const e of foot) e.style.visibility = 'hidden'
    const { violations } = await globalThis.axe.run(document, { iframes: false, resultTypes: ['violations'], runOnly: only, rules: only ? {} : { 'target-size': { enabled: small }, 'color-contrast': { enabled: colours } } })
    for (const e of foot) e.style.visibility = ''
    return violations.filter((v) => ['serious', 'critical'].includes(v.impact) || (moderate && v.impact === 'moderate')).map((v) => `${v.id}: ${v.nodes.map((n) => n.html + ' ' + n.failureSummary).join(' ')}`)
  }, how)
}

/** What is meant to be read or pressed, and lies beside the screen, whole or in part, where scrolling down does not lead. */
function beyond() {
  const rolls = (e) => e.closest('pre, .tabs, .visually-hidden, .truncate *') // these roll sideways, are not for the eye, or end in an ellipsis
  const found = [...document.querySelectorAll('main *, dialog[open], dialog[open] *, .toasts *')].filter((e) => {
    const box = e.getBoundingClientRect()
    return box.width > 0 && !rolls(e) && e.checkVisibility({ visibilityProperty: true }) && (box.left < -1 || box.right > innerWidth + 1)
  })
  for (const box of document.querySelectorAll('main *, dialog[open] *')) {
    if (/auto|scroll/.test(getComputedStyle(box).overflowX) && box.scrollWidth > box.clientWidth + 1 && !rolls(box)) found.push(box)
  }
  for (const dialog of document.querySelectorAll('dialog[open]')) if (dialog.getBoundingClientRect().bottom > innerHeight + 1) found.push(dialog)
  return found.slice(0, 5).map((e) => e.outerHTML.slice(0, 200))
}

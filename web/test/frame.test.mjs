// The frame of a message: as high as what is in it, whatever that tries, and with nothing in it that could act.
import assert from 'node:assert/strict'
import { crc32, deflateSync } from 'node:zlib'
import { test } from 'node:test'
import { account, base, deliver, domain, mailbox, page, shot, unique, until } from './rig.mjs'

let made

/** A mailbox of an account of its own, with messages of these bodies; where each is read and shown, by subject. */
async function letters(bodies) {
  made ??= (async () => {
    const a = await account(unique('frame') + '@people.test')
    return { a, box: await mailbox(await domain(unique('frame') + '.test', a), 'reader', a) }
  })()
  const { a, box } = await made
  for (const [subject, body] of Object.entries(bodies)) {
    await deliver(box.email, `From: Shop <shop@elsewhere.test>\nTo: ${box.email}\nSubject: ${subject}\nMessage-ID: <${unique('f')}@elsewhere.test>\nMIME-Version: 1.0\n` +
      (body.startsWith('Content-Type') ? body : 'Content-Type: text/html; charset=utf-8\n\n' + body) + '\n')
  }
  const rows = await until('they are there', async () => {
    const { data } = await a.api('GET', `/v1/email-users/${box.user_id}/inbox?limit=100`)
    return Object.keys(bodies).every((subject) => data.some((m) => m.subject === subject)) && data
  })
  const of = (subject) => rows.find((m) => m.subject === subject).uid
  return { a, at: (subject) => `/inbox/${box.user_id}/${of(subject)}`, view: (subject) => `/session/view/${box.user_id}/${of(subject)}?images=0` }
}

/** The frame once it has been fitted: its height, what is in it, and whether it holds all of that. Within a few looks it must stay as it is. */
async function fitted(p) {
  await p.locator('iframe.fitted').waitFor()
  return p.evaluate(async () => {
    const frame = document.querySelector('iframe.fitted'), heights = new Set()
    for (let look = 0; look < 5 && heights.size !== 1; look++) {
      heights.clear()
      for (let i = 0; i < 12; i++) {
        await new Promise(requestAnimationFrame)
        heights.add(frame.offsetHeight)
      }
    }
    const root = frame.contentDocument.documentElement
    return { height: frame.offsetHeight, inside: root.scrollHeight, wide: root.scrollWidth - root.clientWidth, seen: root.clientHeight, steady: heights.size === 1, pane: document.querySelector('.inbox-message').clientHeight }
  })
}

const line = '<p>A line of a long letter, which is as long as lines in letters are and no longer.</p>'

test('a message is as high as it is, at every width', async (t) => {
  const { a, at } = await letters({
    Long: line.repeat(150), Short: line, Wide: '<table width="700" border="1"><tr><td>Nobody breaks this table, which is as wide as it says.</td></tr></table>' + line.repeat(60),
    Stripes: '<style>@media (max-width:480px){.x{height:700px}} .x{height:100px}</style><div class="x">' + line + '</div>'.repeat(2) + line.repeat(40),
  })
  for (const phone of [false, true]) {
    const p = await page(t, { as: a, phone })
    await p.open(at('Long'))
    const long = await fitted(p)
    assert.ok(long.steady && long.height > 3000 && long.inside === long.seen, JSON.stringify(long))
    await p.evaluate(() => { document.querySelector('.inbox-message').scrollTop = 1e6 })
    assert.ok(await p.frameLocator('iframe').locator('p').last().evaluate((e) => e.getBoundingClientRect().bottom <= innerHeight), 'its end can be scrolled to')
    await p.open(at('Wide'))
    const wide = await fitted(p)
    assert.ok(wide.steady && wide.inside === wide.seen, JSON.stringify(wide))
    assert.ok(phone || wide.wide === 0, 'a message that is little wider than the frame shrinks')
    await p.open(at('Short'))
    const short = await fitted(p)
    assert.ok(short.steady && short.height <= short.pane && short.inside === short.seen, JSON.stringify(short))
    if (phone) continue
    await p.open(at('Stripes'))
    const before = await fitted(p)
    await p.setViewportSize({ width: 460, height: 800 })
    await p.waitForFunction((h) => document.querySelector('iframe.fitted').offsetHeight > h, before.height)
    await p.setViewportSize({ width: 1280, height: 800 })
    await p.waitForFunction((h) => document.querySelector('iframe.fitted').offsetHeight === h, before.height)
    await shot(p, 'inbox-frame')
  }
})

/** A picture in PNG. */
function picture(width, height) {
  const chunk = (name, data) => {
    const body = Buffer.concat([Buffer.from(name), data]), out = Buffer.alloc(4)
    out.writeUInt32BE(data.length)
    const sum = Buffer.alloc(4)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([out, body, sum])
  }
  const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0])
  head.writeUInt32BE(width)
  head.writeUInt32BE(height, 4)
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', head), chunk('IDAT', deflateSync(Buffer.alloc((width + 1) * height, 120))), chunk('IEND', Buffer.alloc(0))])
}

test('the frame grows with a picture that comes late, and its keys are the page\'s', async (t) => {
  const { a, at } = await letters({
    After: line,
    Picture: `Content-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n${line}<img src="cid:one@x">\n--b\nContent-Type: image/png\nContent-ID: <one@x>\nContent-Transfer-Encoding: base64\n\n${picture(200, 2000).toString('base64').replace(/.{76}/g, '$&\n')}\n--b--`,
    Before: line,
  })
  const p = await page(t, { as: a })
  let come
  const late = new Promise((done) => { come = done })
  await p.route('**/session/image/**', async (route) => { await late; await route.continue() })
  await p.open(at('Picture'))
  await p.frameLocator('iframe').locator('img').waitFor({ state: 'attached' })
  come()
  await p.waitForFunction(() => document.querySelector('iframe.fitted')?.offsetHeight > 2000)
  assert.ok((await fitted(p)).steady)
  await p.frameLocator('iframe').locator('p').click()
  await p.keyboard.press('j')
  await p.waitForURL('**' + at('After'))
})

test('a wide table in a message scrolls, and breaks no word', async (t) => {
  const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December']
  const row = (of) => '<tr>' + months.map((m, i) => `<td>${of(m, i)}</td>`).join('') + '</tr>'
  const { a, at } = await letters({ Table: `<table border="1" width="100%">${row((m) => m)}${row((_, i) => 1234567 * (i + 1))}</table>` + line, Address: `<table width="100%"><tr><td>https://elsewhere.test/${'x1'.repeat(300)}</td></tr></table>` })
  for (const phone of [false, true]) {
    const p = await page(t, { as: a, phone })
    await p.open(at('Table'))
    await fitted(p)
    const lines = await p.frameLocator('iframe').locator('td').evaluateAll((cells) => cells.map((c) => { const r = document.createRange(); r.selectNodeContents(c); return r.getClientRects().length }))
    assert.deepEqual(lines, lines.map(() => 1))
    if (phone) assert.ok((await fitted(p)).wide > 0, 'it scrolls')
    await p.open(at('Address'))
    assert.equal((await fitted(p)).wide, 0, 'a long address in the only cell of a row breaks')
  }
})

test('nothing in a message makes its frame grow for ever, or cover the page', async (t) => {
  const bombs = {
    'A billion pixels': `<div style="height:1000000000px;min-height:1e9px">x</div>` + line,
    'Per cent of per cent': '<div style="height:4000px">' + '<div style="height:4000%">'.repeat(9) + line,
    'High as the window': '<style>*{height:100%;min-height:100%;margin:20px;padding:1px}body{min-height:101%!important;height:100%!important}</style><table height="100%"><tr><td>' + line,
    'Higher than the window': '<style>body{min-height:100vh;height:110vh}div{height:110vh;min-height:calc(100vh + 10px)}</style><div style="height:100vh;margin-bottom:10vh">' + line + '</div>',
    'Over the page': '<div style="position:fixed;inset:0;top:-500px;left:-500px;width:100vw;height:100vh;z-index:99999;background:red">' + line + '</div>',
    'Out of its place': '<div style="height:10px"><div style="height:3000px;width:10px;float:left">' + line + '</div></div>',
    'As wide as a street': '<style>*{width:4000px;padding:10%}</style>' + line,
    'Not there': '<style>*{display:contents;float:left}</style>' + line,
  }
  const { a, at } = await letters(bombs)
  const p = await page(t, { as: a })
  for (const subject of Object.keys(bombs)) {
    await p.open(at(subject))
    const f = await fitted(p)
    assert.ok(f.steady && f.height <= 60_000 && f.height >= 100, subject + ' ' + JSON.stringify(f))
    assert.ok(subject !== 'Out of its place' || f.height > 3000, subject + ' ' + JSON.stringify(f))
    assert.ok(subject !== 'Per cent of per cent' || f.inside > f.height && f.height === 60_000, 'what is too high scrolls in its frame: ' + JSON.stringify(f))
    assert.ok(!/window|page/.test(subject) || f.height <= f.pane, subject + ' ' + JSON.stringify(f))
  }
})

test('even what is put into the frame runs nothing, submits nothing and leads nowhere', async (t) => {
  const { a, at, view } = await letters({ Plain: line })
  const p = await page(t, { as: a, expect: [/Blocked (script execution|form submission)|sandbox|Content Security Policy/i] })
  await p.open(at('Plain'))
  await fitted(p)
  const frame = p.frames().find((f) => f.url().includes('/session/view/'))
  assert.equal(await p.locator('iframe').getAttribute('sandbox'), 'allow-same-origin allow-popups allow-popups-to-escape-sandbox')
  const asked = []
  p.on('requestfinished', (r) => asked.push(r.url()))
  await frame.evaluate(() => {
    const add = (html) => { document.body.insertAdjacentHTML('beforeend', html) }
    const script = document.createElement('script')
    script.textContent = 'parent.harmed = "script"'
    document.body.append(script)
    add('<img src="data:x" onerror="parent.harmed = 1"><a id="js" href="javascript:parent.harmed=2">x</a><a id="top" target="_top" href="/away">x</a><svg onload="parent.harmed = 3"></svg>')
    add('<form id="form" action="/session/away" method="post"><button>x</button></form><iframe srcdoc="<script>top.harmed = 4</script>"></iframe><link rel="stylesheet" href="/app.css"><object data="/icon.svg"></object>')
    for (const link of ['js', 'top']) document.getElementById(link).click()
    document.querySelector('#form button').click()
    document.body.append(Object.assign(document.createElement('meta'), { httpEquiv: 'refresh', content: '0;url=/away' }))
  })
  await p.evaluate(() => new Promise((done) => setTimeout(done, 300))) // for what the browser may do of itself
  assert.equal(await p.evaluate(() => globalThis.harmed), undefined)
  assert.equal(new URL(p.url()).pathname, at('Plain'))
  assert.deepEqual(asked.filter((url) => /away|app\.css|icon\.svg/.test(url)), [])
  assert.deepEqual(p.context().pages().length, 1)
  const tab = await p.context().newPage() // in a tab of its own it is nobody
  await tab.goto(base + view('Plain'))
  assert.equal(await tab.evaluate(() => origin), 'null')
})

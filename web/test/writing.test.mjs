// Messages written with formatting: the keyboard, what other programs put on the clipboard, images,
// drafts, and who it is to.
import assert from 'node:assert/strict'
import { readFile, readdir } from 'node:fs/promises'
import { before, describe, test } from 'node:test'
import { account, brief, deliver, domain, kept, mailbox, main, message, on, page, shot, sound, unique, until } from './rig.mjs'

const folder = new URL('pasted/', import.meta.url)
const dot = 'iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR42mOQyQ7CgxhGpbEhAEHHVMW8knM+AAAAAElFTkSuQmCC' // a PNG of 10 × 10

let a, d

before(async () => {
  a = await account(unique('writing') + '@people.test')
  d = await domain(unique('writing') + '.test', a)
})

const text = (p) => p.locator('.compose-editor').getByRole('textbox', { name: 'Message', exact: true })

/** A page on which a message of a mailbox is written. */
async function written(p, box, more = '') {
  await p.open(`/compose?from=${box.user_id}&to=ada@elsewhere.test&subject=Hello${more}`)
  await text(p).waitFor()
}

/** Sends what is written, and gives what the server was asked to send. */
async function send(p) {
  const asked = p.waitForRequest((r) => r.method() !== 'GET' && /\/(inbox\/send|drafts\/\d+)$/.test(new URL(r.url()).pathname) && r.postDataJSON()?.send_at)
  await p.getByRole('button', { name: 'Send', exact: true }).click()
  const body = (await asked).postDataJSON()
  await p.getByRole('heading', { level: 1, name: 'Sent' }).waitFor()
  return body
}

/** Puts something on a clipboard of its own and pastes it. */
async function paste(p, { html, plain = '', files = [] }) {
  await text(p).evaluate((at, { html, plain, files }) => {
    const data = new DataTransfer()
    if (html) data.setData('text/html', html)
    data.setData('text/plain', plain)
    for (const { name, type, content } of files) data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name, { type }))
    at.focus()
    at.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }))
  }, { html, plain, files })
}

/** The words of an element with what they look like, for comparing the editor with the reader. */
function looks(root) {
  const kept = new Set(['STRONG', 'EM', 'U', 'S', 'CODE', 'A', 'LI', 'OL', 'UL', 'BLOCKQUOTE', 'PRE', 'TD', 'TH', 'H1', 'H2', 'H3'])
  const out = []
  const say = (words, at) => {
    const tags = []
    for (let e = at; e !== root; e = e.parentElement) {
      const name = /^heading-(\d)$/.test(e.className) ? 'H' + e.className.at(-1) : e.nodeName
      if (kept.has(name)) tags.unshift(name + (name === 'A' ? ' ' + e.getAttribute('href') : ''))
    }
    const look = tags.join(' ')
    if (out.at(-1)?.look === look && out.at(-1).block === at.closest('p, div, li, td, th, pre, h1, h2, h3')) out.at(-1).words += words
    else out.push({ look, words, block: at.closest('p, div, li, td, th, pre, h1, h2, h3') })
  }
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE && node.nodeValue.trim()) say(node.nodeValue, node.parentElement)
    if (node.nodeName === 'IMG' && node.className === '') say('(image)', node.parentElement)
    for (const child of node.childNodes) walk(child)
  }
  walk(root)
  return out.map(({ look, words }) => `${look}: ${words.replace(/[\s\u00a0]+/g, ' ').trim()}`).filter((line) => !line.endsWith(': '))
}

/** What must not be in a message that is sent. */
function unclean(html) {
  return [/\sclass=/i, /\sstyle=/i, /\sid=/i, /mso-/i, /<o:|<v:|<w:/i, /<!--/, /<(script|style|link|meta|base|iframe|svg|math|object|video|form|input|button|font|span)\b/i, /\son\w+=/i, /javascript:/i, /\sdata-/i, /data:/i, /src="(?!cid:)/i, /srcset/i, /url\(/i, /hidden words/]
    .filter((bad) => bad.test(html)).map(String)
}

test('what ten programs put on the clipboard is sent clean, and shows in the reader as in the editor', async (t) => {
  const box = await mailbox(d, unique('paste'), a)
  const all = (await readdir(folder)).filter((name) => name.endsWith('.html') && !name.endsWith('.sent.html')).sort()
  assert.equal(all.length, 10)
  const names = brief ? all.filter((name) => /^word/.test(name)) : all
  const p = await page(t, { as: a }) // a request to elsewhere fails it
  for (const name of names) {
    await written(p, box)
    await paste(p, { html: await readFile(new URL(name, folder), 'utf8'), plain: 'not this' })
    const shown = await text(p).evaluate(looks)
    const { html, text: plain, attachments = [] } = await send(p)
    assert.deepEqual(unclean(html), [], `${name}: ${html}`)
    assert.doesNotMatch(plain, /not this|hidden words|mso-/, name)
    const want = await readFile(new URL(name.replace('.html', '.sent.html'), folder), 'utf8')
    assert.equal(html.replace(/cid:\w+@inline/g, 'cid:ID') + '\n\n' + plain + '\n', want, name)
    for (const cid of html.matchAll(/cid:([^"]+)/g)) assert.ok(attachments.some((f) => f.content_id === cid[1] && f.content_type === 'image/png'), 'the image goes along')
    const [m] = await until(name + ' is in Sent', async () => {
      const { data } = await a.api('GET', `/v1/email-users/${box.user_id}/inbox?folder=sent`)
      return data.length === names.indexOf(name) + 1 && data
    })
    await p.open(`/inbox/${box.user_id}/${m.uid}?in=Sent`)
    const frame = p.frameLocator('iframe[title="Message body"]')
    await frame.locator('body').waitFor()
    assert.deepEqual(await frame.locator('body').evaluate(looks), shown, name)
  }
})

test('what was written to do harm does none when it is pasted', async (t) => {
  const box = await mailbox(d, unique('hostile'), a), p = await page(t, { as: a, expect: [/violates the following Content Security Policy/, /TextSelection endpoint/] })
  const harm = []
  for (const event of ['dialog', 'download', 'popup']) p.on(event, () => harm.push(event))
  await written(p, box)
  const bad = new URL('../../mail/view/testdata/hostile/', import.meta.url), names = (await readdir(bad)).filter((name) => name.endsWith('.eml'))
  assert.ok(names.length >= 20)
  const pages = await Promise.all(names.map(async (name) => [name, await readFile(new URL(name, bad), 'utf8')]))
  pages.push(['deep', '<blockquote>'.repeat(3000) + 'x'], ['many', '<i>x</i>'.repeat(70_000)], ['unended', '<a href="https://x.test/' + '<b style="x'.repeat(2000)])
  for (const [name, html] of pages) {
    await text(p).click()
    await p.keyboard.press('Control+a')
    await paste(p, { html: html + '<p><b>the end</b></p>', plain: 'as text' })
    const sent = await p.evaluate(() => JSON.parse(sessionStorage[Object.keys(sessionStorage).find((key) => key.startsWith('draft '))]))
    assert.deepEqual(unclean(sent.html?.match(/<[^>]*>/g)?.join('') ?? ''), [], name)
    if (name === 'deep') assert.match(sent.text, /xthe end/) // what is deeper than anybody writes stays as text
    if (name === 'many') assert.equal(sent.text, 'as text')
    assert.deepEqual(await text(p).evaluate((e) => [...e.querySelectorAll('script, style, iframe, object, embed, form, input, svg, math, link, base, [onclick], [onerror], [onload]')].map((x) => x.outerHTML)), [], name)
  }
  assert.deepEqual(harm, [])
})

describe('writing', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small)

    walk('a message is formatted by keys and buttons, and one without formatting is plain text alone', async (t) => {
      const box = await mailbox(d, unique('format'), a), p = await page(t, { as: a, phone: small, dark: !small })
      await written(p, box)
      await text(p).click()
      await p.keyboard.type('Nothing but words & <b>.')
      await p.keyboard.press('Enter')
      await p.keyboard.type('  two  spaces')
      const plain = await send(p)
      assert.equal(plain.html, undefined)
      assert.equal(plain.text, 'Nothing but words & <b>.\n  two  spaces')

      await written(p, box)
      const tools = p.getByRole('toolbar', { name: 'Formatting' }), tool = (name) => tools.getByRole('button', { name, exact: true })
      await text(p).click()
      await p.keyboard.press('Control+b')
      await p.keyboard.type('Bold')
      assert.equal(await tool('Bold').getAttribute('aria-pressed'), 'true')
      await p.keyboard.press('Control+b')
      await p.keyboard.type(' and ')
      await p.keyboard.press('Control+i')
      await p.keyboard.type('slanted')
      await p.keyboard.press('Control+i')
      await p.keyboard.press('Enter')
      await tool('Bulleted list').click()
      await p.keyboard.type('one')
      await p.keyboard.press('Enter')
      await p.keyboard.press('Control+]')
      await p.keyboard.type('within')
      await p.keyboard.press('Enter')
      await p.keyboard.press('Enter')
      await p.keyboard.press('Enter') // twice out of the lists
      await p.keyboard.press('Control+Shift+7')
      await p.keyboard.type('first')
      await p.keyboard.press('Enter')
      await p.keyboard.press('Enter')
      await tool('Quote').click()
      await p.keyboard.type('said')
      await p.keyboard.press('Enter')
      await p.keyboard.press('Enter')
      await p.keyboard.type('See ')
      await p.keyboard.press('Control+k')
      const link = p.getByRole('dialog', { name: 'Link' })
      await link.getByLabel('Web or email address').fill('not an address')
      await link.getByLabel('Text').fill('the berths')
      await link.getByRole('button', { name: 'Save' }).click()
      await link.getByText('Enter a web address').waitFor()
      await sound(p, 'the dialog of a link')
      await link.getByLabel('Web or email address').fill('harbour.example/berths')
      await link.getByRole('button', { name: 'Save' }).click()
      await link.waitFor({ state: 'detached' })
      await p.keyboard.press('Control+z')
      await text(p).getByText('the berths').waitFor({ state: 'detached' })
      await p.keyboard.press('Control+y')
      await text(p).getByRole('link', { name: 'the berths' }).waitFor()
      await sound(p, 'a formatted message')
      await shot(p, 'writing-formatted' + (small ? '-phone' : ''))
      const { html, text: made } = await send(p)
      assert.equal(html, `<div><strong>Bold</strong> and <em>slanted</em></div>
<ul>
<li>one
<ul>
<li>within</li>
</ul></li>
</ul>
<ol>
<li>first</li>
</ol>
<blockquote type="cite">
<div>said</div>
</blockquote>
<div>See <a href="https://harbour.example/berths">the berths</a></div>`)
      assert.equal(made, 'Bold and slanted\n\n- one\n  - within\n\n1. first\n\n> said\nSee the berths <https://harbour.example/berths>')
    })

    walk('images are pasted and dropped into the text, and other files are attached', async (t) => {
      const box = await mailbox(d, unique('image'), a), p = await page(t, { as: a, phone: small })
      await written(p, box)
      await paste(p, { files: [{ name: 'image.png', type: 'image/png', content: dot }] })
      const images = text(p).locator('.compose-image img')
      await images.first().waitFor()
      await text(p).evaluate((at, dot) => {
        const data = new DataTransfer()
        const file = (name, type) => new File([Uint8Array.from(atob(dot), (c) => c.charCodeAt(0))], name, { type })
        data.items.add(file('map.png', 'image/png'))
        data.items.add(file('plan.pdf', 'application/pdf'))
        data.items.add(file('drawn.svg', 'image/svg+xml'))
        const { left, top } = at.getBoundingClientRect()
        at.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true, clientX: left + 30, clientY: top + 20 }))
      }, dot)
      const attached = p.getByRole('list', { name: 'Attachments' })
      await attached.getByText('plan.pdf').waitFor()
      await attached.getByText('drawn.svg').waitFor()
      await until('both images stand in the text', async () => await images.count() === 2)
      assert.equal(await attached.getByText('map.png').count(), 0)
      assert.ok(await images.first().evaluate((e) => e.complete && e.naturalWidth === 10))
      await sound(p, 'a message with images')
      await until('all files are kept', async () => (await kept(p)).length === 4)
      await p.reload()
      await until('the images outlive a reload', async () => await images.count() === 2)
      const { html, attachments } = await send(p)
      assert.deepEqual(attachments.map((f) => [f.content_type, f.content_id === undefined]).sort(), [['application/pdf', true], ['image/png', false], ['image/png', false], ['image/svg+xml', true]])
      for (const f of attachments.filter((f) => f.content_id)) assert.ok(html.includes(`<img src="cid:${f.content_id}"`))
      const [m] = await until('it is in Sent', async () => {
        const { data } = await a.api('GET', `/v1/email-users/${box.user_id}/inbox?folder=sent`)
        return data.length > 0 && data
      })
      await p.open(`/inbox/${box.user_id}/${m.uid}?in=Sent`)
      const frame = p.frameLocator('iframe[title="Message body"]')
      await until('the reader shows both', async () => await frame.locator('img').evaluateAll((all) => all.filter((e) => e.complete && e.naturalWidth === 10).length) === 2)
    })

    walk('a formatted draft goes on in another browser, and what another program wrote is kept until it is changed', async (t) => {
      const box = await mailbox(d, unique('draft'), a), p = await page(t, { as: a, phone: small })
      const drafts = async () => (await a.api('GET', `/v1/email-users/${box.user_id}/inbox?folder=drafts`)).data
      const detail = (m) => a.api('GET', `/v1/email-users/${box.user_id}/inbox/${m.uid}?folder=drafts`)
      await written(p, box)
      await paste(p, { html: '<p>Some <b>bold</b> words</p><ul><li>and a list</li></ul><table><tr><td>1</td><td>2</td></tr></table>' })
      await p.getByText('Saved in Drafts').waitFor()
      const shown = await text(p).evaluate(looks)
      const q = await page(t, { as: a, phone: small })
      const [one] = await drafts()
      const open = async (m) => {
        await q.open(`/inbox/${box.user_id}/${m.uid}?in=Drafts&folder=drafts&mailbox=${encodeURIComponent(box.email)}`)
        await q.getByRole('button', { name: 'Edit draft' }).click()
        return q.getByRole('dialog', { name: 'Draft' })
      }
      const dock = await open(one)
      await text(q).waitFor()
      assert.deepEqual(await text(q).evaluate(looks), shown)
      assert.equal(await dock.getByText('another program').count(), 0, 'nothing is lost of one’s own')
      await dock.getByRole('button', { name: 'Close and keep draft' }).click()

      await a.api('POST', `/v1/email-users/${box.user_id}/drafts`, { to: ['ada@elsewhere.test'], subject: 'Of another program', text: 'Red', html: '<p style="color:red">Red <b>words</b></p><img src="https://elsewhere.test/a.png" alt="A pier">' })
      const foreign = await until('it is there', async () => (await drafts()).find((m) => m.subject === 'Of another program'))
      const before = (await detail(foreign)).html
      const theirs = await open(foreign)
      await theirs.getByText('it loses: fonts and colors and images').waitFor()
      await sound(q, 'a draft of another program')
      await theirs.getByRole('button', { name: 'Close and keep draft' }).click()
      await theirs.waitFor({ state: 'detached' })
      assert.equal((await detail(foreign)).html, before, 'to look changes nothing')
      await q.getByRole('button', { name: 'Edit draft' }).click()
      await text(q).click()
      await q.keyboard.press('Control+End')
      await q.keyboard.type('!')
      const changed = await until('what is written is saved', async () => (await drafts()).find((m) => m.subject === 'Of another program' && m.uid !== foreign.uid))
      assert.match((await detail(changed)).html, /<div>Red <strong>words<\/strong><\/div>\s*<div><br><\/div>\s*<div><a [^>]*>A pier<\/a>!<\/div>/)
    })

    walk('recipients are completed from people, mailboxes and groups', async (t) => {
      const box = await mailbox(d, unique('complete'), a), p = await page(t, { as: a, phone: small }), tag = unique('zed').replace(/-/g, '')
      const colleague = await mailbox(d, tag + 'colleague', a)
      await a.api('POST', '/v1/groups', { email: `${tag}crew@${d.name}`, name: 'The crew', members: [{ user_id: box.user_id }] })
      await a.api('POST', `/v1/email-users/${box.user_id}/inbox/send`, { to: [`"Okri, Ben" <${tag}ben@elsewhere.test>`], subject: 'Hello', text: 'Hello.' })
      await p.open(`/compose?from=${box.user_id}`)
      const to = p.getByRole('combobox', { name: 'To', exact: true }), list = p.getByRole('listbox', { name: 'Suggestions' })
      await p.getByRole('button', { name: 'From: ' + box.email }).waitFor()
      await to.fill(tag)
      await list.getByRole('option').nth(2).waitFor()
      assert.deepEqual(await list.getByRole('option').evaluateAll((all) => all.map((e) => e.getAttribute('aria-selected'))), ['true', 'false', 'false'])
      await sound(p, 'the suggestions')
      await shot(p, 'writing-suggestions' + (small ? '-phone' : ''))
      await to.press('Enter')
      await p.getByRole('button', { name: 'Remove Okri, Ben' }).waitFor()
      await to.pressSequentially(tag) // who is there already is not offered again
      await list.getByRole('option').nth(1).waitFor()
      assert.equal(await list.getByRole('option').count(), 2)
      await to.press('ArrowDown')
      await to.press('Enter')
      await p.getByRole('button', { name: /^Remove (The crew|Walk )/ }).waitFor()
      await to.pressSequentially(tag)
      await to.press('Tab') // before anything was found
      await until('three are there', async () => await p.locator('.compose-chip').count() === 3)
      assert.equal(await p.evaluate(() => document.activeElement.labels?.[0]?.textContent), 'Subject', 'Tab leads on')
      assert.ok(colleague)
      await to.click()
      await to.pressSequentially('x@far.test y@far.test,z')
      await to.press('Escape')
      await p.getByRole('button', { name: 'Remove y@far.test' }).waitFor()
      await to.press('Backspace')
      await to.evaluate((e) => {
        const data = new DataTransfer()
        data.setData('text', 'One <one@far.test>; two@far.test\nthree@far.test, nobody')
        e.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }))
      })
      for (const name of ['One', 'two@far.test', 'three@far.test', 'nobody']) await p.getByRole('button', { name: 'Remove ' + name, exact: true }).waitFor()
      await p.getByRole('button', { name: 'Remove nobody' }).click()
      await p.getByLabel('Subject').fill('To many')
      const { to: sent } = await send(p)
      assert.equal(sent.length, 8)
      assert.ok(sent.includes(`"Okri, Ben" <${tag}ben@elsewhere.test>`))
    })

    walk('a formatted message is forwarded with its images, and what is left out is said', async (t) => {
      const box = await mailbox(d, unique('forward'), a), p = await page(t, { as: a, phone: small })
      await deliver(box.email, `From: Ada <ada@elsewhere.test>\nTo: ${box.email}\nSubject: Plan\nMessage-ID: <${unique('f')}@elsewhere.test>\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html; charset=utf-8\n\n<p style="color:red" onclick="x()">The <b>plan</b></p><img src="cid:map@far" width="20"><img src="https://elsewhere.test/a.png" alt="A pier">\n--b\nContent-Type: image/png; name=map.png\nContent-ID: <map@far>\nContent-Disposition: inline; filename=map.png\nContent-Transfer-Encoding: base64\n\n${dot}\n--b--\n`)
      await p.open('/inbox?mailbox=' + encodeURIComponent(box.email))
      await p.getByRole('list', { name: 'Messages' }).getByRole('link').first().click()
      await p.getByRole('region', { name: 'Message', exact: true }).getByRole('button', { name: 'Forward', exact: true }).click()
      const place = p.getByRole(small ? 'dialog' : 'region', { name: 'Forward', exact: true })
      await place.getByText(/^Not forwarded: .*fonts and colors/).waitFor()
      await until('the image is there', () => text(p).locator('.compose-image img').evaluateAll((all) => all.length === 1 && all[0].naturalWidth === 10))
      assert.equal(await place.getByRole('list', { name: 'Attachments' }).getByText('map.png').count(), 0)
      await sound(p, 'a formatted message that is forwarded')
      await place.getByRole('combobox', { name: 'To', exact: true }).fill('ben@elsewhere.test,')
      await place.getByRole('button', { name: 'Open as full page' }).click()
      await p.getByRole('heading', { level: 1, name: 'Forward' }).waitFor()
      const { html, attachments } = await send(p)
      assert.deepEqual(unclean(html), [])
      assert.match(html, /Forwarded message[^]*<div>The <strong>plan<\/strong><\/div>[^]*<img src="cid:map@far" alt="" width="20"><a href="https:\/\/elsewhere\.test\/a\.png">A pier<\/a>/)
      assert.deepEqual(attachments.map((f) => [f.filename, f.content_id]), [['map.png', 'map@far']])
    })

    walk('a message is answered below it, and from one of many addresses', async (t) => {
      const box = await mailbox(d, unique('under'), a), alias = unique('alias') + '@' + d.name
      await a.api('PATCH', '/v1/email-users/' + box.user_id, { aliases: [alias] })
      await deliver(box.email, message({ to: box.email, subject: 'Question', from: 'Ada <ada@elsewhere.test>', text: 'Are you open?\n> quoted' }), 'ada@elsewhere.test')
      const p = await page(t, { as: a, phone: small })
      await p.open('/inbox?mailbox=' + encodeURIComponent(box.email))
      await p.getByRole('list', { name: 'Messages' }).getByRole('link').first().click()
      await p.getByRole('button', { name: 'Reply to Ada' }).click()
      const place = p.getByRole(small ? 'dialog' : 'region', { name: 'Reply', exact: true })
      await text(p).waitFor()
      await p.waitForFunction(() => document.activeElement.closest('.compose-text'))
      await p.keyboard.type('Yes, ')
      await p.keyboard.press('Control+b')
      await p.keyboard.type('always')
      await sound(p, 'an answer below the message')
      await shot(p, 'writing-under' + (small ? '-phone' : ''))
      await place.getByRole('button', { name: 'Close and keep draft' }).click()
      await p.getByRole('button', { name: 'Continue draft' }).click()
      await place.getByRole('button', { name: 'Open as full page' }).click()
      await p.getByRole('heading', { level: 1, name: 'Reply' }).waitFor()
      await p.getByRole('button', { name: 'From: ' + box.email }).click()
      await p.getByRole('combobox', { name: 'Search addresses' }).fill(alias.slice(0, 12))
      await sound(p, 'the choice of an address')
      await p.getByRole('combobox', { name: 'Search addresses' }).press('Enter')
      await p.getByRole('button', { name: 'From: ' + alias }).waitFor()
      const { html, text: plain, from } = await send(p)
      assert.equal(from, alias)
      assert.match(html, /^<div>Yes, <strong>always<\/strong><\/div>[^]*<blockquote type="cite">\n<div>Are you open\?<\/div>\n<blockquote type="cite">\n<div>quoted<\/div>/)
      assert.match(plain, /^Yes, always\n\nOn [^\n]*, Ada <ada@elsewhere\.test> wrote:\n> Are you open\?\n>> quoted\n/)
    })
  }

  test('Tab goes from the recipients to the subject to the text, and the text may run from right to left', async (t) => {
    const box = await mailbox(d, unique('tab'), a), p = await page(t, { as: a })
    await p.open(`/compose?from=${box.user_id}`)
    const at = () => p.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.labels?.[0]?.textContent)
    await p.getByRole('button', { name: 'From: ' + box.email }).waitFor()
    await text(p).waitFor()
    await p.getByRole('combobox', { name: 'To', exact: true }).focus()
    for (const next of ['Subject', 'Message', 'Bold', 'Send']) {
      await p.keyboard.press('Tab')
      if (next === 'Send') assert.equal(await p.evaluate(() => document.activeElement.textContent.trim()), 'Send')
      else assert.equal(await at(), next)
    }
    for (const [key, name] of [['Shift+Tab', 'Bold'], ['ArrowRight', 'Italic'], ['End', 'Remove formatting'], ['ArrowRight', 'Bold'], ['Shift+Tab', 'Message']]) {
      await p.keyboard.press(key)
      assert.equal(await at(), name)
    }
    await p.keyboard.press('Control+b')
    await p.keyboard.type('שלום עולם')
    assert.equal(await text(p).locator('p').first().evaluate((e) => getComputedStyle(e).direction), 'rtl')
    await p.getByLabel('Subject').fill('Hello')
    await p.getByRole('combobox', { name: 'To', exact: true }).fill('ada@elsewhere.test,')
    assert.equal((await send(p)).html, '<div dir="auto"><strong>שלום עולם</strong></div>')
  })
})

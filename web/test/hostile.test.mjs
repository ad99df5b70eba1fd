// Messages that were written to do harm: whatever they hold, nothing of it runs, leaves, opens or is asked for.
import assert from 'node:assert/strict'
import { readFile, readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { account, deliver, domain, mailbox, page, unique, until } from './rig.mjs'

const folder = new URL('../../mail/view/testdata/hostile/', import.meta.url)

test('hostile messages do nothing, with images off and on', async (t) => {
  const a = await account(unique('hostile') + '@people.test')
  const box = await mailbox(await domain(unique('hostile') + '.test', a), 'victim', a)
  const names = (await readdir(folder)).filter((name) => name.endsWith('.eml')).sort()
  assert.ok(names.length >= 20)
  for (const name of names) {
    const text = (await readFile(new URL(name, folder), 'latin1')).replace(/^(From|To|Subject|Message-ID|Date):.*(\r?\n[ \t].*)*\r?\n/gim, '')
    await deliver(box.email, `From: Eve <eve@elsewhere.test>\nTo: ${box.email}\nSubject: ${name}\nDate: ${new Date().toUTCString()}\nMessage-ID: <${unique('e')}@elsewhere.test>\n${text}`)
  }
  const list = `/v1/email-users/${box.user_id}/inbox?limit=100`
  const rows = await until('they are there', async () => {
    const { data } = await a.api('GET', list)
    return data.length === names.length && data
  })
  const p = await page(t, { as: a, expect: [/Failed to load resource.*\/session\/(image|files)\//] /* what is no picture */ })
  const harm = await watched(p)
  await p.open(`/inbox/${box.user_id}/${rows[0].uid}`)
  for (const row of rows) {
    const at = `/inbox/${box.user_id}/${row.uid}`
    if (row !== rows[0]) await p.keyboard.press('j')
    const region = p.getByRole('region', { name: 'Message', exact: true })
    await region.getByRole('heading', { name: row.subject }).waitFor()
    await quiet(p)
    const images = p.getByRole('button', { name: 'Show images' })
    if (await images.count() > 0) {
      await images.click()
      await images.waitFor({ state: 'detached' })
      await quiet(p)
    }
    for (const file of await region.locator('.inbox-file > button').all()) await look(p, file)
    assert.equal(new URL(p.url()).pathname, at, row.subject + ' led elsewhere')
    await until('the title of ' + row.subject, async () => (await p.title()).replace(/^\(\d+\) /, '') === row.subject + ' · Mailstead')
    for (const frame of p.frames()) assert.deepEqual(await unsafe(frame), [], row.subject)
    assert.deepEqual(harm, [], row.subject)
  }
})

/** Notes what must not happen; a script of a message that runs can only do one of these, or change the page's globals. */
async function watched(p) {
  const harm = []
  p.on('dialog', (d) => { harm.push('dialog ' + d.message()); void d.dismiss() })
  p.on('download', (d) => harm.push('download ' + d.url()))
  p.on('popup', (w) => harm.push('popup ' + w.url()))
  p.context().on('page', (w) => harm.push('page ' + w.url()))
  p.on('framenavigated', (f) => { if (f !== p.mainFrame() && !/\/session\/view\/|^about:/.test(f.url())) harm.push('frame went to ' + f.url()) })
  p.on('request', (r) => { if (r.frame() !== p.mainFrame() && !/\/session\/(view|image)\/|^data:/.test(r.url())) harm.push('a message asked for ' + r.url()) })
  return harm
}

/** Opens the preview of a file, waits until it shows something, and closes it. */
async function look(p, file) {
  const dialog = p.locator('dialog[open]')
  await file.click()
  await dialog.locator('pre, img, .notice, .empty, .inbox-preview-pages').first().waitFor()
  await dialog.getByRole('button', { name: 'Close' }).click()
  await dialog.waitFor({ state: 'detached' })
}

/** Waits until the message's frame is there and its images have been tried. */
async function quiet(p) {
  const frame = await p.locator('iframe').count() > 0 && await (await p.locator('iframe').elementHandle()).contentFrame()
  if (frame) await frame.waitForLoadState('load')
}

/** What a frame holds that could act: elements, handlers and addresses. Only the frames of messages are looked into. */
async function unsafe(frame) {
  if (!frame.parentFrame()) return []
  return frame.evaluate(() => {
    const bad = [...document.querySelectorAll('script, iframe, frame, object, embed, form, input, button, base, link[rel=stylesheet], meta[http-equiv=refresh], audio, video, math, foreignObject')].map((e) => e.outerHTML)
    for (const e of document.querySelectorAll('*')) {
      for (const { name, value } of e.attributes) if (/^on/i.test(name) || /^\s*(javascript|vbscript|data:text)/i.test(value)) bad.push(`${e.tagName} ${name}=${value}`)
    }
    return bad
  })
}

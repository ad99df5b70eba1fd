// Reading: conversations, folders, files, invitations, notifications, the search field, and the
// field from which one gets anywhere.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { before, describe, test } from 'node:test'
import { crc32, deflateSync, inflateRawSync } from 'node:zlib'
import { account, api, deliver, domain, here, mailbox, message, on, page, row, shot, sound, unique, until } from './rig.mjs'

let d

before(async () => {
  d = await domain(unique('reading') + '.test')
})

const password = 'a sentence of my own'

/** A person with a mailbox. */
async function person() {
  const box = await api('POST', '/v1/email-users', { username: unique('box'), domain: d.name, name: 'Anna Rossi', password })
  const at = `/v1/email-users/${box.user_id}`
  return { ...box, at, password, server: here, list: async (folder = 'inbox') => (await api('GET', `${at}/inbox?limit=100&folder=${encodeURIComponent(folder)}`)).data }
}

const reading = (p) => p.getByRole('region', { name: 'Message', exact: true })
const folder = (p, name) => p.getByRole('list', { name: 'Folders' }).getByRole('link', { name })

/** Delivers a conversation of so many messages, each an answer to the one before. */
async function conversation(box, n, subject = 'Moorings') {
  const id = (i) => `<${subject.toLowerCase()}-${i}-${box.username}@elsewhere.test>`
  for (let i = 1; i <= n; i++) {
    const headers = i > 1 ? `In-Reply-To: ${id(i - 1)}\nReferences: ${Array.from({ length: i - 1 }, (_, k) => id(k + 1)).join(' ')}\n` : ''
    await deliver(box.email, message({ to: box.email, subject: (i > 1 ? 'Re: ' : '') + subject, from: `Writer ${i} <writer${i}@elsewhere.test>`, text: `This is part ${i}.`, headers }).replace(/Message-ID: .*/, 'Message-ID: ' + id(i)))
  }
}

/** A picture in PNG. */
function picture(width, height) {
  const chunk = (name, data) => {
    const body = Buffer.concat([Buffer.from(name), data]), out = Buffer.alloc(4), sum = Buffer.alloc(4)
    out.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([out, body, sum])
  }
  const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0])
  head.writeUInt32BE(width)
  head.writeUInt32BE(height, 4)
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', head), chunk('IDAT', deflateSync(Buffer.alloc((width + 1) * height, 120))), chunk('IEND', Buffer.alloc(0))])
}

/**
 * A PDF of so many pages, each with a line of text; scripts that would run as it is opened do harm.
 */
function pdf(pages) {
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >> >>',
    `<< /Type /Pages /Kids [${Array.from({ length: pages }, (_, i) => `${4 + 2 * i} 0 R`).join(' ')}] /Count ${pages} >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  ]
  for (let i = 0; i < pages; i++) {
    const text = `BT /F1 24 Tf 40 120 Td (Berth plan ${i + 1}) Tj ET`
    objects.push(`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents ${5 + 2 * i} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`, `<< /Length ${text.length} >>\nstream\n${text}\nendstream`)
  }
  let out = '%PDF-1.4\n'
  const places = objects.map((o, i) => {
    const at = out.length
    out += `${i + 1} 0 obj\n${o}\nendobj\n`
    return at
  })
  const table = out.length
  out += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${places.map((at) => String(at).padStart(10, '0') + ' 00000 n \n').join('')}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${table}\n%%EOF\n`
  return Buffer.from(out, 'latin1')
}

/** A message with these files: name, type, content. */
function withFiles(to, subject, files) {
  const parts = files.map(([name, type, content]) => `--b\nContent-Type: ${type}; name="${name}"\nContent-Disposition: attachment; filename="${name}"\nContent-Transfer-Encoding: base64\n\n${Buffer.from(content).toString('base64').replace(/.{76}/g, '$&\n')}\n`)
  return message({ to, subject }).replace(/Content-Type: text\/plain[^]*/, `Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nFiles.\n${parts.join('')}--b--\n`)
}

/** The files of a ZIP archive whose entries end with a data descriptor. */
function unzip(raw) {
  const files = {}
  const end = raw.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'))
  for (let at = raw.readUInt32LE(end + 16), n = raw.readUInt16LE(end + 10); n > 0; n--) {
    const method = raw.readUInt16LE(at + 10), size = raw.readUInt32LE(at + 20), name = raw.readUInt16LE(at + 28), extra = raw.readUInt16LE(at + 30), note = raw.readUInt16LE(at + 32), local = raw.readUInt32LE(at + 42)
    const begin = local + 30 + raw.readUInt16LE(local + 26) + raw.readUInt16LE(local + 28), data = raw.subarray(begin, begin + size)
    files[raw.subarray(at + 46, at + 46 + name).toString()] = method === 8 ? inflateRawSync(data) : data
    at += 46 + name + extra + note
  }
  return files
}

describe('reading', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small), name = (what) => what + (small ? '-phone' : '')

    walk('a conversation is stacked, with its newest message open', async (t) => {
      const box = await person()
      await conversation(box, 3)
      const p = await page(t, { as: box, phone: small })
      await p.open('/inbox')
      await row(p, 'Moorings').getByRole('link').click()
      const letters = reading(p).getByRole('article'), stack = reading(p).getByRole('list', { name: 'Conversation' })
      await reading(p).getByText('3 messages in this conversation').waitFor()
      await letters.getByText('This is part 3.').waitFor()
      assert.equal(await letters.count(), 1)
      const lines = await stack.getByRole('button', { expanded: false }).allInnerTexts()
      assert.equal(lines.length, 2, lines.join())
      assert.match(lines[0], /Writer 1[^]*This is part 1\./, 'the oldest is first, with who and what')
      await sound(p, 'a stacked conversation')
      await shot(p, name('reading-conversation'))
      await stack.getByRole('button', { name: /Writer 1/ }).click()
      await letters.getByText('This is part 1.').waitFor()
      assert.equal(await letters.count(), 2, 'the newest stays open')
      await sound(p, 'a conversation with two open messages')
      await until('what was opened is read', async () => (await box.list()).filter((m) => !m.is_read).length === 1)
      await reading(p).getByRole('button', { name: 'Close this message' }).click()
      await stack.getByRole('button', { name: /Writer 1/ }).waitFor()
      await reading(p).getByRole('button', { name: 'Reply to Writer 3' }).click()
      await p.getByRole('button', { name: 'Remove Writer 3' }).waitFor()
    })

    walk('a long conversation folds, and an old message of it opens with the newest', async (t) => {
      const box = await person()
      await conversation(box, 12)
      for (const m of await box.list()) await api('PATCH', `${box.at}/inbox/${m.uid}`, { is_read: true })
      const oldest = (await box.list()).at(-1)
      const p = await page(t, { as: box, phone: small })
      await p.open(`/inbox/${box.user_id}/${oldest.uid}`)
      const letters = reading(p).getByRole('article')
      await letters.getByText('This is part 1.').waitFor()
      await letters.getByText('This is part 12.').waitFor()
      assert.equal(await reading(p).getByText(/This is part \d+\./).count(), 4, 'two open ones, and a line at each end of the fold')
      await reading(p).getByRole('button', { name: '8 more messages' }).click()
      await reading(p).getByText('This is part 7.').waitFor()
      await sound(p, 'a long conversation')
    })

    walk('folders are listed with what waits in them, and the title counts too', async (t) => {
      const box = await person()
      await api('POST', `${box.at}/folders`, { name: 'Berths' })
      for (const n of [1, 2, 3]) await deliver(box.email, message({ to: box.email, subject: 'Letter ' + n }))
      await api('POST', `${box.at}/drafts`, { subject: 'A draft' })
      const all = await box.list()
      await api('PATCH', `${box.at}/inbox/${all[0].uid}`, { is_read: true })
      await api('POST', '/v1/inbox/bulk-mark', { messages: [{ uid: all[0].uid, mailbox: box.email }], junk: true })
      await api('POST', '/v1/inbox/bulk-move', { messages: [{ uid: all[1].uid, mailbox: box.email }], to: 'Berths' })
      const p = await page(t, { as: box, phone: small })
      await p.open('/inbox')
      await row(p, 'Letter 1').waitFor()
      if (small) await p.getByRole('button', { name: 'Navigation' }).click()
      await folder(p, /^Inbox.*1 unread/).waitFor()
      await folder(p, /^Drafts.*1 message/).waitFor()
      await folder(p, /^Junk.*1 message/).waitFor()
      await folder(p, /^Berths.*1 unread/).waitFor()
      await p.waitForFunction(() => document.title === '(1) Inbox · Mailstead')
      await sound(p, 'the folders in the navigation')
      await shot(p, name('reading-folders'))
      await folder(p, /^Drafts/).click()
      await row(p, 'A draft').waitFor()
      assert.equal(new URL(p.url()).search, '?folder=drafts')
      if (small) await p.locator('.side.open').waitFor({ state: 'detached' })
      await deliver(box.email, message({ to: box.email, subject: 'Letter 4' }))
      await p.waitForFunction(() => document.title === '(2) Drafts · Mailstead')
    })

    walk('files are seen small and large, and got one by one and all together', async (t) => {
      const box = await person()
      const image = picture(120, 80), plan = pdf(2), book = pdf(60)
      await deliver(box.email, withFiles(box.email, 'Files', [
        ['harbour.png', 'image/png', image], ['page.html', 'text/html', '<script>alert(1)</script><b>Bold</b>'], ['logo.svg', 'image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'],
        ['plan.pdf', 'application/pdf', plan], ['book.pdf', 'application/pdf', book], ['notes.txt', 'text/plain', 'Berth 14 is free.'], ['notes.txt', 'text/plain', 'Berth 15 is not.'], ['data.bin', 'application/octet-stream', Buffer.from([0, 1, 2])],
      ]))
      const p = await page(t, { as: box, phone: small })
      const dialogs = []
      p.on('dialog', (one) => { dialogs.push(one.message()); void one.dismiss() })
      await p.open('/inbox')
      await row(p, 'Files').getByRole('link').click()
      const files = reading(p).getByRole('region', { name: 'Attachments' })
      await files.getByText('8 attachments').waitFor()
      await files.locator('img').first().evaluate((e) => e.decode())
      await sound(p, 'files of a message')
      await shot(p, name('reading-files'))
      const dialog = p.getByRole('dialog')
      await files.getByRole('button', { name: /^harbour\.png/ }).click()
      assert.equal(await dialog.getByRole('img', { name: 'harbour.png' }).evaluate(async (e) => { await e.decode(); return e.naturalWidth }), 120)
      await sound(p, 'a picture')
      await shot(p, name('reading-picture'))
      await dialog.getByRole('button', { name: 'Next file' }).click()
      await dialog.getByRole('region', { name: 'page.html' }).getByText('<script>alert(1)</script><b>Bold</b>').waitFor()
      await dialog.getByRole('button', { name: 'Next file' }).click()
      await dialog.getByRole('region', { name: 'logo.svg' }).getByText('onload').waitFor()
      await sound(p, 'a text')
      await dialog.getByRole('button', { name: 'Next file' }).click()
      const pages = dialog.getByRole('region', { name: 'plan.pdf' })
      await pages.locator('canvas').first().waitFor()
      assert.equal(await pages.locator('canvas').count(), 2)
      await until('the page is drawn', () => pages.locator('canvas').first().evaluate((c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v, i) => i % 4 === 0 && v < 100)))
      await pages.getByText('Berth plan 1').waitFor({ state: 'attached' })
      await sound(p, 'a PDF')
      await shot(p, name('reading-pdf'))
      await dialog.getByRole('button', { name: 'Next file' }).click()
      await dialog.getByText('Only the first 50 pages are shown.').waitFor()
      assert.equal(await dialog.getByRole('region', { name: 'book.pdf' }).locator('canvas').count(), 50)
      await dialog.getByRole('button', { name: 'Close' }).click()
      await files.getByRole('button', { name: /data\.bin/ }).waitFor({ state: 'detached' })
      const got = async (link) => {
        const [file] = await Promise.all([p.waitForEvent('download'), link.click()])
        return { name: file.suggestedFilename(), content: await readFile(await file.path()) }
      }
      assert.deepEqual((await got(files.getByRole('link', { name: /data\.bin/ }))).content, Buffer.from([0, 1, 2]))
      const zip = await got(files.getByRole('link', { name: 'Download all' }))
      const inside = unzip(zip.content)
      assert.match(zip.name, /\.zip$/)
      assert.deepEqual(Object.keys(inside), ['harbour.png', 'page.html', 'logo.svg', 'plan.pdf', 'book.pdf', 'notes.txt', 'notes (2).txt', 'data.bin'])
      assert.deepEqual(inside['harbour.png'], image)
      assert.deepEqual(inside['plan.pdf'], plan)
      assert.equal(String(inside['notes (2).txt']), 'Berth 15 is not.')
      assert.deepEqual(dialogs, [])
    })

    walk('an invitation is one card with time, place and people', async (t) => {
      const box = await person()
      const invite = (subject, ...lines) => {
        const event = ['BEGIN:VCALENDAR', 'METHOD:REQUEST', 'BEGIN:VEVENT', 'UID:' + unique('event'), 'SUMMARY:' + subject, 'ORGANIZER;CN=Ines:mailto:ines@elsewhere.test', `ATTENDEE;CN=Anna:mailto:${box.email}`, ...lines, 'END:VEVENT', 'END:VCALENDAR'].join('\n')
        return deliver(box.email, message({ to: box.email, subject }).replace('Content-Type: text/plain; charset=utf-8\n\nHello.', `Content-Type: text/calendar; charset=utf-8; method=REQUEST\n\n${event}`))
      }
      await invite('Pier walk', 'LOCATION:Pier 3', 'DTSTART:20301127T130000Z', 'DURATION:PT1H', 'ATTENDEE;CN=Cleo;PARTSTAT=ACCEPTED:mailto:cleo@elsewhere.test', 'ATTENDEE;PARTSTAT=DECLINED:mailto:dora@elsewhere.test')
      await invite('Regatta', 'DTSTART;VALUE=DATE:20301201', 'DTEND;VALUE=DATE:20301203')
      const p = await page(t, { as: box, phone: small })
      await p.open('/inbox')
      await row(p, 'Pier walk').getByRole('link').click()
      const card = p.getByRole('region', { name: 'Invitation' })
      await card.getByText(/Wednesday,? 27 November 2030/).waitFor()
      assert.match(await card.locator('time').innerText(), /14:00\D+15:00.*CET|GMT\+1/, 'in the zone of the reader')
      await card.getByText('Pier 3', { exact: true }).waitFor()
      const people = await card.getByRole('listitem').allInnerTexts()
      assert.deepEqual(people.map((text) => text.replace(/\s+/g, ' ').trim()), ['Anna no answer yet', 'Cleo accepted', 'dora@elsewhere.test declined'])
      await sound(p, 'an invitation')
      await shot(p, name('reading-invitation'))
      await card.getByRole('button', { name: 'Yes' }).click()
      await card.getByText('You accepted.').waitFor()
      await card.getByRole('listitem').filter({ hasText: /Anna\s*accepted/ }).waitFor()
      await until('the answer is sent', async () => (await box.list('sent'))[0]?.subject === 'Accepted: Pier walk')
      if (small) await reading(p).getByRole('button', { name: 'Back to the list' }).click()
      await row(p, 'Regatta').getByRole('link').click()
      await card.getByText('Regatta').waitFor()
      assert.match(await card.locator('time').innerText(), /1\D*2 December 2030|1 December 2030\D+2 December 2030/, 'days are the same in every zone')
    })

    walk('the search field completes operators and leads into the results', async (t) => {
      const box = await person()
      for (const n of [1, 2, 3]) await deliver(box.email, message({ to: box.email, subject: 'Letter ' + n }))
      await api('POST', `${box.at}/folders`, { name: 'Old berths' })
      await api('POST', `${box.at}/inbox/send`, { to: ['ada@elsewhere.test'], subject: 'Hello', text: 'Hi.' })
      const p = await page(t, { as: box, phone: small })
      await p.open('/inbox')
      await row(p, 'Letter 1').waitFor()
      const field = p.getByRole('combobox', { name: 'Search messages' }), list = p.getByRole('listbox', { name: 'Search operators' })
      await field.click()
      await p.keyboard.type('is:')
      await list.getByRole('option', { name: /is:unread/ }).waitFor()
      assert.deepEqual(await list.getByRole('option').locator('code').allInnerTexts(), ['is:unread', 'is:read', 'is:starred', 'is:answered'])
      await sound(p, 'the completions')
      await shot(p, name('reading-search'))
      await p.waitForTimeout(500) // it searches once the typing pauses
      await row(p, 'Letter 1').waitFor()
      assert.doesNotMatch(p.url(), /q=/, 'half an operator is not searched for')
      await p.keyboard.press('ArrowDown')
      await p.keyboard.press('Enter')
      assert.equal(await field.inputValue(), 'is:unread ')
      await p.keyboard.type('-in:old')
      await list.getByRole('option', { name: 'in:"Old berths"' }).click()
      assert.equal(await field.inputValue(), 'is:unread -in:"Old berths" ')
      await p.keyboard.type('fr')
      await list.getByRole('option', { name: /from:/ }).waitFor()
      await p.keyboard.press('Tab')
      assert.equal(await field.inputValue(), 'is:unread -in:"Old berths" from:')
      await field.fill('')
      await p.keyboard.type('to:ad')
      await list.getByRole('option', { name: /to:ada@elsewhere\.test/ }).waitFor()
      await p.keyboard.press('Escape')
      await list.waitFor({ state: 'detached' })
      assert.equal(await field.inputValue(), 'to:ad', 'the first Escape closes the list')
      await p.keyboard.press('Escape')
      assert.equal(await field.inputValue(), '')
      await p.keyboard.type('letter')
      await p.waitForURL(/q=letter/)
      await row(p, 'Letter 3').waitFor()
      await p.keyboard.press('ArrowDown')
      await p.waitForFunction(() => document.activeElement?.closest('.inbox-row')?.textContent.includes('Letter 3'))
      await p.keyboard.press('ArrowDown')
      await p.waitForFunction(() => document.activeElement?.closest('.inbox-row')?.textContent.includes('Letter 2'))
      await p.keyboard.press('ArrowUp')
      await p.keyboard.press('ArrowUp')
      await p.waitForFunction(() => document.activeElement?.id === 'inbox-search')
    })

    walk('a person gets anywhere in their mailbox from one field', async (t) => {
      const box = await person()
      await deliver(box.email, message({ to: box.email, subject: 'Lighthouse keys' }))
      const p = await page(t, { as: box, phone: small })
      const asked = []
      p.on('request', (r) => { if (/\/v1\//.test(r.url())) asked.push(new URL(r.url()).pathname) })
      await p.open('/inbox')
      await row(p, 'Lighthouse keys').waitFor()
      if (small) {
        await p.getByRole('button', { name: 'Navigation' }).click()
        await p.getByRole('button', { name: 'Find anything' }).click()
      } else await p.keyboard.press('Control+k')
      const dialog = p.getByRole('dialog', { name: 'Find anything' }), field = dialog.getByRole('combobox')
      await dialog.getByRole('option', { name: 'My mailbox' }).waitFor()
      assert.equal(await dialog.getByRole('option', { name: 'Domains' }).count(), 0, 'only their own pages')
      await sound(p, 'the field from which one gets anywhere')
      await shot(p, name('reading-palette'))
      await p.waitForFunction(() => document.activeElement?.getAttribute('role') === 'combobox')
      await p.keyboard.type('lighthouse')
      await dialog.getByRole('group', { name: 'Messages' }).getByRole('option', { name: /Lighthouse keys/ }).waitFor()
      await p.keyboard.press('Enter')
      await reading(p).getByRole('heading', { name: 'Lighthouse keys' }).waitFor()
      assert.ok(!asked.some((path) => /^\/v1\/(email-users|domains)$/.test(path)), 'nothing of the account is asked for')
      if (small) return
      await p.keyboard.press('Control+k')
      await field.fill('my mail')
      await p.keyboard.press('Enter')
      await p.getByRole('heading', { level: 1, name: 'My mailbox' }).waitFor()
    })

    walk('the bar of a message with images stacks on a phone', async (t) => {
      const box = await person()
      await deliver(box.email, message({ to: box.email, subject: 'Sale' }).replace(/Content-Type: text\/plain[^]*/, 'Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\nBig sale\n--b\nContent-Type: text/html\n\n<h1>Big sale</h1><img src="https://images.elsewhere.test/a.png" width="80" height="40">\n--b--\n'))
      const p = await page(t, { as: box, phone: small, dark: true })
      await p.open('/inbox')
      await row(p, 'Sale').getByRole('link').click()
      const text = reading(p).getByText('1 remote image blocked'), button = reading(p).getByRole('button', { name: 'Show images' })
      const [above, below] = [await text.boundingBox(), await button.boundingBox()]
      assert.equal(below.y >= above.y + above.height - 1, small, 'the button is below the text on a phone')
      assert.ok(above.width > 200, 'the text has room')
      await sound(p, 'the bar of images')
      await shot(p, name('reading-images'))
    })
  }

  test('the team gets to pages, mailboxes, domains and messages from one field', async (t) => {
    const a = await account(unique('finder') + '@people.test')
    const own = await domain(unique('finder') + '.test', a), box = await mailbox(own, unique('keeper'), a)
    await deliver(box.email, message({ to: box.email, subject: 'Lighthouse lamps' }))
    await until('it is there', async () => (await a.api('GET', `${'/v1/email-users/' + box.user_id}/inbox`)).data.length === 1)
    const p = await page(t, { as: a })
    const dialog = p.getByRole('dialog', { name: 'Find anything' })
    const find = async (typed, group, option) => {
      await p.keyboard.press('Control+k')
      await dialog.getByRole('combobox').fill(typed)
      const found = dialog.getByRole('group', { name: group }).getByRole('option', { name: option })
      await found.waitFor()
      for (let i = 0; i < 20 && await found.getAttribute('aria-selected') !== 'true'; i++) await p.keyboard.press('ArrowDown')
      await p.keyboard.press('Enter')
      await dialog.waitFor({ state: 'detached' })
    }
    await p.open('/')
    await p.getByRole('heading', { level: 1 }).waitFor()
    await find('suppr', 'Pages', 'Suppressions')
    await p.waitForURL('**/sent/suppressions')
    for (const [typed, option, at] of [['invite', 'Team', '/team'], ['share mailbox', 'Access to a mailbox', '/mailboxes'], ['curl', 'Connect', '/connect'], ['vacation', 'Automatic reply', '/mailboxes']]) {
      await find(typed, 'Pages', option)
      await p.waitForURL('**' + at)
    }
    await find('dark', 'Pages', 'Use dark theme')
    await p.waitForFunction(() => document.documentElement.dataset.theme === 'dark')
    await find(box.username, 'Mailboxes', new RegExp(box.email))
    await p.waitForURL('**/mailboxes/' + box.user_id)
    await find('alias', 'Pages', 'Aliases')
    await p.waitForURL(`**/mailboxes/${box.user_id}/addresses`)
    await find(own.name, 'Domains', own.name)
    await p.waitForURL('**/domains/' + own.id)
    await find('lamps', 'Messages', /Lighthouse lamps/)
    await reading(p).getByRole('heading', { name: 'Lighthouse lamps' }).waitFor()
    await p.keyboard.press('Control+k')
    await dialog.getByRole('combobox').fill('nothing is called so')
    await dialog.getByText('Nothing found.').waitFor()
    await sound(p, 'nothing found')
    await p.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
  })

  test('new mail notifies who wants it, while nobody sees the page', async (t) => {
    const box = await person()
    const p = await page(t, { as: box })
    await p.context().grantPermissions(['notifications', 'clipboard-read', 'clipboard-write'])
    await p.addInitScript(() => {
      globalThis.told = []
      globalThis.Notification = class {
        static permission = 'granted'
        static requestPermission = async () => { globalThis.asked = true; return 'granted' }
        constructor(title, options) { globalThis.told.push({ title, ...options }); globalThis.last = this }
        close() { this.closed = true }
      }
      let hidden = false
      Object.defineProperty(document, 'visibilityState', { get: () => (hidden ? 'hidden' : 'visible') })
      globalThis.hide = (is) => { hidden = is; document.dispatchEvent(new Event('visibilitychange')) }
    })
    await p.clock.install()
    await p.open('/inbox')
    await p.getByRole('heading', { name: 'No mail yet' }).waitFor()
    assert.equal(await p.evaluate(() => globalThis.asked), undefined, 'nothing is asked for by itself')
    await p.getByRole('button', { name: 'Inbox options' }).click()
    await sound(p, 'the menu of the inbox')
    await p.getByRole('button', { name: 'Notify me of new mail' }).click()
    await p.getByText('Notifications are on.').waitFor()
    const known = p.waitForResponse(async (r) => r.url().includes('is_read=false') && (await r.text()).includes('Seen as it comes')) // what notifies reads by itself
    await deliver(box.email, message({ to: box.email, subject: 'Seen as it comes', text: 'A secret text.' }))
    await row(p, 'Seen as it comes').waitFor()
    await known
    await p.evaluate(() => globalThis.hide(true))
    await p.clock.fastForward(40_000) // a page that nobody sees hears of nothing by then, unless it is to notify
    await deliver(box.email, message({ to: box.email, subject: 'Unseen', from: 'Ada <ada@elsewhere.test>', text: 'A secret text.' }))
    await until('it is told of', () => p.evaluate(() => globalThis.told.length > 0))
    const told = await p.evaluate(() => globalThis.told)
    assert.deepEqual(told.map((n) => [n.title, n.body]), [['Ada', 'Unseen']], 'what came while the page was seen is not told of, nor what a message says')
    await p.evaluate(() => { globalThis.hide(false); globalThis.last.onclick() })
    await reading(p).getByRole('heading', { name: 'Unseen' }).waitFor()
    await p.keyboard.press('u')
    await p.getByRole('button', { name: 'Inbox options' }).click()
    await p.getByRole('button', { name: 'Stop notifications' }).click()
    await p.getByText('Notifications are off.').waitFor()
  })
})

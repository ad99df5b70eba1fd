// The pages of people in each language, on a wide screen and on a phone: nothing on them is left in
// English, the page says which language it is in, and nothing is cut off. A team sees English.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { readTexts } from '../words.mjs'
import { api, deliver, domain, here, message, owner, page, row, shot, sound, unique, until } from './rig.mjs'

const tags = { en: 'en-GB', de: 'de-AT', fr: 'fr-FR', es: 'es-ES' }
const texts = await readTexts()

let d

before(async () => {
  d = await domain(unique('tongue') + '.test')
})

/** A text of a language, with values for its {names}. */
const sayer = (language) => (key, values = {}) => texts[language][key].replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole)

/**
 * What a text is on a page, with anything for its {names}; undefined for one that is almost nothing
 * but names.
 */
function patternOf(text) {
  if ((text.replace(/\{\w+\}/g, '').match(/\p{L}/gu) ?? []).length < 4) return undefined
  return new RegExp('^' + text.trim().split(/\{\w+\}/).map((part) => part.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('[^]+') + '$')
}

const patterns = Object.fromEntries(Object.entries(texts).map(([language, all]) => [language, Object.entries(all).map(([key, text]) => [key, text, patternOf(text)]).filter(([, , p]) => p)]))

const isOf = (language, text) => Object.values(texts[language]).includes(text) || patterns[language].some(([, , p]) => p.test(text))

/** The texts of a page that are English, and in its own language are others. */
function english(language, seen) {
  const others = patterns.en.filter(([key, text]) => texts[language][key] !== text)
  return seen.filter((text) => others.some(([, , p]) => p.test(text)) && !isOf(language, text))
}

/** What is no text of the dashboard: names, addresses, numbers, keys, terms of the field. */
const theirs = new RegExp(['^[^\\p{L}]*$', '@', '\\.test\\b', '^(Mailstead|Message-ID|IMAP|SMTP|API|SPF|DKIM|DMARC|TLS|STARTTLS|MB|MiB|KiB|B|HTML|PDF|NOTES\\.TXT|TXT|ok|[a-zA-Z])$',
  '^(IMAP|SMTP), (IMAP|SMTP)$', '^(English|Deutsch|Français|Español)$', 'Writer', 'Letter', 'Anna Rossi', 'Quay|quay', 'Berths', 'notes\\.txt', 'Pier walk', 'Moorings', 'X-Project', '^cred_', '^token_', 'is:unread', '^(from|to|cc|subject|in|is|has|before|after|larger|smaller):', '^port \\d+, ',
  'Chrome|Linux', '\\.(eml|ics)$', '^\\d+ B$', '^Nov$', '^Ctrl \\+? ?[A-Z]$', '^(softfail|neutral|none|temperror|permerror)'].join('|'), 'u')

/** All texts of a page, and those of names and hints. Runs in the page. */
function shown() {
  const out = new Set()
  const add = (text) => { if (text?.trim()) out.add(text.replace(/\s+/g, ' ').trim()) }
  for (const e of document.querySelectorAll('body, body *')) {
    if (!e.checkVisibility({ visibilityProperty: true }) && e.tagName !== 'OPTION' || e.closest('script, noscript, pre, code, svg, .compose-text, .inbox-headers')) continue
    for (const name of ['aria-label', 'title', 'placeholder', 'alt']) add(e.getAttribute(name))
    const direct = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE && n.data.trim())
    for (const n of direct) add(n.data)
    if (direct.length > 0 && e.children.length > 0) add(e.textContent)
  }
  add(document.title.replace(/^\(\d+\) /, '').replace(/ · Mailstead$/, ''))
  return [...out]
}

/** What is cut off of the words of buttons, titles and names of fields. Runs in the page. */
function cut() {
  return [...document.querySelectorAll('h1, h2, h3, button, .button, label, legend, .badge, .hint, dt, nav a, summary')]
    .filter((e) => e.checkVisibility({ visibilityProperty: true }) && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible')
    .filter((e) => !e.closest('.visually-hidden, .inbox-picker, .side-foot, .inbox-row')).map((e) => e.outerHTML.slice(0, 160))
}

/** A mailbox that has of everything. */
async function person() {
  const password = 'a sentence of my own'
  const box = await api('POST', '/v1/email-users', { username: unique('box'), domain: d.name, name: 'Anna Rossi', password })
  const at = `/v1/email-users/${box.user_id}`
  const send = (subject, text, headers = '', content = 'Content-Type: text/plain; charset=utf-8') => deliver(box.email, message({ to: box.email, subject, text, headers, from: 'Writer <writer@elsewhere.test>' }).replace('Content-Type: text/plain; charset=utf-8', content))
  await send('Letter of the quay', 'This is about the quay.', 'List-Unsubscribe: <https://127.0.0.1:1/off>\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\n')
  await send('Letter with pictures', '--b\nContent-Type: text/html; charset=utf-8\n\n<p>Quay</p><img src="https://elsewhere.test/a.png">\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Disposition: attachment; filename=notes.txt\n\nQuay notes.\n--b--', '', 'Content-Type: multipart/mixed; boundary=b')
  const event = ['BEGIN:VCALENDAR', 'METHOD:REQUEST', 'BEGIN:VEVENT', 'UID:' + unique('event'), 'SUMMARY:Pier walk', 'DTSTART:20301127T130000Z', 'DURATION:PT1H', 'ORGANIZER:mailto:ines@elsewhere.test', `ATTENDEE:mailto:${box.email}`, 'ATTENDEE;PARTSTAT=ACCEPTED:mailto:uma@elsewhere.test', 'END:VEVENT', 'END:VCALENDAR'].join('\n')
  await send('Pier walk', event, '', 'Content-Type: text/calendar; charset=utf-8; method=REQUEST')
  for (const [id, answers] of [['one', ''], ['two', 'one'], ['three', 'two']]) {
    await deliver(box.email, message({ to: box.email, subject: 'Moorings', from: `Writer ${id} <${id}@elsewhere.test>`, text: 'Quay ' + id, headers: answers && `In-Reply-To: <${answers}-${box.username}@elsewhere.test>\n` }).replace(/Message-ID: .*/, `Message-ID: <${id}-${box.username}@elsewhere.test>`))
  }
  await api('POST', at + '/folders', { name: 'Berths' })
  await api('POST', at + '/rules', {
    name: 'Quay', match: 'any', conditions: [{ field: 'list_id', op: 'exists' }, { field: 'size', op: 'above', value: 10_000_000 }, { field: 'subject', op: 'contains', value: 'quay', not: true }],
    actions: [{ type: 'copy', value: 'archive' }, { type: 'flag' }, { type: 'stop' }],
  })
  return { ...box, password, server: here }
}

/** Goes through the pages of a person in a language. Returns all texts that were seen. */
async function tour(t, language, small) {
  const say = sayer(language), all = new Set(), faults = []
  const box = await person()
  const p = await page(t, { as: null, phone: small, locale: tags[language], server: here, expect: [/status of 40\d/] })
  const button = (key, values, within = p) => within.getByRole('button', { name: say(key, values), exact: true })
  const heading = (key) => p.getByRole('heading', { name: say(key), exact: true }).first().waitFor()
  const dialog = p.getByRole('dialog')
  const look = async (name) => {
    const where = `${name} in ${language}${small ? ' on a phone' : ''}`
    assert.equal(await p.locator('html').getAttribute('lang'), language, where)
    const seen = await p.evaluate(shown)
    for (const text of seen) all.add(text)
    if (language !== 'en') faults.push(...english(language, seen).map((text) => `${where}: ${text}`))
    faults.push(...(await p.evaluate(cut)).map((html) => `${where}, cut off: ${html}`))
    if (language !== 'en') await sound(p, where, { colours: false })
    await shot(p, `language-${language}-${name.replaceAll(' ', '-')}${small ? '-phone' : ''}`)
  }
  const close = () => dialog.last().getByRole('button', { name: say('ui.close'), exact: true }).click()

  await p.open('/sign-in')
  await heading('gate.sign_in')
  await look('sign-in')
  await p.getByLabel(say('gate.email')).fill(box.email)
  await p.getByLabel(say('ui.password')).fill('not the password')
  await button('gate.sign_in').click()
  await p.getByRole('alert').waitFor()
  await look('wrong password')
  await p.getByRole('link', { name: say('gate.forgot') }).click()
  await heading('gate.reset')
  await p.getByLabel(say('gate.email')).fill('nobody@elsewhere.test')
  await button('gate.reset.send').click()
  await p.getByText(say('gate.reset.sent', { email: 'nobody@elsewhere.test' })).waitFor()
  await look('reset')
  await p.open('/welcome?token=none')
  await heading('gate.expired')
  await look('link that expired')
  await p.open('/sign-in')
  await p.getByLabel(say('gate.email')).fill(box.email)
  await p.getByLabel(say('ui.password')).fill(box.password)
  await button('gate.sign_in').click()

  await row(p, 'Pier walk').waitFor()
  await look('inbox')
  await button('inbox.filters').click()
  await p.getByRole('combobox', { name: say('inbox.search') }).pressSequentially('i')
  await p.locator('.inbox-completions li').first().waitFor()
  await look('search')
  await p.open('/inbox?q=nothingofthekind')
  await heading('inbox.no_results')
  await look('no results')
  await p.open('/inbox?folder=junk')
  await p.getByText(say('inbox.empty.junk')).waitFor()
  await look('empty folder')
  await p.open('/inbox')
  await button('inbox.options').click()
  await button('inbox.keys').click()
  await dialog.waitFor()
  await look('keys')
  await close()
  await button('inbox.folders').click()
  await button('inbox.folder.rename', { name: 'Berths' }).waitFor()
  await look('folders')
  await close()
  await row(p, 'Moorings').getByRole('checkbox').click()
  await button('inbox.move_to').waitFor()
  await look('selection')
  await p.keyboard.press('Escape')
  await p.keyboard.press('Control+k')
  await dialog.getByRole('option').first().waitFor()
  await look('palette')
  await p.keyboard.press('Escape')

  await row(p, 'Letter with pictures').getByRole('link').click()
  await button('message.show_images').waitFor()
  await p.locator('.inbox-verdict summary').click()
  await look('message')
  await p.keyboard.press('Escape')
  await p.locator('.inbox-file button').click()
  await dialog.getByText('Quay notes.').waitFor()
  await look('preview')
  await close()
  await button('message.more').click()
  await look('menu')
  await button('message.make_rule').click()
  await dialog.getByLabel(say('rule.condition.value', { n: 1 })).waitFor()
  await look('rule of a message')
  await close()
  await p.open('/inbox')
  await row(p, 'Pier walk').getByRole('link').click()
  await p.getByRole('region', { name: say('message.invitation') }).getByText('Pier walk').waitFor()
  await button('message.invitation.maybe').click()
  await p.getByText(say('message.invitation.tentative')).waitFor()
  await look('invitation')
  await p.open('/inbox')
  await row(p, 'Moorings').getByRole('link').click()
  await p.getByText(say('message.conversation.other', { n: 3 })).waitFor()
  await button('inbox.delete').first().click()
  await button('ui.undo').waitFor()
  await look('conversation')

  await p.open('/inbox')
  await row(p, 'Letter of the quay').getByRole('link').click()
  await button('message.more').click()
  await button('message.unsubscribe').click()
  await button('message.unsubscribe', {}, dialog).click()
  await dialog.getByRole('alert').waitFor()
  await look('a list that cannot be left')
  await p.keyboard.press('Escape')
  await p.open('/compose')
  await heading('compose.title.new')
  await p.locator('.compose-tools').waitFor()
  await button('compose.send').click()
  await p.getByText(say('compose.wrong.nobody')).waitFor()
  await button('compose.choose_time').click()
  await look('nobody to send to')
  await button('compose.remove_time').click()
  await p.getByLabel(say('compose.to'), { exact: true }).fill('uma@elsewhere.test,')
  await button('compose.send').click()
  await dialog.waitFor()
  await look('no subject')
  await p.keyboard.press('Escape')
  await p.getByLabel(say('compose.subject'), { exact: true }).fill('Quay')
  await p.locator('.compose-text').fill('Quay.')
  await button('compose.send').click()
  await button('ui.undo').waitFor()
  await look('sent')

  await p.open('/me')
  await heading('shell.me')
  await p.getByText('Quay', { exact: true }).waitFor()
  await look('my mailbox')
  await button('apps.new').click()
  await dialog.getByLabel(say('apps.limit')).check()
  await dialog.getByLabel(say('policy.may_send'), { exact: true }).selectOption('reply_only')
  await dialog.getByLabel(say('policy.careful')).check()
  await look('app password')
  await dialog.getByLabel(say('passkeys.name'), { exact: true }).fill('Quay phone')
  await button('apps.create', {}, dialog).click()
  await dialog.locator('pre').first().waitFor()
  await look('a secret')
  await button('apps.done', {}, dialog).click()
  await p.getByText(say('policy.note.reply_only')).waitFor()
  await button('apps.revoke', { name: 'Quay phone' }).click()
  await look('question')
  await p.keyboard.press('Escape')
  await button('rule.new').click()
  await dialog.getByLabel(say('rule.condition.field', { n: 1 })).selectOption('size')
  await button('rule.add_condition', {}, dialog).click()
  await dialog.getByLabel(say('rule.action', { n: 1 }), { exact: true }).selectOption('stop')
  await look('rule')
  await p.keyboard.press('Escape')
  await button('ui.discard.action').waitFor()
  await look('changes that would be lost')
  await button('ui.discard.action').click()
  await dialog.waitFor({ state: 'detached' })
  await button('rule.try').click()
  await dialog.getByText('Pier walk').waitFor()
  await p.waitForFunction(() => !document.querySelector('dialog .skeleton'))
  await look('rules that are tried')
  await close()
  await button('factor.set_up').click()
  await dialog.getByLabel(say('me.password.now')).fill('not the password')
  await button('factor.continue', {}, dialog).click()
  await dialog.getByRole('alert').waitFor()
  await look('second factor')
  await dialog.getByLabel(say('me.password.now')).fill(box.password)
  await button('factor.continue', {}, dialog).click()
  await dialog.getByLabel(say('factor.code')).waitFor()
  await look('code of the second factor')
  await p.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  await p.getByLabel(say('me.password.now')).fill('not the password')
  await p.getByLabel(say('me.password.new')).fill('short')
  await button('me.password.change').click()
  await p.getByRole('alert').first().waitFor()
  await look('a field that is wrong')
  await button('sessions.end_all').click()
  await look('signing out everywhere')
  await p.keyboard.press('Escape')
  await p.open('/nowhere')
  await heading('shell.no_page')
  await look('no page')
  assert.deepEqual(faults, [])
  return all
}

describe('languages', { concurrency: 2 }, () => {
  let inEnglish
  const baseline = (t) => inEnglish ??= tour(t, 'en', false)
  for (const language of ['de', 'fr', 'es']) {
    for (const small of [false, true]) {
      test(`a person’s pages are in the language of the browser: ${language}${small ? ' on a phone' : ''}`, async (t) => {
        const same = await baseline(t)
        const seen = await tour(t, language, small)
        assert.deepEqual([...seen].filter((text) => same.has(text) && !theirs.test(text) && !isOf(language, text)), [], 'as in English')
      })
    }
  }

  test('a person chooses another language, which the browser keeps', async (t) => {
    const box = await person()
    const p = await page(t, { as: box, locale: tags.de })
    await p.open('/me')
    const choice = p.getByLabel(texts.de['me.language.label'])
    await choice.selectOption('fr')
    await p.getByRole('heading', { level: 1, name: texts.fr['shell.me'] }).waitFor()
    assert.equal(await p.locator('html').getAttribute('lang'), 'fr')
    await p.open('/inbox')
    await p.getByRole('heading', { level: 1, name: texts.fr['inbox.folder.inbox'] }).waitFor()
    assert.equal(await p.locator('html').getAttribute('lang'), 'fr')
    await p.open('/me')
    await p.getByLabel(texts.fr['me.language.label']).selectOption('')
    await p.getByRole('heading', { level: 1, name: texts.de['shell.me'] }).waitFor()
  })

  test('a team sees English, once it has signed in', async (t) => {
    const p = await page(t, { as: null, locale: tags.de, server: here })
    await p.open('/')
    await p.getByLabel(texts.de['gate.email']).fill(owner.email)
    await p.getByLabel(texts.de['ui.password']).fill(owner.password)
    await p.getByRole('button', { name: texts.de['gate.sign_in'], exact: true }).click()
    await p.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
    assert.equal(await p.locator('html').getAttribute('lang'), 'en')
    await p.open('/inbox')
    await p.getByRole('heading', { level: 1, name: 'Inbox' }).waitFor()
    await until('the inbox is read', () => p.locator('.inbox-row, .empty').first().isVisible())
    assert.deepEqual((await p.evaluate(shown)).filter((text) => patterns.de.some(([key, de, pattern]) => de !== texts.en[key] && pattern.test(text)) && !isOf('en', text) && !theirs.test(text)), [])
  })
})

// The person of a mailbox: every errand of a day takes three clicks at most, counted from the inbox.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { before, describe } from 'node:test'
import { api, deliver, domain, here, mailbox, message, on, page, shot, sound, unique, until } from './rig.mjs'

let d

before(async () => {
  d = await domain(unique('own') + '.test')
})

const password = 'a sentence of my own'

/** A mailbox with its password, and so many letters in it. */
async function person(n = 0) {
  const box = await api('POST', '/v1/email-users', { username: unique('box'), domain: d.name, name: 'Anna Rossi', password })
  for (let i = n; i >= 1; i--) await deliver(box.email, message({ to: box.email, subject: `Letter ${i}`, from: `Writer ${i} <writer${i}@elsewhere.test>`, text: `This is letter ${i}.` }))
  const at = `/v1/email-users/${box.user_id}`
  return { ...box, password, server: here, list: async (folder = 'inbox') => (await api('GET', `${at}/inbox?limit=100&folder=${encodeURIComponent(folder)}`)).data, get: () => api('GET', at) }
}

/** Counts clicks, so that an errand can be held to its number. */
function counting(p, small) {
  let n = 0
  return {
    click: async (what) => {
      n++
      await what.click()
    },
    /** Opens the navigation on a phone, which counts. */
    go: async function (name) {
      if (small) await this.click(p.getByRole('button', { name: 'Navigation' }))
      await this.click(p.getByRole('navigation', { name: 'Main' }).getByRole('link', { name }))
    },
    at: (most, what) => {
      assert.ok(n <= most, `${what}: ${n} clicks`)
      n = 0
    },
  }
}

const row = (p, subject) => p.locator('.inbox-row').filter({ hasText: subject })
const reading = (p) => p.getByRole('region', { name: 'Message', exact: true })
const toast = (p, text) => p.getByRole('status').getByText(text).first().waitFor()

describe('own mailbox', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small), name = (what) => what + (small ? '-phone' : '')

    walk('one signs in, reads, answers, finds and files', async (t) => {
      const box = await person(3)
      await api('POST', `/v1/email-users/${box.user_id}/folders`, { name: 'Berths' })
      const p = await page(t, { as: null, phone: small }), clicks = counting(p, small)
      await p.open('/sign-in')
      await p.getByLabel('Email').fill(box.email)
      await p.getByLabel('Password').fill(password)
      await clicks.click(p.getByRole('button', { name: 'Sign in', exact: true }))
      await row(p, 'Letter 1').waitFor()
      clicks.at(1, 'sign in')
      assert.equal(await p.getByRole('link', { name: 'Domains' }).count(), 0, 'no infrastructure in the navigation')
      await sound(p, 'the inbox of a person')
      await shot(p, name('own-inbox'))

      await clicks.click(row(p, 'Letter 1').getByRole('link'))
      await reading(p).getByText('This is letter 1.').waitFor()
      clicks.at(3, 'read')
      await sound(p, 'a message of a person')
      await shot(p, name('own-message'))

      await clicks.click(reading(p).getByRole('button', { name: 'Reply', exact: true }))
      const dock = p.getByRole('dialog', { name: 'Reply' })
      await dock.getByRole('button', { name: 'Remove Writer 1' }).waitFor()
      await p.keyboard.type('Thank you.')
      await dock.getByText('Saved in Drafts').waitFor()
      assert.equal((await box.list('drafts')).length, 1, 'what is written is saved')
      await sound(p, 'an answer of a person')
      await shot(p, name('own-answer'))
      await clicks.click(dock.getByRole('button', { name: 'Send' }))
      await p.getByRole('button', { name: 'Undo' }).waitFor()
      clicks.at(3, 'answer')
      await until('it is sent', async () => (await box.list('sent')).length === 1)
      await until('its draft is gone', async () => (await box.list('drafts')).length === 0)
      await until('the letter shows it', async () => (await box.list()).find((m) => m.subject === 'Letter 1').answered_by?.kind === 'mailbox')
      if (small) await reading(p).getByRole('button', { name: 'Back to the list' }).click()

      await clicks.click(p.getByRole('textbox', { name: 'Search messages' }))
      await p.keyboard.type('letter 2')
      await row(p, 'Letter 3').waitFor({ state: 'detached' })
      await row(p, 'Letter 2').waitFor()
      clicks.at(3, 'find')

      await clicks.click(row(p, 'Letter 2').getByRole('link'))
      await clicks.click(reading(p).getByRole('button', { name: 'Move to folder' }))
      await clicks.click(p.getByRole('button', { name: 'Berths' }))
      await toast(p, 'Message moved to Berths')
      clicks.at(3, 'file')
      await until('it is filed', async () => (await box.list('Berths')).length === 1, 20)
      await p.getByRole('combobox', { name: 'Folder' }).selectOption({ label: 'Sent' })
      await row(p, 'Re: Letter 1').getByText('To: Writer 1').waitFor()
      await row(p, 'Re: Letter 1').getByRole('link').click()
      await reading(p).locator('.inbox-text').getByText('Thank you.').waitFor()
      await reading(p).getByRole('button', { name: 'More' }).click()
      await p.getByRole('button', { name: 'Show headers' }).click()
      await p.getByRole('dialog').getByText('Message-ID', { exact: false }).first().waitFor()
    })

    walk('a phone is connected and the password changed', async (t) => {
      const box = await person()
      const p = await page(t, { as: box, phone: small }), clicks = counting(p, small)
      await p.open('/')
      await p.getByRole('heading', { name: 'No mail yet' }).waitFor()
      await clicks.go('My mailbox')
      await p.getByRole('img', { name: /QR code to set up/ }).waitFor()
      clicks.at(3, 'connect a phone')
      await sound(p, 'my mailbox')
      await shot(p, name('own-me'))
      await p.getByRole('button', { name: 'New app password' }).click()
      await p.getByLabel('Name', { exact: true }).fill('My phone')
      await p.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
      await p.getByRole('dialog').locator('pre').first().waitFor()
      await sound(p, 'an app password')
      await p.getByRole('dialog').getByRole('button', { name: 'Done' }).click()
      await p.getByText('never used').waitFor()

      await p.open('/inbox')
      await p.getByRole('heading', { name: 'No mail yet' }).waitFor()
      await clicks.go('My mailbox')
      await p.getByLabel('Current password').fill(password)
      await p.getByLabel('New password').fill('another sentence of mine')
      await clicks.click(p.getByRole('button', { name: 'Change password' }))
      await toast(p, 'Password changed')
      clicks.at(3, 'change the password')

      await p.getByLabel('Your name').fill('Anna R.')
      await p.getByLabel('Signature').fill('Anna, berth 14')
      await p.getByRole('button', { name: 'Save', exact: true }).click()
      await until('name and signature are saved', async () => (await box.get()).signature === 'Anna, berth 14')
      await p.getByLabel('Forward to').fill('anna@elsewhere.test')
      await p.getByRole('button', { name: 'Save forwarding' }).click()
      await until('the forward is saved', async () => (await box.get()).forward_to === 'anna@elsewhere.test')
      const card = p.locator('.card').filter({ hasText: 'Recovery address' })
      await card.getByLabel('Email').fill('anna@home.test')
      await card.getByRole('button', { name: 'Save recovery address' }).click()
      await card.getByText('Not confirmed').waitFor()
      await p.open('/compose')
      await p.waitForFunction(() => document.querySelector('textarea')?.value.includes('Anna, berth 14'))
    })

    walk('what was sent is taken back, and a draft goes on elsewhere', async (t) => {
      const box = await person(1)
      const p = await page(t, { as: box, phone: small })
      await p.open('/inbox')
      await p.getByRole('button', { name: 'Compose' }).click()
      const dock = p.getByRole('dialog', { name: 'New message' })
      await dock.getByLabel('To', { exact: true }).fill('ada@elsewhere.test,')
      await dock.getByLabel('Subject').fill('Berth 14')
      await dock.getByLabel('Message').fill('It is free.')
      await dock.getByText('Saved in Drafts').waitFor()
      await dock.getByRole('button', { name: 'Send' }).click()
      await p.getByRole('button', { name: 'Undo' }).click()
      await dock.getByRole('button', { name: 'Remove ada@elsewhere.test' }).waitFor()
      assert.equal(await dock.getByLabel('Message').inputValue(), 'It is free.')
      await dock.getByLabel('Message').fill('It is free, from Monday.')
      await until('it is a draft again', async () => (await box.list('drafts'))[0]?.body_preview.includes('from Monday'), 40)
      assert.equal((await box.list('sent')).length, 0)
      await dock.getByRole('button', { name: 'Close and keep draft' }).click()

      const q = await page(t, { as: box, phone: small }) // another browser of hers
      await q.open('/inbox?folder=drafts')
      await row(q, 'Berth 14').getByRole('link').click()
      await reading(q).getByRole('button', { name: 'Edit draft' }).click()
      const draft = q.getByRole('dialog', { name: 'Draft' })
      assert.equal(await draft.getByLabel('Message').inputValue(), 'It is free, from Monday.')
      await sound(q, 'a draft that goes on')
      await shot(q, name('own-draft'))
      await draft.getByRole('button', { name: 'Send' }).click()
      await until('it is sent', async () => (await box.list('sent')).length === 1)
      await until('the draft is gone', async () => (await box.list('drafts')).length === 0)
      assert.equal((await box.list('sent'))[0].subject, 'Berth 14')
    })

    walk('folders are made, and what is junk or trash comes back', async (t) => {
      const box = await person(3)
      const p = await page(t, { as: box, phone: small })
      await p.clock.install()
      await p.open('/inbox')
      await row(p, 'Letter 1').waitFor()
      await p.getByRole('button', { name: 'Folders' }).click()
      await p.getByLabel('New folder').fill('Berths/North')
      await p.getByRole('button', { name: 'Add folder' }).click()
      await p.getByRole('button', { name: 'Rename Berths/North' }).waitFor()
      await sound(p, 'the folders')
      await shot(p, name('own-folders'))
      await p.getByRole('dialog').getByRole('button', { name: 'Close' }).click()

      await row(p, 'Letter 1').getByRole('link').click()
      await reading(p).getByRole('button', { name: 'Move to folder' }).click()
      await p.getByRole('button', { name: 'Junk', exact: true }).click()
      await p.clock.fastForward(7000)
      await until('it is junk', async () => (await box.list('junk')).length === 1)
      await p.open('/inbox?folder=junk')
      await row(p, 'Letter 1').getByRole('link').click()
      await reading(p).getByRole('button', { name: 'Not junk' }).click()
      await p.clock.fastForward(7000)
      await until('it is not', async () => (await box.list()).length === 3)

      await p.open('/inbox')
      await row(p, 'Letter 2').getByRole('link').click()
      await reading(p).getByRole('button', { name: 'Delete' }).click()
      await p.getByRole('button', { name: 'Undo' }).click()
      await row(p, 'Letter 2').waitFor({ state: 'attached' })
      await p.open('/inbox')
      await row(p, 'Letter 2').getByRole('link').click()
      await reading(p).getByRole('button', { name: 'Delete' }).click()
      await p.clock.fastForward(7000)
      await until('it is in Trash', async () => (await box.list('trash')).length === 1)
      await p.open('/inbox?folder=trash')
      await row(p, 'Letter 2').getByRole('link').click()
      await sound(p, 'a message in Trash')
      await reading(p).getByRole('button', { name: 'Delete for good' }).click()
      await p.clock.fastForward(7000)
      await until('it is gone for good', async () => (await box.list('trash')).length === 0)
      await p.open('/inbox?folder=all')
      await row(p, 'Letter 3').getByText('Inbox').waitFor()
    })

    walk('an invitation is answered, and a list is left', async (t) => {
      const box = await person()
      const event = ['BEGIN:VCALENDAR', 'METHOD:REQUEST', 'BEGIN:VEVENT', 'UID:' + unique('event'), 'SUMMARY:Pier walk', 'DTSTART:20301127T130000Z', 'DURATION:PT1H', 'ORGANIZER:mailto:ines@elsewhere.test', `ATTENDEE:mailto:${box.email}`, 'END:VEVENT', 'END:VCALENDAR'].join('\n')
      await deliver(box.email, message({ to: box.email, subject: 'Pier walk' }).replace('Content-Type: text/plain; charset=utf-8\n\nHello.', `Content-Type: text/calendar; charset=utf-8; method=REQUEST\n\n${event}`))
      await deliver(box.email, message({ to: box.email, subject: 'Weekly news', headers: 'List-Unsubscribe: <https://127.0.0.1:1/off>\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\n' }))
      const p = await page(t, { as: box, phone: small, expect: [/status of 409/] })
      await p.open('/inbox')
      await row(p, 'Pier walk').getByRole('link').click()
      const invitation = p.getByRole('region', { name: 'Invitation' })
      await invitation.getByText('Pier walk').waitFor()
      await sound(p, 'an invitation')
      await shot(p, name('own-invitation'))
      await invitation.getByRole('button', { name: 'Maybe' }).click()
      await invitation.getByText('You answered maybe.').waitFor()
      await until('the answer is sent', async () => (await box.list('sent'))[0]?.subject === 'Tentative: Pier walk')
      if (small) await reading(p).getByRole('button', { name: 'Back to the list' }).click()
      await row(p, 'Weekly news').getByRole('link').click()
      await reading(p).getByRole('heading', { name: 'Weekly news' }).waitFor()
      await reading(p).getByRole('button', { name: 'More' }).click()
      await p.getByRole('button', { name: 'Unsubscribe' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Unsubscribe' }).click()
      await p.getByRole('alert').getByText('no valid DKIM signature').waitFor() // anybody may have written it
      await sound(p, 'a list that cannot be left')
    })

    walk('a conversation is one row, and is filed as a whole', async (t) => {
      const box = await person()
      for (const [id, answers] of [['one', ''], ['two', 'one'], ['three', 'two']]) {
        const headers = answers ? `In-Reply-To: <${answers}-${box.username}@elsewhere.test>\nReferences: <${answers}-${box.username}@elsewhere.test>\n` : ''
        await deliver(box.email, message({ to: box.email, subject: 'Re: Moorings', from: `Writer ${id} <${id}@elsewhere.test>`, text: `This is ${id}.`, headers }).replace(/Message-ID: .*/, `Message-ID: <${id}-${box.username}@elsewhere.test>`))
      }
      const p = await page(t, { as: box, phone: small })
      await p.clock.install()
      await p.open('/inbox')
      await row(p, 'Moorings').getByText('3 messages').waitFor({ state: 'attached' })
      assert.equal(await row(p, 'Moorings').count(), 1)
      await sound(p, 'a conversation in the list')
      await row(p, 'Moorings').getByRole('checkbox').click()
      const bar = p.getByRole('toolbar', { name: 'Selected messages' })
      await bar.getByRole('button', { name: 'Mark as read' }).click()
      await until('all are read', async () => (await box.list()).every((m) => m.is_read))
      await row(p, 'Moorings').getByRole('checkbox').click()
      await bar.getByRole('button', { name: 'Move to folder' }).click()
      await p.getByRole('button', { name: 'Archive', exact: true }).click()
      await p.clock.fastForward(7000)
      await until('all are filed', async () => (await box.list('archive')).length === 3)
    })

    walk('the pages of the account are not there for the person of a mailbox', async (t) => {
      const box = await person()
      const [text] = (await readFile(new URL('../src/pages/index.ts', import.meta.url), 'utf8')).split('export const ownPlaces')
      const places = [...text.matchAll(/team\('([^']+)'/g)].map(([, path]) => path.replace(/:\w+/g, 'x')).filter((path) => path !== '/')
      assert.ok(places.length > 20)
      const p = await page(t, { as: box, phone: small })
      const asked = []
      p.on('request', (r) => { if (/\/v1\//.test(r.url())) asked.push(new URL(r.url()).pathname) })
      for (const at of places) {
        await p.open(at)
        await p.getByRole('heading', { level: 1, name: 'Not found', exact: true }).waitFor()
      }
      assert.deepEqual(asked, [], 'nothing is asked for there')
    })

    walk('the owner gives a mailbox addresses, passwords and a link', async (t) => {
      const box = await person(), alias = unique('alias') + '@' + d.name, group = unique('team') + '@' + d.name
      const p = await page(t, { phone: small })
      await p.open('/mailboxes/' + box.user_id)
      await p.getByLabel('Addresses').fill(alias)
      await p.getByRole('button', { name: 'Save aliases' }).click()
      await until('the alias is there', async () => (await box.get()).aliases.join() === alias)
      await p.getByRole('button', { name: 'New app password' }).click()
      await p.getByLabel('Name', { exact: true }).fill('Scanner')
      await p.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Done' }).click()
      await p.getByRole('button', { name: 'Revoke Scanner' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
      await p.getByText('No app passwords yet.').waitFor()
      await p.getByRole('button', { name: 'More actions' }).click()
      await p.getByRole('button', { name: 'Get a password link' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Create link' }).click()
      const link = (await p.getByRole('dialog').locator('pre').textContent()).trim()
      assert.match(link, /\/reset\?token=/)
      await sound(p, 'a password link')
      await p.getByRole('dialog').getByRole('button', { name: 'Done' }).click()

      await p.open(`/domains/${d.id}/mail`)
      await p.getByRole('button', { name: 'New SMTP credential' }).click()
      await p.getByLabel('Name', { exact: true }).fill('Shop')
      await p.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
      await p.getByRole('dialog').getByText('cred_').waitFor()
      await p.getByRole('dialog').getByRole('button', { name: 'Done' }).click()
      await p.getByRole('button', { name: 'Revoke Shop' }).first().click()
      await p.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
      await toast(p, 'Revoked.')

      await p.open('/mailboxes/groups')
      await p.getByRole('button', { name: 'Create group' }).click()
      await p.getByLabel('Address', { exact: true }).fill(group)
      await p.getByLabel('Members', { exact: true }).fill(`${box.email}\nfar@elsewhere.test`)
      await p.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
      await p.getByText(group).waitFor()
      await p.getByRole('button', { name: `Actions for ${group}` }).click()
      await p.getByRole('button', { name: 'Edit' }).click()
      await p.getByLabel('Members can send as the group').check()
      await sound(p, 'a group')
      await p.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
      await until('its members can send as it', async () => (await box.get()).send_as.includes(group))
      await p.getByRole('button', { name: `Actions for ${group}` }).click()
      await p.getByRole('button', { name: 'Delete' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
      await p.getByRole('main').getByText(group).waitFor({ state: 'detached' })
    })

    walk('a member is limited to a mailbox, and sees it alone', async (t) => {
      const box = await person(1), email = unique('limited') + '@people.test'
      const p = await page(t, { phone: small })
      await p.open('/team')
      await p.getByRole('button', { name: 'Invite' }).click()
      const dialog = p.getByRole('dialog')
      await dialog.getByLabel('Email').fill(email)
      await dialog.getByLabel('Mailboxes', { exact: true }).selectOption('some')
      await dialog.getByRole('button', { name: 'Add a mailbox' }).click()
      await p.getByRole('combobox', { name: 'Search mailboxes' }).fill(box.username)
      await p.keyboard.press('Enter')
      await dialog.getByRole('button', { name: `Remove ${box.email}` }).waitFor()
      await sound(p, 'an invitation with a limit')
      await dialog.getByRole('button', { name: 'Invite' }).click()
      await dialog.getByText(`They can read and send the mail of ${box.email}, and no other mail.`).waitFor()
      const link = new URL((await dialog.locator('pre').textContent()).trim())

      const q = await page(t, { as: null, phone: small })
      await q.open('/welcome' + link.search)
      await q.getByLabel('Password').fill('a sentence that nobody guesses')
      await q.getByRole('button', { name: 'Save and sign in' }).click()
      await q.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
      await sound(q, 'the overview of a limited member')
      assert.equal(await q.getByRole('link', { name: 'Webhooks' }).count(), 0)
      await q.open('/inbox')
      await row(q, 'Letter 1').waitFor()
      assert.equal(await q.locator('.inbox-row').count(), 1)
      await q.open('/mailboxes')
      await q.getByRole('link', { name: box.email }).waitFor()
      await q.open('/webhooks')
      await q.getByRole('heading', { level: 1, name: 'Your role can’t' }).waitFor()
    })
  }
})

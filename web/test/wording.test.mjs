// The words for errors, without a browser.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { build } from 'esbuild'

const contents = "export * from './api/wording'; export { use } from './words'; export { de } from './words/de'"
const { outputFiles: [file] } = await build({ stdin: { contents, resolveDir: new URL('../src', import.meta.url).pathname, loader: 'ts' }, bundle: true, write: false, format: 'esm' })
const { de, faultIn, mendOf, plain, use, wordsOf, wrongWith } = await import('data:text/javascript,' + encodeURIComponent(file.text))

test('texts that speak of the API are not shown', () => {
  for (const text of ['Switch it on with POST /v1/account/universal-inbox.', 'Leave edge_api_token out.', 'Give `users`.', 'The body is not one JSON object.', 'Its operator adds one to mailstead.toml.']) assert.equal(plain(text), undefined, text)
  for (const text of ['must have 8 to 128 characters', 'Mail for a_b.example.test goes to others: 5 mx_1.example.', 'ann_lee@example.test exists already.', 'There is no TXT record at _dmarc.']) assert.equal(plain(text), text)
})

test('a code has its own words, and the place where it is mended', () => {
  const message = 'Name the mailbox that the message is in: ?mailbox=name@domain.'
  assert.equal(wordsOf({ code: 'mailbox_required', message }), 'Choose the mailbox first.')
  const busy = { code: 'domain_busy', message: 'x.test is being set up. Wait for the job job_1.', details: [{ field: 'job_1', code: 'domain_busy', message: 'works on the domain' }] }
  assert.deepEqual(mendOf(busy), { href: '/jobs/job_1', link: 'Open the job' })
  assert.equal(mendOf({ ...busy, details: [] }), undefined)
  assert.equal(wordsOf({ code: 'rate_limited', message, retryAfter: 1800 }), 'Too many requests or attempts. Try again in 30 minutes.')
  assert.equal(wordsOf({ code: 'internal_error', message, requestId: 'req_1' }), 'Something went wrong on the server. Try again. If it keeps happening, contact the server’s operator. Request ID: req_1')
  assert.equal(wordsOf({ code: 'upstream_error', message: 'imap.example.test refused the password' }), 'A request to another service failed. imap.example.test refused the password.')
  assert.equal(wordsOf({ code: 'upstream_error', message: 'connect it with manual_dns' }), 'A request to another service failed.')
  assert.equal(wordsOf({ code: 'of_tomorrow', message: 'Set x_y first.' }), 'Something went wrong. Try again.')
})

test('an item of a list says in words why it was refused', () => {
  const said = (text) => wordsOf(faultIn(text))
  assert.equal(said('invalid_domain: "nodot" has no dot: give the whole name, such as nodot.com'), 'This domain name can’t be used. "nodot" has no dot: give the whole name, such as nodot.com.')
  assert.equal(said('invalid_domain: "my_shop" has no dot: give the whole name, such as my_shop.com'), 'This domain name can’t be used. "my_shop" has no dot: give the whole name, such as my_shop.com.')
  assert.equal(said('zone_not_found: Cloudflare has no zone.'), 'The DNS provider has no zone for this domain that the credential or API token may change. Add the domain there, or use one with permissions for its zone.')
  assert.equal(said('x.test is being deleted. Connect it again when the job has ended.'), 'x.test is being deleted. Connect it again when the job has ended.')
  assert.equal(said('mail.test cannot be connected to this account.'), 'mail.test cannot be connected to this account.')
})

test('what is wrong with a field is said in words', () => {
  const details = [{ field: 'imap.password', code: 'invalid', message: 'must have 1 to 1024 characters' }, { field: 'forward_address', code: 'required', message: 'is required, unless catch_all is given' }]
  assert.equal(wordsOf({ code: 'validation_error', message: '', details }), 'Password must have 1 to 1024 characters. Forward address is required.')
  assert.equal(wrongWith(details[0]), 'Must have 1 to 1024 characters')
  assert.equal(wrongWith(details[1]), 'Is required')
  assert.equal(wordsOf({ code: 'validation_error', message: 'users.3.username: is required' }), 'Username is required.')
  assert.equal(wordsOf({ code: '', message: 'The server did not answer.' }), 'The server did not answer.')
})

test('in another language errors are said in it, and nothing that the server says in English', () => {
  use('de', de)
  try {
    assert.equal(wordsOf({ code: 'rate_limited', message: 'Slow down.', retryAfter: 1800 }), 'Zu viele Anfragen oder Versuche. Versuchen Sie es in 30 Minuten noch einmal.')
    assert.equal(wordsOf({ code: 'upstream_error', message: 'imap.example.test refused the password' }), de['error.upstream_error'])
    assert.equal(wordsOf({ code: 'cannot_unsubscribe', message: 'This message cannot be unsubscribed from.' }), de['error.cannot_unsubscribe'])
    assert.equal(wordsOf({ code: 'of_tomorrow', message: 'Something new.' }), de['error.unknown'])
    assert.equal(wordsOf({ code: 'internal_error', message: '', requestId: 'req_1' }), de['error.internal_error'] + ' Anfrage-ID: req_1')
    const details = [{ field: 'new_password', code: 'out_of_range', message: 'must have 8 to 128 characters' }, { field: 'conditions.0', code: 'invalid', message: 'needs a value' }]
    assert.equal(wrongWith(details[0]), 'Muss 8 bis 128 Zeichen haben')
    assert.equal(wrongWith(details[1]), 'Ist ungültig')
    assert.equal(wordsOf({ code: 'validation_error', message: '', details: details.slice(0, 1) }), 'Neues Passwort: muss 8 bis 128 Zeichen haben.')
    assert.equal(wordsOf({ code: 'validation_error', message: '', details: details.slice(1) }), de['error.validation_error'])
    assert.equal(plain('There is no TXT record at _dmarc.'), undefined)
  } finally {
    use('en')
  }
})

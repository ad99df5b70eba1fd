// Domains: the list, the ways to add one, and all that a domain's page does.
import assert from 'node:assert/strict'
import { gzipSync } from 'node:zlib'
import { describe } from 'node:test'
import { change as changeAnswer, delegatedTo } from './harbour.mjs'
import { account, api, base, deliver, mailbox, main, message, on, page, shot, sound, unique, until } from './rig.mjs'

/** A page, signed in, to which a registry answers that is none, so that nothing is asked of the world. */
async function open(t, path, options, known = {}) {
  const p = await page(t, options)
  await p.route('**/v1/domains/check-provider', (route) => route.fulfill({
    json: { domain: route.request().postDataJSON().domain, registrar: 'Walk Registrar', nameservers: ['ns1.walk.example', 'ns2.walk.example'], is_edge: false, dns_provider_guess: null, ...known },
  }))
  await p.open(path)
  return p
}

/** A name of this file's own. */
const fresh = (word) => unique('domains-' + word) + '.test'

async function connect(name, more = {}) {
  const { domains } = await api('POST', '/v1/domains/connect', { domains: [name], ...more })
  return { id: domains[0].domain_id, name }
}

/** A domain that is ready for mail. */
async function ready(word) {
  const d = await connect(fresh(word))
  await api('POST', '/v1/domains/check-ns', { domains: [d.name] })
  await until(d.name + ' is complete', async () => (await api('GET', '/v1/domains/' + d.id)).status === 'complete')
  return d
}

const tab = (p, name) => p.getByRole('tablist', { name: 'Domain', exact: true }).getByRole('tab', { name, exact: true })

/** Saves what was changed on any tab. */
async function save(p) {
  await p.getByRole('form', { name: 'Unsaved changes' }).getByRole('button', { name: 'Save' }).click()
  await p.getByRole('form', { name: 'Unsaved changes' }).waitFor({ state: 'detached' })
}

/** Copies by a button. The clipboard is that of all pages: another one may come between. */
function copied(p, button, fits) {
  return until('it is copied', async () => {
    await button.click()
    return fits(await p.evaluate(() => navigator.clipboard.readText()))
  })
}

/** A message that brings a report, as large providers send them. */
function reportMail(to, filename, type, content) {
  const [head] = message({ to, subject: 'Report', from: 'Reporter <noreply@reporter.example>' }).split('Content-Type:')
  return `${head}Content-Type: ${type}; name="${filename}"\nContent-Disposition: attachment; filename="${filename}"\nContent-Transfer-Encoding: base64\n\n${gzipSync(content).toString('base64').replace(/.{76}/g, '$&\n')}\n`
}

function dmarcReport(domain, day) {
  const row = (ip, count, result) => `<record><row><source_ip>${ip}</source_ip><count>${count}</count><policy_evaluated><disposition>${result === 'pass' ? 'none' : 'quarantine'}</disposition><dkim>${result}</dkim><spf>${result}</spf></policy_evaluated></row><identifiers><header_from>${domain}</header_from></identifiers><auth_results><spf><domain>${domain}</domain><result>${result}</result></spf></auth_results></record>`
  return `<?xml version="1.0"?><feedback><report_metadata><org_name>reporter.example</org_name><email>noreply@reporter.example</email><report_id>${unique('r')}</report_id><date_range><begin>${day}</begin><end>${day + 86_399}</end></date_range></report_metadata><policy_published><domain>${domain}</domain><p>reject</p><sp>reject</sp><pct>100</pct></policy_published>${row('192.0.2.1', 90, 'pass')}${row('203.0.113.9', 10, 'fail')}</feedback>`
}

function tlsReport(domain, day) {
  const at = new Date(day * 1000).toISOString().slice(0, 10)
  return JSON.stringify({
    'organization-name': 'reporter.example', 'date-range': { 'start-datetime': at + 'T00:00:00Z', 'end-datetime': at + 'T23:59:59Z' }, 'contact-info': 'tls@reporter.example', 'report-id': unique('t'),
    policies: [{ policy: { 'policy-type': 'sts', 'policy-string': ['version: STSv1'], 'policy-domain': domain, 'mx-host': ['mail.mailstead.test'] }, summary: { 'total-successful-session-count': 40, 'total-failure-session-count': 2 }, 'failure-details': [{ 'result-type': 'certificate-expired', 'failed-session-count': 2 }] }],
  })
}

describe('domains', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small)
    const name = (what) => 'domains-' + what + (small ? '-phone' : '')

    walk('lists domains and finds them', async (t) => {
      const tag = unique('tag')
      const a = await connect(fresh('list'), { tags: [tag] }), b = await connect(fresh('list'), { tags: [tag], external: true })
      const p = await open(t, '/', { phone: small })
      await p.route('**/v1/domains?*', async (route) => { // the sandbox sets it up after a minute
        const url = new URL(route.request().url()), problems = url.searchParams.has('problems')
        url.searchParams.delete('problems')
        const answer = await (await route.fetch({ url: url.href })).json()
        for (const d of answer.data) if (d.domain === a.name) Object.assign(d, { status: 'pending_ns' })
        if (problems) answer.data = answer.data.filter((d) => d.domain === a.name)
        await route.fulfill({ json: answer })
      })
      await p.open('/domains?sort=-created_at')
      const list = p.getByRole('table', { name: 'Domains' }), rows = list.getByRole('row').filter({ has: p.getByRole('cell') })
      await list.getByText(a.name).waitFor()
      await shot(p, name('list'))
      await sound(p)
      await p.getByLabel('Tag').fill(tag)
      await until('two of the tag', async () => (await rows.count()) === 2)
      await p.getByLabel('DNS provider').selectOption('external')
      await until('one of it is elsewhere', async () => (await rows.count()) === 1)
      await list.getByText(b.name).waitFor()
      await p.getByLabel('DNS provider').selectOption('')
      await p.getByLabel('Name').fill(a.name)
      await list.getByText('Action needed').waitFor()
      await p.getByLabel('Name').fill('nothing-is-called-so')
      await main(p).getByRole('button', { name: 'Show all domains' }).click()
      await p.getByRole('button', { name: /need/ }).click()
      await list.getByText(a.name).waitFor()
      await list.getByRole('link', { name: a.name }).click()
      await main(p).getByRole('heading', { level: 1, name: a.name }).waitFor()
    })

    walk('says why a name cannot be added, alone and among others', async (t) => {
      const p = await page(t, { phone: small, expect: [/status of 400/] })
      await p.open('/domains/add')
      await p.getByLabel('Domain', { exact: true }).fill('co.uk')
      await p.keyboard.press('Enter')
      await main(p).getByText('"co.uk" is a public suffix').waitFor()
      await p.getByRole('radio', { name: /^Mailstead/ }).check()
      await p.getByRole('button', { name: 'Add domain' }).click()
      await p.getByText('1 domain could not be added.').waitFor()
      await main(p).getByText('"co.uk" is a public suffix').waitFor()
      await sound(p)
      await p.getByRole('button', { name: 'Try again' }).click()
      await p.route('**/v1/domains/check-provider', (route) => route.fulfill({ json: { domain: 'x', registrar: 'Walk Registrar', nameservers: ['ns1.walk.example'], is_edge: false } }))
      await p.getByLabel('Domain', { exact: true }).fill(`${fresh('good')} my_shop`)
      await p.keyboard.press('Enter')
      await p.getByRole('radio', { name: /^Mailstead/ }).check()
      await p.getByRole('button', { name: 'Add 2 domains' }).click()
      await main(p).getByText('"my_shop" is not a domain name').waitFor()
      await p.getByText('1 domain added').waitFor()
    })

    walk('declares who else sends its mail, and takes that back', async (t) => {
      const d = await ready('elsewhere'), p = await open(t, `/domains/${d.id}/mail`, { phone: small, expect: [/status of 400/] })
      const card = p.locator('.card', { has: p.getByRole('heading', { name: 'Other senders' }) })
      const places = async () => (await api('GET', '/v1/domains/' + d.id)).sends_elsewhere
      const dialog = p.getByRole('dialog')
      const add = async (from, selector) => {
        if (await dialog.count() === 0) await card.getByRole('button', { name: 'Add sender' }).click()
        await dialog.getByLabel('Host or network').fill(from)
        await dialog.getByLabel('DKIM selector').fill(selector)
        await dialog.getByRole('button', { name: 'Add', exact: true }).click()
      }
      await add('10.0.0.0/8', 's1')
      await dialog.getByLabel('Host or network').and(p.locator('[aria-invalid=true]')).waitFor()
      await add('192.0.2.7', 's1')
      await card.getByText('192.0.2.7/32').waitFor()
      await add('mail.service.example', 'crm')
      await card.getByText('mail.service.example').waitFor()
      await sound(p, 'other senders')
      assert.deepEqual(await places(), [{ host: null, network: '192.0.2.7/32', selector: 's1' }, { host: 'mail.service.example', network: null, selector: 'crm' }])
      await card.getByRole('button', { name: 'Remove 192.0.2.7/32, selector s1' }).click()
      await until('it is gone', async () => (await places()).length === 1)
    })

    walk('adds a domain, sets its nameservers and is led to the first mailbox', async (t) => {
      const p = await open(t, '/domains/add', { phone: small }), domain = fresh('add')
      await p.getByLabel('Domain', { exact: true }).fill(`https://${domain}/about`)
      await p.keyboard.press('Enter')
      await p.getByRole('heading', { name: domain }).waitFor()
      await p.getByText('Walk Registrar').waitFor()
      await shot(p, name('add'))
      await sound(p)
      await p.getByRole('radio', { name: /^Mailstead/ }).check()
      await p.getByLabel('Tags').fill('walked')
      await p.getByRole('button', { name: 'Add domain' }).click()
      const next = p.getByRole('region', { name: 'Next step' })
      await next.getByRole('heading', { name: /first mailbox/ }).waitFor() // the page's own look finds the nameservers, and setup continues without a call
      await main(p).getByText('Healthy').or(main(p).getByText('Ready', { exact: true })).first().waitFor()
      await shot(p, name('ready'))
      await sound(p)
      await next.getByRole('button', { name: 'Create mailbox' }).click()
      await p.getByRole('dialog').getByLabel('Username').fill('hello')
      await p.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
      await next.getByRole('heading', { name: 'Everything is OK' }).waitFor()
      await p.getByRole('dialog', { name: 'hello@' + domain }).getByText('Copy the password. You can also export passwords later.').waitFor()
    })

    walk('shows when a waiting domain is checked again', async (t) => {
      const d = await connect(fresh('waiting'))
      const p = await open(t, '/', { phone: small })
      let change = { status: 'pending_ns', ns_status: 'pending', next_look_at: new Date(Date.now() + 9e5).toISOString() }, servers = ['ns1.walk.example', 'ns2.walk.example']
      await p.route('**/v1/domains/' + d.id, async (route) => {
        if (route.request().method() !== 'GET') return route.continue()
        await route.fulfill({ json: { ...await (await route.fetch()).json(), ...change } })
      })
      await changeAnswer(p, '**/dns-status*', delegatedTo(() => servers))
      await p.open('/domains/' + d.id)
      const next = p.getByRole('region', { name: 'Next step' })
      await next.getByRole('heading', { name: 'Set these nameservers at your registrar' }).waitFor()
      await next.getByText(/^Mailstead checks again in 1\d min/).waitFor()
      await shot(p, name('waiting'))
      await sound(p)
      servers = (await api('GET', '/v1/account')).nameservers
      await p.reload()
      await next.getByRole('heading', { name: 'Nameservers are set' }).waitFor() // the look that the page asked for has found them, and setup goes on in a moment
      change = { ...change, ns_status: 'verified', status_detail: 'Another account claims it.' }
      await p.reload()
      await next.getByRole('heading', { name: 'Nameservers are set' }).waitFor()
      await next.getByText('Another account claims it.').waitFor()
      assert.equal(await next.getByRole('button', { name: 'Continue' }).count(), 0)
      change = { status: 'error', error: { code: 'ns_timeout', message: 'It was not delegated to Mailstead within 14 days.' } }
      await p.reload()
      await next.getByText('The nameservers were not set within 14 days.').waitFor()
      await sound(p)
      await next.getByRole('button', { name: 'Set up again' }).click()
      await until('it is set up', async () => (await api('GET', '/v1/domains/' + d.id)).status === 'complete')
    })

    walk('adds several at once, and says which cannot be', async (t) => {
      const p = await open(t, '/domains/add', { phone: small }), names = [fresh('many'), fresh('many')]
      await p.getByLabel('Domain', { exact: true }).fill(`${names.join('\n')}\nno_domain`)
      await p.getByRole('button', { name: 'Next', exact: true }).click()
      await p.getByRole('radio', { name: /^Mailstead/ }).check()
      await p.getByRole('button', { name: 'Add 3 domains' }).click()
      await p.getByText('1 domain could not be added.').waitFor()
      await p.getByRole('heading', { name: '2 domains added' }).waitFor()
      await p.getByText('ns1.mailstead.test').waitFor()
      await shot(p, name('several'))
      await sound(p)
      await p.getByRole('button', { name: /check now/ }).click()
      await until('both are complete', async () => (await Promise.all(names.map((n) => api('GET', '/v1/domains?q=' + n)))).every((found) => found.data[0].status === 'complete'))
      await until('the page shows it', async () => (await p.locator('.badge.ok').count()) === 2)
    })

    walk('adds one by hand with mailboxes, whose records are to be entered', async (t) => {
      const domain = fresh('hand'), p = await open(t, '/domains/add?name=' + domain, { phone: small })
      await p.getByRole('radio', { name: /^My current DNS provider/ }).check()
      await p.getByText('Mailboxes, redirect and forwarding').click()
      await p.getByLabel('Mailboxes', { exact: true }).fill('hello\nanna Anna Rossi')
      await p.getByRole('button', { name: 'Add domain' }).click()
      const file = p.getByRole('region', { name: 'Zone file' })
      await p.getByText('All records are there.').waitFor()
      await p.route('**/dns-status*', async (route) => {
        const answer = await (await route.fetch()).json()
        for (const r of answer.records) if (r.purpose === 'MX') Object.assign(r, { verified: false, actual: null, error: 'missing' })
        await route.fulfill({ json: answer })
      })
      await p.reload()
      await file.getByText(`${domain}. 3600 IN MX 10`).waitFor()
      assert.equal(await file.getByText('v=DMARC1').count(), 0, 'a record that is there is not entered again')
      await shot(p, name('by-hand'))
      await sound(p)
      await tab(p, 'Mailboxes').click()
      await p.getByText('anna@' + domain).waitFor()
      await tab(p, 'Zone').click()
      await p.getByText('Managed at your DNS provider').waitFor()
    })

    walk('proposes Cloudflare for what is there, and buying for what nobody has', async (t) => {
      const p = await open(t, '/domains/add?name=' + fresh('edge'), { phone: small }, { nameservers: ['ada.ns.cloudflare.com', 'bob.ns.cloudflare.com'], dns_provider_guess: 'cloudflare' })
      await p.locator('.domains-option', { hasText: 'Recommended' }).getByRole('radio', { name: /^DNS provider with an API/, checked: true }).waitFor()
      assert.ok(await p.getByRole('button', { name: 'Add domain' }).isDisabled(), 'it needs a credential')
      await p.getByText('(Cloudflare)').waitFor()
      await p.getByRole('button', { name: 'Add credential' }).click()
      await p.getByRole('dialog').getByText('The API token needs Zone: Read and DNS: Edit').waitFor()
      await shot(p, name('cloudflare'))
      await sound(p)
      const q = await open(t, '/domains/add?name=free-name.test', { phone: small }, { registrar: null, nameservers: [] })
      await q.getByText('free-name.test is not registered yet.').waitFor()
    })

    walk('names the record that is wrong first', async (t) => {
      const a = await account(unique('wrong') + '@people.test')
      const { domains: [{ domain_id: id }] } = await a.api('POST', '/v1/domains/connect', { domains: [fresh('wrong')], manual_dns: true })
      await until('its records are worked out', async () => (await a.api('GET', '/v1/domains/' + id)).status === 'pending_dns_records')
      const p = await page(t, { as: a, phone: small })
      await p.route('**/dns-status*', async (route) => {
        const answer = await (await route.fetch()).json()
        for (const r of answer.records) if (r.purpose === 'SPF') Object.assign(r, { verified: false, actual: 'v=spf1 -all', error: 'mismatch' })
        await route.fulfill({ json: answer })
      })
      await p.route('**/v1/domains/' + id, async (route) => { // the sandbox finds all records, and sets it up
        await route.fulfill({ json: { ...await (await route.fetch()).json(), status: 'pending_dns_records', next_look_at: new Date(Date.now() + 9e5).toISOString() } })
      })
      await p.open('/domains/' + id)
      const next = p.getByRole('region', { name: 'Next step' })
      await next.getByRole('heading', { name: 'Edit this TXT record at your DNS provider' }).waitFor()
      await copied(p, next.getByRole('button', { name: 'Copy value' }), (text) => text.startsWith('v=spf1 '))
      await shot(p, name('one-record'))
      await tab(p, 'DNS').click()
      const first = p.locator('details.domains-record').first()
      await first.getByText('Wrong value').waitFor()
      await first.getByText('v=spf1 -all').waitFor()
      await shot(p, name('dns-wrong'))
      await sound(p)
    })

    walk('shows a failing domain with what is wrong, and one whose set-up failed', async (t) => {
      const d = await ready('failing')
      const p = await page(t, { phone: small })
      let change = { dns_health: { status: 'failing', checked_at: new Date().toISOString(), failing_since: new Date(Date.now() - 7.2e6).toISOString(), issues: [{ code: 'mismatch', purpose: 'MX', host: '@', message: 'Mail is going to mx.other.example. Remove that MX record.' }] } }
      await p.route('**/v1/domains/' + d.id, async (route) => {
        if (route.request().method() !== 'GET') return route.continue()
        await route.fulfill({ json: { ...await (await route.fetch()).json(), ...change } })
      })
      await p.route('**/dns-status*', async (route) => {
        const answer = await (await route.fetch()).json()
        for (const r of answer.records) if (r.purpose === 'MX') Object.assign(r, { verified: false, actual: '5 mx.other.example', error: 'mismatch' })
        await route.fulfill({ json: answer })
      })
      await p.open('/domains/' + d.id)
      const next = p.getByRole('region', { name: 'Next step' })
      await next.getByRole('heading', { name: 'Resolvers still have an old MX record' }).waitFor()
      await next.getByText('For them it is 5 mx.other.example').waitFor()
      assert.equal(await next.getByRole('button', { name: /^Copy/ }).count(), 0, 'there is no record to add')
      await shot(p, name('failing'))
      await sound(p)
      change = { status: 'error', error: { code: 'registrar_error', message: 'The registrar did not set the nameservers.' } }
      await p.reload()
      await next.getByText('The registrar did not set the nameservers.').waitFor()
      await shot(p, name('error'))
      await next.getByRole('button', { name: 'Set up again' }).click()
      await until('it is set up again', async () => (await api('GET', '/v1/jobs?type=domain_setup&domain=' + d.name)).data.length === 1)
    })

    walk('buys a domain, confirmed twice', async (t) => {
      const p = await page(t, { phone: small }), bought = unique('domains-buy') + '.com'
      await p.open('/domains/add?way=buy')
      await p.getByLabel('Name or keywords').fill(bought)
      await p.keyboard.press('Enter')
      await shot(p, name('buy'))
      await p.getByRole('button', { name: 'Buy ' + bought }).click()
      const dialog = p.getByRole('dialog')
      await dialog.getByLabel('Registration period').selectOption('2')
      await dialog.getByLabel('Mailboxes to create').fill('hello')
      await sound(p)
      await dialog.getByRole('button', { name: 'Review order' }).click()
      const buy = dialog.getByRole('button', { name: /^Buy for/ })
      assert.ok(await buy.isDisabled(), 'nothing is bought before it was agreed to')
      await dialog.getByRole('checkbox').check()
      await shot(p, name('buy-confirm'))
      await sound(p)
      await buy.click()
      await main(p).getByRole('heading', { level: 1, name: bought }).waitFor()
      await tab(p, 'Settings').click()
      await p.getByText('Bought here').waitFor()
      await until('it is paid for two years', async () => new Date((await api('GET', '/v1/domains?q=' + bought)).data[0].expires_at ?? 0) > Date.now() + 700 * 86_400_000)
    })

    walk('looks at the records anew, and gives the registrar its DS record', async (t) => {
      const d = await ready('signed')
      const p = await page(t, { phone: small })
      await p.open(`/domains/${d.id}/dns`)
      const card = (title) => p.locator('.card', { has: p.getByRole('heading', { name: title }) })
      await card('Nameservers').getByRole('button', { name: 'Check now' }).click()
      await card('Nameservers').getByText('Expected').waitFor()
      await card('DNS records').getByRole('button', { name: 'Check now' }).click()
      await p.getByRole('status').getByText('DNS records checked.').waitFor()
      await card('DNS records').getByText('MX', { exact: true }).first().click()
      await sound(p)
      const { dnssec } = await api('GET', '/v1/domains/' + d.id)
      await copied(p, card('DNSSEC').getByRole('button', { name: 'Copy DS record' }), (text) => text === dnssec.ds[0].value)
    })

    walk('is led from the overview to what a domain needs', async (t) => {
      const a = await account(unique('needs') + '@people.test'), names = [fresh('needs'), fresh('needs')]
      await a.api('POST', '/v1/domains/connect', { domains: names })
      const p = await open(t, '/', { as: a, phone: small })
      const item = main(p).getByRole('link').filter({ hasText: names[1] + ': nameservers not set' })
      await item.getByText('See next step').waitFor()
      await sound(p)
      await item.click()
      await p.getByRole('heading', { name: /^(Set these nameservers at your registrar|Nameservers are set|Setting up|Ready)/ }).waitFor() // the page's own look finds them at once
    })

    walk('sets the DMARC policy and takes it back', async (t) => {
      const d = await ready('dmarc')
      await api('PUT', `/v1/domains/${d.id}/dmarc`, { value: 'v=DMARC1; p=reject; pct=25; sp=none' })
      const p = await page(t, { phone: small })
      await p.open(`/domains/${d.id}/dmarc`)
      await p.getByRole('radio', { name: /^Quarantine/ }).check()
      await p.getByLabel('Send reports to').fill('dmarc@' + d.name)
      assert.equal(await p.getByLabel('Percentage').count(), 0)
      await p.getByText('pct=25 has no effect').scrollIntoViewIfNeeded()
      await sound(p)
      await save(p)
      await p.getByText('has no effect').waitFor({ state: 'detached' })
      const { dmarc_override: override } = await api('GET', '/v1/domains/' + d.id)
      assert.equal(override.value, `v=DMARC1; p=quarantine; sp=none; rua=mailto:dmarc@${d.name}`)
      await shot(p, name('dmarc'))
      await p.getByRole('button', { name: 'Reset to default' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Reset to default' }).click()
      await p.getByText('The default policy of every domain.').waitFor()
    })

    walk('routes mail and visitors, tags, notes and deletes', async (t) => {
      const d = await ready('settings')
      await mailbox(d, 'hello')
      const p = await page(t, { phone: small, expect: [/status of 404/] })
      const read = () => api('GET', '/v1/domains/' + d.id)
      await p.open(`/domains/${d.id}/mail`)
      await p.getByLabel('Deliver to').fill('hello@' + d.name)
      await p.getByLabel('Forward to').fill('me@elsewhere.example')
      await p.getByText('so nothing is forwarded').waitFor()
      await p.getByLabel('Redirect to').fill('https://www.example.com/')
      await save(p)
      const { catch_all, forward_address, redirect_url } = await read()
      assert.deepEqual([catch_all, forward_address, redirect_url], ['hello@' + d.name, 'me@elsewhere.example', 'https://www.example.com/'])
      await p.getByLabel('Permanent').uncheck()
      await p.getByLabel('Keep the path').check()
      await save(p)
      await until('it does so otherwise', async () => JSON.stringify((await read()).redirect) === '{"url":"https://www.example.com/","permanent":false,"preserve_path":true}')
      await p.reload()
      assert.deepEqual([await p.getByLabel('Permanent').isChecked(), await p.getByLabel('Keep the path').isChecked()], [false, true], 'the form shows how it redirects')
      await p.getByLabel('Offer one-click unsubscribe').check()
      await save(p)
      await until('it offers to unsubscribe', async () => (await read()).list_unsubscribe)
      await shot(p, name('mail'))
      await sound(p)
      await p.getByRole('button', { name: 'Remove forwarding' }).click()
      await save(p)
      await until('it forwards no more', async () => (await read()).forward_address === null)

      await tab(p, 'Settings').click()
      await p.getByLabel('New tags').fill('walked, twice')
      await p.getByLabel('Notes').fill('Ask Anna first.')
      await save(p)
      await p.getByRole('button', { name: 'Remove tag twice' }).click()
      await save(p)
      assert.deepEqual((await read()).tags, ['walked'])
      await until('the note is kept', async () => (await read()).notes === 'Ask Anna first.')
      await shot(p, name('settings'))
      await sound(p)
      await tab(p, 'Jobs').click()
      await p.getByRole('list', { name: 'Jobs of this domain' }).getByText('Update redirect').first().waitFor()

      await tab(p, 'Settings').click()
      await p.getByRole('button', { name: 'Delete domain' }).click()
      const dialog = p.getByRole('dialog'), sure = dialog.getByRole('button', { name: 'Delete domain' })
      assert.ok(await sure.isDisabled(), 'the name has to be typed first')
      await dialog.getByLabel(/^Type /).fill(d.name)
      await sure.click()
      await main(p).getByRole('heading', { level: 1, name: 'Domains' }).waitFor()
      await until('it is gone', async () => (await api('GET', '/v1/domains?q=' + d.name)).data.length === 0)
    })

    walk('shows reports as charts, with who sent what', async (t) => {
      const d = await ready('reports'), box = await mailbox(d, 'dmarc')
      const day = Math.floor(Date.now() / 86_400_000 - 1) * 86_400
      const p = await page(t, { phone: small })
      await p.open(`/domains/${d.id}/reports`)
      await p.getByText('No reports yet').first().waitFor()
      await deliver(box.email, reportMail(box.email, `reporter.example!${d.name}!${day}!${day + 86_399}.xml.gz`, 'application/gzip', dmarcReport(d.name, day)), 'noreply@reporter.example')
      await deliver(box.email, reportMail(box.email, `reporter.example!${d.name}!${day}!${day + 86_399}.json.gz`, 'application/tlsrpt+gzip', tlsReport(d.name, day)), 'noreply@reporter.example')
      await until('both are read', async () => (await api('GET', `/v1/domains/${d.id}/dmarc-reports`)).data.length === 1 && (await api('GET', `/v1/domains/${d.id}/tls-reports`)).data.length === 1)
      await p.reload()
      await p.getByText('90%').waitFor()
      const fake = p.getByRole('row', { name: /203\.0\.113\.9/ })
      assert.equal(await fake.getByText('Failed').count(), 2)
      await p.locator('.chart canvas').first().waitFor()
      await shot(p, name('reports'))
      await sound(p)
      await p.getByRole('button', { name: /reporter\.example.*100 messages/ }).click()
      await p.getByRole('dialog').getByText('Unverified: this report').waitFor()
      await sound(p)
      await p.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
      await p.getByRole('button', { name: /reporter\.example.*42 connections/ }).click()
      await p.getByRole('dialog').getByText('Certificate expired').waitFor()
    })
  }
})

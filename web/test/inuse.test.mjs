// Domains that are in use: credentials for DNS providers, and what becomes of what a domain has elsewhere.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { account, api, page, shot, sound, unique, until } from './rig.mjs'

const main = (p) => p.getByRole('main')

const credential = (more) => api('POST', '/v1/dns-credentials', { provider: 'hetzner', name: unique('ours'), token: 'walk-token', ...more })

/** Answers as a registry, so that nothing is asked of the world. */
const provider = (p) => p.route('**/v1/domains/check-provider', (route) => route.fulfill({
  json: { domain: route.request().postDataJSON().domain, registrar: 'Walk Registrar', nameservers: ['helium.ns.hetzner.de', 'hydrogen.ns.hetzner.com'], is_edge: false, checked_via: 'rdap' },
}))

const scanned = {
  nameservers: ['ns1.before.example', 'ns2.before.example'], method: 'axfr', complete: true, wildcard: false, ds: [], proxied: [], mta_sts: null,
  records: [{ name: '@', type: 'A', ttl: 300, values: ['192.0.2.7'] }, { name: '@', type: 'MX', ttl: 300, values: ['10 mx.before.example'] }, { name: 'www', type: 'A', ttl: 300, values: ['192.0.2.7'] }],
  ours: [
    { name: '@', type: 'MX', theirs: ['10 mx.before.example'], ours: ['10 mail.mailstead.test'], action: 'replace' },
    { name: '@', type: 'TXT', theirs: ['"v=spf1 include:_spf.before.example ~all"'], ours: ['"v=spf1 mx ~all"'], action: 'merge' },
    { name: '_dmarc', type: 'TXT', theirs: [], ours: ['"v=DMARC1; p=quarantine"'], action: 'replace' },
  ],
  mx: [{ priority: 10, host: 'mx.before.example' }], ttl: { ns: 86_400, ds: null, longest_changed: 300 },
}

describe('domains in use', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = (name, go) => test(name + (small ? ' on a phone' : ''), go)
    const name = (what) => 'inuse-' + what + (small ? '-phone' : '')

    walk('adds a DNS credential, renames it and deletes it', async (t) => {
      const a = await account(unique('dns') + '@people.test'), p = await page(t, { as: a, phone: small, expect: [/status of 400/] })
      await p.open('/account')
      await p.getByRole('navigation', { name: 'Account', exact: true }).getByRole('link', { name: 'DNS credentials' }).click()
      await p.getByText('No DNS credentials yet').waitFor()
      await sound(p, 'no credentials')
      await p.getByRole('button', { name: 'Add credential' }).click()
      const dialog = p.getByRole('dialog')
      await dialog.getByText('The API token needs Zone: Read and DNS: Edit').waitFor()
      const fields = { route53: ['Access key ID', 'Secret access key'], rfc2136: ['Server', 'Key name', 'Algorithm', 'Secret'], desec: ['API token'], cloudflare: ['API token'], hetzner: ['API token'] }
      for (const [provider, labels] of Object.entries(fields)) {
        await dialog.getByLabel('Provider').selectOption(provider)
        for (const label of labels) await dialog.getByLabel(label, { exact: true }).waitFor()
      }
      await dialog.getByLabel('Name', { exact: true }).fill('Office')
      await dialog.getByLabel('API token').fill('wrong-token')
      await shot(p, name('credential'))
      await sound(p, 'the form of a credential')
      await dialog.getByRole('button', { name: 'Add', exact: true }).click()
      await dialog.getByRole('alert').getByText(/does not accept these credentials/).waitFor()
      await dialog.getByLabel('API token').fill('walk-token')
      await p.keyboard.press('Enter')
      await p.getByText('Credential added.').waitFor()
      const row = p.getByRole('row', { name: /Office/ })
      await row.getByText('No domains').waitFor()
      await sound(p, 'credentials')
      await row.getByRole('button', { name: 'Edit Office' }).click()
      await dialog.getByLabel('Name', { exact: true }).fill('Head office')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await p.getByRole('row', { name: /Head office/ }).waitFor()
      await p.getByRole('button', { name: 'Edit Head office' }).click()
      await dialog.getByLabel('API token').fill('wrong-token')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.getByRole('alert').getByText(/does not accept these credentials/).waitFor()
      await dialog.getByRole('button', { name: 'Close' }).first().click()
      await p.getByRole('button', { name: 'Delete Head office' }).click()
      await p.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
      await p.getByText('No DNS credentials yet').waitFor()
      assert.equal((await a.api('GET', '/v1/dns-credentials')).count, 0)
    })

    walk('shows a credential that its provider refuses', async (t) => {
      const a = await account(unique('refused') + '@people.test'), p = await page(t, { as: a, phone: small })
      const c = await a.api('POST', '/v1/dns-credentials', { provider: 'hetzner', name: unique('ours'), token: 'walk-token' })
      await p.route('**/v1/dns-credentials', async (route) => {
        const answer = await (await route.fetch()).json()
        for (const one of answer.data) if (one.id === c.id) one.error = 'unauthorized: the token is not valid any more'
        await route.fulfill({ json: answer })
      })
      await p.open('/account/dns')
      const row = p.getByRole('row', { name: new RegExp(c.name) })
      await row.getByText('Refused by the provider.').waitFor()
      await row.getByText('the token is not valid any more').waitFor()
      await shot(p, name('refused'))
      await sound(p, 'a refused credential')
    })

    walk('keeps a domain at its DNS provider, replaces what is in the way and puts it back', async (t) => {
      const domain = small ? 'kept-phone.test' : 'kept-wide.test', p = await page(t, { phone: small })
      const first = await credential({ zones: [domain] }), second = await credential({ zones: [domain] })
      await provider(p)
      await p.open('/domains/add?name=' + domain)
      await p.getByText('(Hetzner)').first().waitFor()
      await p.getByRole('radio', { name: /^DNS provider with an API/, checked: true }).waitFor()
      await p.getByLabel('Credential').selectOption(first.id)
      await p.getByText(/in the way/).waitFor()
      await p.getByText('10 mx.before.example', { exact: false }).first().waitFor()
      assert.ok(await p.getByRole('button', { name: 'Add domain' }).isDisabled(), 'records of others are in the way')
      await shot(p, name('plan'))
      await sound(p, 'a plan with conflicts')
      await p.getByLabel('Replace existing mail records').check()
      await p.getByText(/in the way/).waitFor({ state: 'detached' })
      await p.getByRole('button', { name: 'Add domain' }).click()
      await main(p).getByRole('heading', { level: 1, name: domain }).waitFor()
      const { data: [{ id }] } = await api('GET', '/v1/domains?q=' + domain)
      await until('the old records are replaced', async () => (await api('GET', '/v1/domains/' + id)).replaced.length > 0)
      await p.open('/account/dns')
      await p.getByRole('row', { name: new RegExp(first.name) }).getByRole('link', { name: domain }).waitFor()
      await p.open(`/domains/${id}/settings`)
      await p.getByRole('button', { name: 'Move to another provider' }).click()
      const dialog = p.getByRole('dialog')
      await dialog.getByLabel('Credential').selectOption(second.id)
      await dialog.getByText('Stays').first().waitFor()
      await sound(p, 'the move of a domain')
      await p.keyboard.press('Escape')
      await p.getByText('Replaced MX of @').waitFor()
      await until('nothing works on it', async () => (await api('GET', '/v1/jobs?domain=' + domain)).data.every((j) => !['queued', 'in_progress'].includes(j.status)))
      await p.getByRole('button', { name: 'Put old records back' }).click()
      await dialog.getByRole('button', { name: 'Put back' }).click()
      await p.getByText('Old records put back.').waitFor()
      assert.equal((await api('GET', '/v1/domains/' + id)).replaced.length, 0)
    })

    walk('connects a domain in use, imports its records and shows how to go back', async (t) => {
      const domain = unique('busy') + '.test', p = await page(t, { phone: small })
      await provider(p)
      await p.open('/domains/add?name=' + domain)
      await p.getByRole('radio', { name: /^Mailstead/ }).check()
      await p.getByText('Adding it changes nothing yet.').waitFor()
      await p.getByLabel('Keep mail at its present servers for now').check()
      await sound(p, 'a domain in use')
      const before = { dns_provider: 'builtin', status: 'pending_ns', ns_status: 'pending', delegation: null, next_look_at: new Date(Date.now() + 9e5).toISOString(), previous_nameservers: ['ns1.before.example', 'ns2.before.example'] }
      let change = { ...before, dns_health: { status: 'unknown', checked_at: null, failing_since: null, issues: [{ code: 'remove_ds_first', purpose: 'DS', host: '@', message: 'The DS records are for a key of other name servers. Remove them there first, and wait 1 day.' }, { code: 'not_imported', purpose: 'CUSTOM', host: 'www', message: 'Import them with import_zone.' }] } }
      const job = { id: 'job_scan', job_id: 'job_scan', type: 'zone_scan', status: 'completed', steps: [], error: null, result: scanned }
      await p.route(/\/v1\/domains\/dom_\w+$/, async (route) => {
        if (route.request().method() !== 'GET') return route.fallback()
        await route.fulfill({ json: { ...await (await route.fetch()).json(), ...change } })
      })
      await p.route('**/v1/jobs?*type=zone_scan*', (route) => route.fulfill({ json: { data: [job], pagination: { cursor: null, has_more: false } } }))
      await p.route('**/v1/jobs/job_scan', (route) => route.fulfill({ json: job }))
      const asked = []
      await p.route('**/zone/import', async (route) => {
        const body = route.request().postDataJSON()
        asked.push(body)
        await route.fulfill({ json: { imported: 2, records: [{ name: 'www', type: 'A', ttl: 300, values: ['192.0.2.7'] }, { name: 'old', type: 'TXT', ttl: 300, values: ['"x"'] }], skipped: [{ name: '@', type: 'NS', value: 'ns1.before.example', reason: 'nameservers: Mailstead has its own name servers.' }], merged: [{ name: '@', type: 'TXT', value: 'v=spf1 mx include:_spf.before.example ~all' }], dry_run: Boolean(body.dry_run) } })
      })
      await p.getByRole('button', { name: 'Add domain' }).click()
      const next = p.getByRole('region', { name: 'Next step' })
      await next.getByRole('heading', { name: 'Remove the DS records first' }).waitFor()
      await p.getByText('mx.before.example').first().waitFor()
      await p.getByText(/Up to 24 hours/).waitFor()
      await p.getByText('Some present records are not here yet.').waitFor()
      await p.getByText(/^Show \d records/).click()
      await p.getByText('Combined').waitFor()
      await shot(p, name('scan'))
      await sound(p, 'what a domain has elsewhere')
      await p.getByRole('button', { name: 'Preview import' }).click()
      await p.getByText('2 values to import, 1 record left out.').waitFor()
      await p.getByRole('checkbox', { name: /TXT old/ }).uncheck()
      await sound(p, 'a preview of an import')
      await p.getByRole('button', { name: 'Import', exact: true }).click()
      await p.getByText('2 values imported.').waitFor()
      assert.deepEqual(asked, [{ scan: 'job_scan', dry_run: true }, { scan: 'job_scan', exclude: [{ name: 'old', type: 'TXT' }] }])
      change = before
      await p.reload()
      await next.getByRole('heading', { name: 'Set these nameservers at your registrar' }).waitFor()
      await p.getByRole('heading', { name: 'Go back' }).waitFor()
      await p.getByText('ns2.before.example').last().waitFor()
      assert.equal(await p.getByRole('heading', { name: 'Nameserver change' }).count(), 0, 'the parent zone was not asked yet')
      const card = p.locator('section.card').filter({ has: p.getByRole('heading', { name: 'Nameserver change' }) })
      const parent = (nameservers, more) => ({ delegation: { nameservers, ds: ['12345 13 2 abcdef'], ttl: 172_800, looked_at: new Date(Date.now() - 60_000).toISOString(), ...more } })
      const ours = (await api('GET', '/v1/account')).nameservers
      let counts = { domain, since: new Date(Date.now() - 9e7).toISOString(), total: 0, last_asked_at: null, hours: Array.from({ length: 24 }, (_, i) => ({ hour: new Date(Math.floor(Date.now() / 36e5) * 36e5 - (23 - i) * 36e5).toISOString(), count: 0 })) }
      await p.route('**/zone/questions', (route) => route.fulfill({ json: counts }))
      change = { ...before, ...parent(['ns1.before.example', 'ns2.before.example']) }
      await p.reload()
      await card.getByText('Not switched yet').waitFor()
      await card.getByText(/for up to 2 days/).waitFor()
      await card.getByText('No DNS queries have arrived here yet.', { exact: false }).waitFor()
      await sound(p, 'nameservers that are not changed yet')
      counts = { ...counts, total: 400, last_asked_at: new Date(Date.now() - 3000).toISOString(), hours: counts.hours.map((h, i) => ({ ...h, count: i < 12 ? 0 : (i - 11) * 4 })) }
      change = { ...before, ...parent(['ns1.before.example', ours[0]], { ttl: null, ds: [] }) }
      await p.reload()
      await card.getByText('Partly switched').waitFor()
      await card.getByText(/a resolver did/).waitFor()
      await card.getByText('312 DNS queries').waitFor()
      await card.getByRole('img', { name: /^DNS queries by hour/ }).waitFor()
      await card.scrollIntoViewIfNeeded()
      await shot(p, name('switch'))
      await sound(p, 'a change of nameservers')
      change = { ...before, ...parent(ours), status: 'complete', ns_status: 'verified', next_look_at: null, completed_at: new Date(Date.now() - 20 * 864e5).toISOString() }
      await p.reload()
      await card.getByText('Switched', { exact: true }).waitFor()
      assert.equal(await card.getByText('312 DNS queries').count(), 0, 'an old change is folded')
      await card.getByText('Show nameservers and DNS queries').click()
      await card.getByText('312 DNS queries').waitFor()
      await sound(p, 'a change of nameservers that is long over')
      change = before
      await p.reload()
      await p.getByRole('heading', { name: 'Go back' }).waitFor()
      assert.equal(await p.getByRole('button', { name: /^Continue$|Activate mail/ }).count(), 0)
      change = { ...before, status: 'pending_dns_records', ns_status: 'verified', mx: { mode: 'elsewhere', hosts: ['mx.before.example'] } }
      await p.reload()
      await next.getByText(/still goes to mx.before.example/).waitFor()
      await sound(p, 'mail that is elsewhere')
      await next.getByRole('button', { name: 'Bring mail here' }).click()
      await p.getByRole('dialog').getByLabel('Addresses that receive mail now').fill('ann@' + domain)
      await p.getByRole('dialog').getByRole('button', { name: 'Bring mail here' }).click()
      const warned = p.getByRole('dialog', { name: 'Check these next' })
      await warned.getByText('ann@' + domain, { exact: false }).waitFor()
      await warned.getByRole('button', { name: 'OK' }).click()
    })
  }
})

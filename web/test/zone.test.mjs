// The zone of a domain: its records, zone files, history and SPF.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { api, domain, on, page, shot, sound, unique, until } from './rig.mjs'

const list = (p, name = 'Record sets') => p.getByRole('list', { name, exact: true })
const dialogOf = (p) => p.getByRole('dialog')
const zone = (d) => api('GET', `/v1/domains/${d.id}/zone`)
const own = async (d) => (await zone(d)).records.filter((r) => r.source === 'custom')

async function menu(p, item) {
  await p.getByRole('button', { name: 'More actions' }).click()
  await p.getByRole('button', { name: item }).click()
}

async function open(t, d, small, expect = []) {
  const p = await page(t, { phone: small, expect })
  await p.open(`/domains/${d.id}/zone`)
  await list(p).getByRole('listitem').first().waitFor()
  return p
}

describe('zones', { concurrency: 2 }, () => {
  for (const small of [false, true]) {
    const walk = on(small), both = (name, run) => test(name + (small ? ' on a phone' : ''), run)
    const name = (what) => 'zone-' + what + (small ? '-phone' : '')

    both('imports a zone file after a look at what comes of it, and undoes that', async (t) => {
      const d = await domain(unique('zone-import') + '.test'), p = await open(t, d, small, [/status of 422/])
      await api('PUT', `/v1/domains/${d.id}/zone/blog/A`, { values: ['192.0.2.1'] })
      await p.getByRole('button', { name: 'Import', exact: true }).click()
      const dialog = dialogOf(p), area = dialog.getByLabel('Or paste it here')
      await area.fill('$INCLUDE other.zone')
      await dialog.getByRole('button', { name: 'Check file' }).click()
      await area.and(p.locator('[aria-invalid=true]')).waitFor()
      await sound(p, 'a file that cannot be read')
      await dialog.getByLabel('Zone file to import').setInputFiles({ name: 'old.zone', mimeType: 'text/dns', buffer: Buffer.from(
        `$TTL 300\n@ IN SOA ns1.other.example. h.other.example. 1 2 3 4 5\n@ NS ns1.other.example.\n@ MX 10 mx.other.example.\n@ TXT "v=spf1 include:_spf.other.example -all"\nwww A 192.0.2.7\nwww A 192.0.2.8\nblog A 192.0.2.9\nold TXT "of before"\nolder TXT "of long before"\n_sip._tcp SRV 10 5 5060 sip.other.example.\n@ HINFO "x" "y"\n`) })
      await dialog.getByText('old.zone').waitFor()
      await dialog.getByLabel('Skip names').fill('older')
      await dialog.getByRole('button', { name: 'Check file' }).click()
      await dialog.getByRole('heading', { name: 'To add: 4 values' }).waitFor()
      await dialog.getByText('Mailstead doesn’t support records of these types.').waitFor()
      await dialog.getByText('You left these out.').waitFor()
      await dialog.getByText(/^v=spf1 .* include:_spf\.other\.example -all$/).waitFor()
      await list(p, 'Conflicts').getByText('192.0.2.9').waitFor()
      assert.deepEqual((await own(d)).map((r) => r.name), ['blog'], 'nothing has changed yet')
      await shot(p, name('import'))
      await sound(p, 'what comes of it')
      await dialog.getByLabel('Replace my records').check()
      await dialog.getByRole('heading', { name: 'To add: 5 values' }).waitFor()
      await list(p, 'Records to import').getByRole('checkbox', { name: /^old / }).uncheck()
      await dialog.getByRole('button', { name: 'Import 4 values' }).click()
      await p.locator('.toast').getByText('4 values imported.').waitFor()
      assert.deepEqual((await own(d)).map((r) => `${r.name} ${r.type} ${r.values}`).sort(), ['_sip._tcp SRV 10 5 5060 sip.other.example', 'blog A 192.0.2.9', 'www A 192.0.2.7,192.0.2.8'])
      await list(p).getByText('_sip._tcp', { exact: true }).waitFor()
      await p.locator('.toast').getByRole('button', { name: 'Undo' }).click()
      await until('it is as before', async () => (await own(d)).map((r) => r.values[0]).join() === '192.0.2.1')
    })

    both('adds, edits and deletes an SRV record, and says which field is wrong', async (t) => {
      const d = await domain(unique('zone-srv') + '.test'), p = await open(t, d, small, [/status of 400/])
      await p.getByRole('button', { name: 'Add record' }).click()
      const dialog = dialogOf(p), set = (label, text, nth = 0) => dialog.getByLabel(label, { exact: true }).nth(nth).fill(text)
      await dialog.getByLabel('Type', { exact: true }).selectOption('SRV')
      await set('Name', '_sip._tcp')
      await set('Port', '70000')
      await dialog.getByText('Enter a number from 0 to 65535.').waitFor()
      await set('Port', '5060')
      await set('Host', 'sip.other.example')
      await dialog.getByRole('button', { name: 'Add value' }).click()
      await set('Host', 'sip', 1)
      await dialog.getByRole('button', { name: 'Add record' }).click()
      await dialog.getByRole('group', { name: 'Value 2' }).getByLabel('Host').and(p.locator('[aria-invalid=true]')).waitFor()
      await shot(p, name('record'))
      await sound(p, 'a wrong host')
      await dialog.getByRole('button', { name: 'Remove value 2' }).click()
      await dialog.getByRole('button', { name: 'Add record' }).click()
      await p.getByRole('button', { name: 'Edit SRV _sip._tcp' }).click()
      assert.equal(await dialog.getByLabel('Port').inputValue(), '5060')
      await set('Priority', '20')
      await set('Port', '5061')
      await dialog.getByLabel('TTL').selectOption('3600')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await list(p).getByText('20 5 5061 sip.other.example').waitFor()
      assert.deepEqual(await own(d), [{ name: '_sip._tcp', type: 'SRV', ttl: 3600, values: ['20 5 5061 sip.other.example'], source: 'custom' }])
      await shot(p, name('records'))
      await sound(p)
      await p.getByRole('button', { name: 'Delete SRV _sip._tcp' }).click()
      await p.locator('.toast').getByText('1 SRV record of _sip._tcp').waitFor()
      await until('it is deleted', async () => (await own(d)).length === 0)
      await p.locator('.toast').getByRole('button', { name: 'Undo' }).click()
      await until('it is back', async () => (await own(d))[0]?.ttl === 3600)
      await p.getByRole('button', { name: 'Edit SRV _sip._tcp' }).waitFor()
    })

    walk('takes values of every type as they are written, and refuses what Mailstead manages', async (t) => {
      const d = await domain(unique('zone-types') + '.test'), p = await open(t, d, small, [/status of 409/])
      const dialog = dialogOf(p)
      const add = async (type, at, ...fields) => {
        await p.getByRole('button', { name: 'Add record' }).click()
        await dialog.getByLabel('Type', { exact: true }).selectOption(type)
        await dialog.getByLabel('Name', { exact: true }).fill(at)
        for (const [label, text] of fields) await dialog.getByLabel(label, { exact: true }).fill(text)
        await dialog.getByRole('button', { name: 'Add record' }).click()
      }
      const added = async (...record) => {
        await add(...record)
        await dialog.waitFor({ state: 'detached' })
      }
      await add('TXT', '_dmarc', ['Text', 'v=DMARC1; p=none'])
      await dialog.getByLabel('Name', { exact: true }).and(p.locator('[aria-invalid=true]')).waitFor()
      await sound(p, 'a managed name')
      await p.keyboard.press('Escape')
      await p.getByRole('button', { name: 'Discard' }).click()
      const wanted = {
        A: ['192.0.2.1', [['IPv4 address', '192.0.2.1']]], AAAA: ['2001:db8::1', [['IPv6 address', '2001:db8::1']]], TXT: ['"say \\"hi\\" ü"', [['Text', 'say "hi" ü']]],
        MX: ['20 mx.other.example', [['Priority', '20'], ['Mail server', 'mx.other.example']]], CAA: ['0 iodef "mailto:a@other.example"', [['Tag', 'iodef'], ['Value', 'mailto:a@other.example']]],
        TLSA: ['3 1 1 ' + 'ab'.repeat(32), [['Value', '3 1 1 ' + 'AB'.repeat(32)]]], SSHFP: ['4 2 ' + 'cd'.repeat(32), [['Value', '4 2 ' + 'cd'.repeat(32)]]],
        HTTPS: ['1 . alpn="h2,h3"', [['Value', '1 . alpn="h2,h3"']]], SVCB: ['1 svc.other.example alpn="h2"', [['Value', '1 svc.other.example alpn=h2']]],
      }
      for (const [type, [, fields]] of Object.entries(wanted)) await added(type, 'host', ...fields)
      await added('CNAME', 'shop', ['Target', 'sites.other.example'])
      await added('NS', 'lab', ['Nameserver', 'ns1.other.example'])
      await added('DS', 'lab', ['Value', '12345 13 2 ' + '0f'.repeat(32)])
      assert.equal((await own(d)).length, 12)
      for (const r of (await own(d)).filter((r) => r.name === 'host')) assert.deepEqual(r.values, [wanted[r.type][0]], r.type)
      await p.getByLabel('Search by name or value').fill('host')
      await p.getByRole('button', { name: 'Edit TXT host' }).click()
      assert.equal(await dialog.getByLabel('Text').inputValue(), 'say "hi" ü')
      await p.keyboard.press('Escape')
      await added('A', 'HOST.' + d.name, ['IPv4 address', '192.0.2.2'])
      await until('the value was added to the others', async () => (await own(d)).find((r) => r.type === 'A').values.length === 2)
      await list(p).getByText('+1').waitFor()
    })

    walk('exports the zone, undoes a change of before, and adds to the SPF record', async (t) => {
      const d = await domain(unique('zone-more') + '.test')
      for (const n of [1, 2]) await api('PUT', `/v1/domains/${d.id}/zone/www/A`, { values: ['192.0.2.' + n] })
      const p = await open(t, d, small, [/status of 400/]), dialog = dialogOf(p)
      const [file] = await Promise.all([p.waitForEvent('download'), menu(p, 'Export zone file')])
      assert.equal(file.suggestedFilename(), d.name + '.zone')
      assert.match(await readFile(await file.path(), 'utf8'), /^www.*\sA\s+192\.0\.2\.2$/m)
      await menu(p, 'History')
      await list(p, 'Changes').getByRole('listitem').nth(1).waitFor()
      await shot(p, name('history'))
      await sound(p, 'history')
      const undo = dialog.getByRole('button', { name: 'Undo: Set A www' })
      assert.ok(await undo.last().isDisabled(), 'what was changed again stays')
      await undo.first().click()
      await until('it is undone', async () => (await own(d))[0].values[0] === '192.0.2.1')
      await list(p).getByText('192.0.2.1', { exact: true }).waitFor()

      await p.getByRole('button', { name: 'View TXT @' }).click()
      await dialog.getByRole('button', { name: 'Edit SPF record' }).click()
      await dialog.getByLabel('Additional terms').fill('include _spf.other.example')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.getByLabel('Additional terms').and(p.locator('[aria-invalid=true]')).waitFor()
      await sound(p, 'SPF')
      await dialog.getByLabel('Additional terms').fill('ip4:192.0.2.0/24\nip4:198.51.100.7')
      await dialog.getByLabel('All other servers').selectOption('-')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await list(p).getByText(/ip4:192\.0\.2\.0\/24 ip4:198\.51\.100\.7 -all/).waitFor()
      await menu(p, 'SPF record')
      await dialog.getByRole('button', { name: 'Reset to default' }).click()
      await until('it is reset', async () => (await api('GET', '/v1/domains/' + d.id)).spf.extra.length === 0)
    })

    walk('finds records among thousands, of which few are in the page', async (t) => {
      const d = await domain(unique('zone-large') + '.test')
      const lines = Array.from({ length: 4990 }, (_, i) => `host${i} 300 IN A 192.0.2.${i % 250 + 1}`)
      await api('POST', `/v1/domains/${d.id}/zone/import`, { zone_file: lines.join('\n') + '\n' })
      const p = await open(t, d, small), rows = list(p).getByRole('listitem')
      await p.getByText(/^(4,99|5,0\d)\d record sets$/).waitFor()
      assert.ok(await rows.count() < 100, 'few lines are in the page')
      await p.evaluate(() => scrollTo(0, document.scrollingElement.scrollHeight))
      await list(p).getByText('host4989', { exact: true }).waitFor()
      const began = Date.now()
      await p.getByLabel('Search by name or value').fill('host4321')
      await until('one is found', async () => await rows.count() === 1)
      assert.ok(Date.now() - began < 3000, `it took ${Date.now() - began} ms`)
      await p.getByLabel('Type').selectOption('MX')
      await p.getByText('No records match').waitFor()
      await p.getByRole('button', { name: 'Show all records' }).click()
      await p.getByLabel('Source').selectOption('managed')
      await until('managed ones alone', async () => await list(p).getByText('Managed').count() === await rows.count())
      assert.equal(await list(p).getByRole('button', { name: /^(Edit|Delete) / }).count(), 0)
      await sound(p)
    })
  }
})

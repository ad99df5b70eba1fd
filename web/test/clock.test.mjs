// The server's clock as the dashboard knows it, without a browser.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { build } from 'esbuild'

const { outputFiles: [file] } = await build({ entryPoints: [new URL('../src/api/clock.ts', import.meta.url).pathname], bundle: true, write: false, format: 'esm' })

/** A clock of a browser that is so many ms behind the server's, and what takes an answer by it. */
async function browser(behind, n) {
  const { serverNow, setClock } = await import('data:text/javascript,' + encodeURIComponent(`${file.text}\n// ${n}`))
  let now = Date.parse('2026-11-30T10:00:00.700Z')
  mock.method(Date, 'now', () => now - behind)
  return {
    /** The server writes its time after some ms, and the page sees the answer later. */
    ask: (before, after) => {
      const asked = Date.now()
      now += before
      const date = new Date(now).toUTCString()
      now += after
      setClock(date, asked, Date.now())
    },
    set: (to) => { behind = to },
    wrong: () => Math.abs(serverNow() - now),
  }
}

test('an answer that comes late does not put the clock back', async () => {
  const b = await browser(0, 1)
  b.ask(20, 30)
  b.ask(20, 8000)
  assert.ok(b.wrong() <= 1000, `${b.wrong()} ms`)
  const late = await browser(0, 2)
  late.ask(20, 8000)
  assert.ok(late.wrong() <= 1000, `${late.wrong()} ms`)
})

test('a clock that is wrong is known to a second once an answer was quick', async () => {
  for (const [n, behind] of [600_000, -600_000].entries()) {
    const b = await browser(behind, 3 + n)
    b.ask(3000, 8000)
    b.ask(20, 30)
    b.ask(9000, 20)
    assert.ok(b.wrong() <= 1000, `${b.wrong()} ms`)
  }
})

test('a clock that is set is followed', async () => {
  const b = await browser(0, 5)
  b.ask(20, 30)
  b.set(3_600_000)
  b.ask(20, 30)
  assert.ok(b.wrong() <= 1000, `${b.wrong()} ms`)
})

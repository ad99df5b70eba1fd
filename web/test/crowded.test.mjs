// An inbox of a million messages: it opens at once, and scrolling through its first thousands stays smooth.
import assert from 'node:assert/strict'
import test from 'node:test'
import { api, page } from './rig.mjs'

const box = process.env.MAILSTEAD_CROWDED
const pages = 60 // of a hundred lines that are scrolled through

test('an inbox of a million messages', { skip: !box && 'only in make soak' }, async (t) => {
  const { storage } = await api('GET', '/v1/account/usage')
  assert.ok(storage.messages >= 1_000_000, `${storage.messages} messages`)
  const p = await page(t)
  const began = Date.now()
  await p.open('/inbox?mailbox=' + encodeURIComponent(box))
  const list = p.getByRole('list', { name: 'Messages' })
  await list.getByRole('listitem').first().waitFor()
  t.diagnostic(`the first page shows after ${Date.now() - began} ms`)
  const { lines, rows, frames, memory } = await list.evaluate(scroll, pages * 100)
  const sorted = frames.toSorted((a, b) => a - b), part = (q) => sorted[Math.floor(q * (sorted.length - 1))].toFixed(0)
  t.diagnostic(`${lines} lines, at most ${rows} in the page; frames: median ${part(0.5)} ms, 99 % ${part(0.99)} ms, longest ${part(1)} ms; heap ${memory} MB`)
  assert.ok(lines >= pages * 100, `${lines} lines were reached`)
  assert.ok(rows < 100, `${rows} lines were in the page`)
})

/** Scrolls a list on, some lines in each frame, until so many are known. Runs in the page. */
async function scroll(list, wanted) {
  let box = list.parentElement
  while (!/auto|scroll/.test(getComputedStyle(box).overflowY)) box = box.parentElement
  const height = list.querySelector('[role=listitem]').clientHeight
  const frames = []
  let rows = 0, last = performance.now()
  for (const end = last + 120_000; list.clientHeight < wanted * height && last < end;) {
    box.scrollTop += height * 4
    await new Promise(requestAnimationFrame)
    const now = performance.now()
    frames.push(now - last)
    last = now
    rows = Math.max(rows, list.querySelectorAll('[role=listitem]').length)
  }
  return { lines: Math.round(list.clientHeight / height), rows, frames, memory: Math.round((performance.memory?.usedJSHeapSize ?? 0) / 1e6) }
}

// Somebody who presses everything: each button, menu item, check box, choice and form of each place, and the keys. Nothing
// of what they ask for is done: what would change something is answered by an error, and noted.
import { fresh } from './rig.mjs'

let known

/** What a request asks for: the operation that the API's description names, or method and path of what is none of /v1. */
async function operationOf(method, path) {
  known ??= fetch(fresh.url + '/v1/openapi.json').then((r) => r.json()).then(({ paths }) => Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, o]) => ({
    id: o.operationId, method: method.toUpperCase(), path, roles: o['x-roles'], fits: new RegExp('^' + path.replace(/\{\w+\}/g, '[^/]+') + '$'),
    fixed: !path.includes('{'), // a fixed path goes before a pattern that fits it too
  }))).sort((a, b) => b.fixed - a.fixed))
  return (await known).find((o) => o.method === method && o.fits.test(path))
}

/** All operations of /v1 that the description names roles for. */
export async function operations() {
  await operationOf('GET', '/')
  return (await known).filter((o) => o.roles)
}

const shown = ['list_credentials', 'list_smtp_credentials', 'list_approvals', 'get_approval', 'list_dns_credentials',
  'list_settings', 'get_health', 'list_backups', 'list_accounts', 'get_account_by_id', 'get_account_usage', 'list_requests', 'get_request', 'list_audit'] // what a page reads that not everybody may

const refusal = { status: 409, json: { error: { code: 'walk', message: 'Nothing is changed on this walk.', request_id: 'req_walk' } } }
export const refused = /status of 409/ // as the console tells of it

/**
 * Presses everything at the places, each an address of the signed-in page. Gives what was asked for, as {id, roles, method,
 * path, body, at, by}, the links that were there, how many things were pressed at each place, and what was there once but
 * could not be found again.
 */
export async function press(p, places) {
  const asked = []
  const secrets = (await operations()).filter((o) => o.method === 'GET' && o.roles.length < 3 && !shown.includes(o.id))
  await p.route(/\/(v1|session)(\/|\?|$)/, async (route) => {
    const r = route.request(), { pathname: path } = new URL(r.url()), method = r.method()
    if (/GET|HEAD/.test(method) && !secrets.some((o) => o.fits.test(path))) {
      const o = await operationOf(method, path)
      if (shown.includes(o?.id)) asked.push({ id: o.id, roles: o.roles, method, path, body: null, at: p.url().replace(fresh.url, ''), by: '' })
      return route.fallback()
    }
    if (path === '/v1/domains/check-provider') return route.fallback() // it has an answer of its own
    const o = await operationOf(method, path)
    asked.push({ id: o?.id ?? `${method} ${path}`, roles: o?.roles, method, path, body: r.postData(), at: p.url().replace(fresh.url, ''), by: decodeURIComponent(r.headers()['x-pressed'] ?? '') })
    if (path === '/session/totp' && method === 'POST') return route.fulfill({ json: { secret: 'JBSWY3DPEHPK3PXP', uri: 'otpauth://totp/walk?secret=JBSWY3DPEHPK3PXP' } })
    await route.fulfill(refusal)
  })
  await p.setViewportSize({ ...p.viewportSize(), height: 100 }) // so that little has to be painted
  await p.open('/nowhere')
  await p.locator('h1').first().waitFor()
  await partsLoaded(p)
  return { asked, ...await p.evaluate(walk, places) }
}

/** Waits until the page has fetched all parts of its script, which it does a second after it is there. */
async function partsLoaded(p) {
  const parts = () => p.evaluate(() => performance.getEntriesByType('resource').filter((r) => /\/part-/.test(r.name)).length)
  const first = await parts()
  for (let before = -1, now = first, quiet = 0; quiet < 5 || now <= first + 1; before = now) {
    await p.waitForTimeout(100)
    now = await parts()
    quiet = now === before ? quiet + 1 : 0
  }
}

/** The walk itself, inside the page, where a press costs no more than what it sets in motion. */
async function walk(places) {
  const most = 500 // presses at one place: more of them do not end
  const keys = ['j', 'x', 'r', 'Escape', 'a', 'f', 'e', 'U', '#', 'c', '?', 'k', 'Enter', 'u', '/', 'y', '!', 'Delete']
  const pressed = {}, links = new Map(), lost = [], shared = new Set(), filled = new WeakSet()
  let flying = 0, changes = 0, pressing = '', landed // landed is called when the last answer is there

  const { port1, port2 } = new MessageChannel(), turns = [] // unlike timers they come at once
  port1.onmessage = () => turns.shift()()
  const soon = (run) => {
    turns.push(run)
    port2.postMessage(0)
  }

  const land = () => {
    if (--flying === 0) landed?.()
  }
  const flight = async (thing) => {
    flying++
    return thing.finally(() => soon(land)) // after the page went on with it
  }
  const ask = window.fetch
  window.fetch = async (path, init) => {
    const answer = await flight(ask(path, { ...init, headers: { ...init?.headers, 'x-pressed': encodeURIComponent(pressing) } }))
    const text = answer.text
    answer.text = () => flight(text.call(answer))
    return answer
  }
  HTMLInputElement.prototype.click = function () { if (this.type !== 'file') HTMLElement.prototype.click.call(this) } // whose dialog is the browser's
  document.querySelector('link[rel=icon]')?.remove() // which the browser would ask for at each change of the address
  Object.defineProperty(window, 'innerHeight', { value: 5000 }) // long lists have their lines all the same
  const back = history.back
  history.back = () => {
    flying++
    addEventListener('popstate', land, { once: true })
    back.call(history)
  }
  new MutationObserver((m) => { changes += m.length }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true })

  window.requestAnimationFrame = (run) => soon(() => run(performance.now())) // nobody looks: no picture is waited for
  const tick = () => new Promise((done) => soon(done))
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))

  /** Waits until no request is under way, or the end has come. It leaves the processor to those who answer. */
  async function answers(end) {
    await new Promise((done) => {
      const late = setTimeout(done, end - Date.now())
      landed = () => {
        clearTimeout(late)
        done()
      }
    })
  }

  /** Waits until what was set in motion rests: no request is under way, and nothing changed meanwhile. */
  async function settle() {
    const end = Date.now() + 60_000
    for (let before; flying > 0 || changes !== before;) {
      before = changes
      if (flying > 0) await answers(end)
      await frame()
      if (Date.now() > end) throw new Error(`${location.pathname} does not come to rest after ${pressing}`)
    }
  }

  async function set(motion) {
    const before = changes
    motion()
    await tick()
    if (flying > 0 || changes !== before) await settle()
  }

  const dialog = () => [...document.querySelectorAll('dialog[open]')].at(-1)
  const layer = () => dialog() ?? document.body
  const seen = (e) => !e.disabled && e.checkVisibility({ visibilityProperty: true })

  const moving = 'time, .spinner, select, input'

  function words(e) {
    const copy = e.querySelector(moving) ? e.cloneNode(true) : e
    if (copy !== e) for (const part of copy.querySelectorAll(moving)) part.remove()
    return copy.textContent.trim().replace(/\s+/g, ' ').slice(0, 80)
  }

  const nameOf = (e) => e.getAttribute('aria-label') ?? words(e.labels?.[0] ?? e)

  /**
   * What a form is made of, since what it asks for may depend on it. The fields of the save bar are
   * outside of it: what is emptied there is removed.
   */
  function shapeOf(form) {
    return [...form.elements].filter((e) => /^(INPUT|SELECT|TEXTAREA)$/.test(e.tagName) && seen(e) && (e.type !== 'checkbox') && (e.type !== 'radio' || e.checked)).map((e) => nameOf(e) + (e.tagName === 'SELECT' ? e.value : !form.contains(e) && e.value === '' ? ' (empty)' : '')).join()
  }

  /** All that can be pressed now, by a name that stays the same. */
  function controls() {
    const found = new Map(), at = layer()
    const scope = at === document.body ? '' : `[${words(at.querySelector('h2') ?? at)}] `
    const add = (e, name, run, rank) => {
      const common = !!e?.closest('.side, .topbar, .banner, .scrim, .inbox-list'), first = (common ? '(on several pages) ' : scope) + name
      let key = first
      for (let n = 2; found.has(key); n++) key = `${first} (${n})`
      found.set(key, { run, rank, common })
    }
    for (const e of at.querySelectorAll('button, summary, select, input[type=checkbox], input[type=radio]')) {
      if (e.closest('[aria-posinset]')?.ariaPosInSet > 3 || !seen(e)) continue // the lines of a long list are alike
      if (e.closest('.toasts')) continue // they are gone in a moment; what Undo takes back is set going below
      const menu = e.closest('.menu .list')
      const name = (menu ? nameOf(menu.parentElement.querySelector('button')) + ': ' : '') + nameOf(e)
      if (e.tagName === 'SELECT') {
        for (const o of [...e.options].filter((o) => !o.selected).slice(0, 3)) add(e, `${name}: ${o.text}`, () => choose(e, o.value), 2)
      } else if (e.tagName === 'BUTTON' && e.type === 'submit' && e.form) add(e, `${name} (${shapeOf(e.form)})`, () => click(e), 0)
      else add(e, name, () => click(e), /^(Close|Cancel|Back|Discard)/.test(name) ? 4 : e.tagName === 'BUTTON' ? 1 : 2)
    }
    if (at.querySelector('.inbox')) for (const key of keys) add(null, 'key ' + key, () => type(key), 3)
    else if (at === document.body) add(null, 'all keys', () => keys.forEach(type), 3)
    for (const a of at.querySelectorAll('a[href^="/"]')) links.set(a.getAttribute('href') + ' ' + nameOf(a), { href: a.getAttribute('href'), name: nameOf(a), at: location.pathname })
    return found
  }

  function click(e) {
    e.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }))
    e.click()
  }

  function choose(e, value) {
    e.value = value
    e.dispatchEvent(new Event('change', { bubbles: true }))
  }

  function type(key) {
    document.activeElement?.blur()
    document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }))
  }

  /** What may stand in a field, other than what does. */
  function fitting(e) {
    const name = nameOf(e), typed = /^Type (.*) to confirm$/.exec(name)
    if (typed) return typed[1]
    if (e.type === 'date') return '2026-01-02'
    if (e.type === 'datetime-local') return e.value
    if (e.value.startsWith('v=DMARC1')) return e.value + '; fo=1'
    if (e.type === 'number') return String(Number(e.value || 4) + 1)
    if (e.type === 'email' || e.inputMode === 'email' || /^(To|Cc|Bcc|Usernames)$/.test(name)) return 'walker@far.test'
    if (e.type === 'url') return 'https://walker.example/' + e.value.length
    if (/domain|words/i.test(name)) return 'walker.test'
    return e.value + 'walker'
  }

  async function fill() {
    for (const e of layer().querySelectorAll('input:not([type=checkbox], [type=radio], [type=file], [type=search]), textarea')) {
      if (filled.has(e) || !seen(e) || e.readOnly || e.closest('[role=search], [class*=filters]')) continue // what is found does not change what may be done
      filled.add(e)
      await set(() => {
        e.focus()
        e.value = fitting(e)
        e.dispatchEvent(new Event('input', { bubbles: true }))
      })
      await set(() => e.blur())
    }
  }

  /** The button that loses what was filled in, where that is asked. */
  const discard = () => dialog()?.querySelector('h2').textContent === 'Discard changes?' && dialog().querySelector('[type=submit]')

  async function leaveDialogs() {
    for (let n = 0; n < 18; n++) {
      const close = discard() || (dialog() ?? document.querySelector('.compose-dock'))?.querySelector('[aria-label^=Close]')
      if (!close) return
      await set(() => close.click())
    }
    throw new Error('a dialog stays open: ' + words(dialog()))
  }

  async function go(path) {
    await set(() => {
      history.pushState(null, '', path)
      dispatchEvent(new PopStateEvent('popstate'))
    })
    const left = discard()
    if (left) await set(() => left.click())
  }

  async function begin(path) {
    await leaveDialogs()
    if (location.pathname === path.split('?')[0]) await go('/nowhere')
    await go(path)
  }

  /** Presses, and has what may still be undone be done. */
  async function push(key, control) {
    pressing = key
    await set(control.run)
    if ([...document.querySelectorAll('.toast button')].some((b) => b.textContent === 'Undo')) {
      await set(() => dispatchEvent(new Event('pagehide')))
      dispatchEvent(new Event('pageshow'))
    }
  }

  async function place(path) {
    const done = new Set(shared), trails = new Map(), here = path.split('?')[0]
    let trail = []
    const follow = async (to) => { // what led to a control once
      let now = controls()
      for (const key of to.slice(to.findLastIndex((key) => now.has(key)))) {
        if (!now.has(key)) break
        await push(key, now.get(key))
        await fill()
        now = controls()
      }
    }
    await begin(path)
    let now, of // what can be pressed, and the state of which this is so
    const look = () => {
      if (of !== changes) [now, of] = [controls(), changes]
      return now
    }
    for (let n = 0; n < most; n++) {
      if (location.pathname !== here) {
        await begin(path)
        trail = []
      }
      await fill()
      look()
      const todo = [...now].filter(([key]) => !done.has(key)).sort(([, a], [, b]) => a.rank - b.rank)
      for (const [key] of todo) if (!trails.has(key)) trails.set(key, trail)
      if (todo.length > 0) {
        const [key, control] = todo[0]
        done.add(key)
        if (control.common) shared.add(key)
        pressed[path] = (pressed[path] ?? 0) + 1
        const before = [...now.keys()].join()
        await push(key, control)
        if ([...look().keys()].join() !== before) trail = [...trail, key]
        continue
      }
      const left = [...trails].find(([key]) => !done.has(key))
      if (!left) return
      const [key, way] = left
      if (dialog()) await leaveDialogs()
      await follow(way)
      if (look().has(key)) continue
      await begin(path)
      trail = []
      await fill()
      await follow(way)
      trail = way
      if (!look().has(key)) {
        done.add(key)
        lost.push(`${path}: ${key}`)
      }
    }
    throw new Error(`${path}: no end after ${most} presses: ${[...trails.keys()].slice(-20)}`)
  }

  for (const path of places) await place(path)
  return { pressed, links: [...links.values()], lost }
}

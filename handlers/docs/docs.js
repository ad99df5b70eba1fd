// What the pages of the documentation do beyond HTML: the theme that was chosen in the dashboard, results while one types,
// one language for all examples, and buttons that copy. Without it the search field leads to the page with the results.
'use strict'

/** What this browser keeps for the pages, where it may. */
function stored(key) {
  try {
    return localStorage.getItem(key)
  } catch {
    return null
  }
}

function store(key, value) {
  try {
    localStorage.setItem(key, value)
  } catch {
    // then it holds for this page alone
  }
}

const theme = stored('theme')
if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme

/** Shows results below the search field while one types. */
function search() {
  const form = document.querySelector('header form'), field = form.q
  const found = document.getElementById('found'), count = document.getElementById('found-count')
  let timer, asking
  const close = () => {
    clearTimeout(timer)
    asking?.abort()
    found.hidden = true
    count.textContent = ''
  }
  const ask = async () => {
    asking?.abort()
    asking = new AbortController()
    const { signal } = asking
    try {
      const response = await fetch(`${form.action}?q=${encodeURIComponent(field.value)}`, { signal })
      const page = new DOMParser().parseFromString(await response.text(), 'text/html')
      if (signal.aborted || !response.ok) return
      found.replaceChildren(...page.querySelectorAll('main .count, main .results'))
      found.hidden = false
      count.textContent = found.querySelector('.count')?.textContent ?? ''
    } catch (error) {
      if (error.name !== 'AbortError') close() // Enter still leads to the page with the results
    }
  }
  field.addEventListener('input', () => {
    clearTimeout(timer)
    if (field.value.trim() === '') close()
    else timer = setTimeout(ask, 150)
  })
  form.addEventListener('keydown', (event) => {
    const links = found.hidden ? [] : [...found.querySelectorAll('a')]
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (event.key === 'Escape' && !found.hidden) {
      event.preventDefault()
      close()
      field.focus()
    } else if (step && links.length > 0) {
      event.preventDefault()
      const to = links.indexOf(document.activeElement) + step
      if (to < 0) field.focus()
      else links[Math.min(to, links.length - 1)].focus()
    }
  })
  form.addEventListener('focusout', (event) => { if (!form.contains(event.relatedTarget)) close() })
  found.addEventListener('mousedown', (event) => event.preventDefault()) // a click on a result leaves the focus, or the list would close before
  found.addEventListener('click', (event) => { if (event.target.closest('a')) close() })
  addEventListener('keydown', (event) => {
    const typing = event.target.closest?.('input:not([type="radio"]), textarea')
    if (event.key === '/' && !typing || event.key === 'k' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault()
      field.select()
    }
  })
}

/** Keeps the language of examples for all of them, on the next pages too. */
function languages() {
  const choose = (language) => {
    for (const one of document.querySelectorAll('.choice input')) if (one.value === language) one.checked = true
  }
  choose(stored('docs-language'))
  addEventListener('change', ({ target }) => {
    if (!target.matches('.choice input')) return
    const before = target.getBoundingClientRect().top
    choose(target.value)
    scrollBy(0, target.getBoundingClientRect().top - before) // examples above may have another height now
    store('docs-language', target.value)
  })
}

/** Puts a button beside each piece of code that copies it. */
function copies() {
  for (const pre of document.querySelectorAll('main pre')) {
    const box = document.createElement('div'), button = document.createElement('button')
    box.className = 'code'
    button.type = 'button'
    button.textContent = 'Copy'
    button.addEventListener('click', async () => {
      const ok = await navigator.clipboard?.writeText(pre.textContent.trimEnd()).then(() => true, () => false)
      button.textContent = ok ? 'Copied' : 'Select and copy it'
      setTimeout(() => { button.textContent = 'Copy' }, 2000)
    })
    pre.replaceWith(box)
    box.append(pre, button)
  }
}

addEventListener('DOMContentLoaded', () => {
  const contents = document.getElementById('contents'), here = contents.querySelector('[aria-current]')
  if (here) contents.scrollTop = here.offsetTop - contents.clientHeight / 3
  search()
  languages()
  copies()
  addEventListener('keydown', (event) => { if (event.key === 'Escape' && location.hash === '#contents') location.hash = '#main' })
})

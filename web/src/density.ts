// Comfortable or compact lists: what the viewer chose last in this browser.
import { signal } from '@preact/signals'

const key = 'density'

function stored(): boolean {
  try {
    return localStorage.getItem(key) === 'compact'
  } catch {
    return false // storage may be forbidden
  }
}

/** Whether lists are compact. */
export const compact = signal(stored())

compact.subscribe((on) => { document.documentElement.dataset.density = on ? 'compact' : 'comfortable' })

export function turnDensity() {
  compact.value = !compact.value
  try {
    localStorage.setItem(key, compact.value ? 'compact' : 'comfortable')
  } catch {
    // then it holds for this page alone
  }
}

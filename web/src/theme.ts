// Light or dark: as the system has it, until the viewer says otherwise.
import { signal } from '@preact/signals'

const dark = matchMedia('(prefers-color-scheme: dark)')
const key = 'theme'

function stored(): string | null {
  try {
    return localStorage.getItem(key)
  } catch {
    return null // storage may be forbidden
  }
}

function current(): 'light' | 'dark' {
  const said = stored()
  return said === 'light' || said === 'dark' ? said : dark.matches ? 'dark' : 'light'
}

export const theme = signal(current())

function apply() {
  theme.value = current()
  document.documentElement.dataset.theme = theme.value
}

dark.addEventListener('change', apply)
apply()

export function turnTheme() {
  try {
    localStorage.setItem(key, theme.value === 'dark' ? 'light' : 'dark')
  } catch {
    // then it holds for this page alone
  }
  apply()
}

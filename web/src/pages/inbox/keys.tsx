// The keyboard of the inbox.
import { useEffect, useRef } from 'preact/hooks'
import { Dialog } from '../../ui'

const typed = 'input, textarea, select, [contenteditable]'

/** Listens to single keys, wherever they are pressed, but not while something is typed or a dialog is open. */
export function useKeys(keys: Record<string, (() => void) | undefined>) {
  const latest = useRef(keys)
  latest.current = keys
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return
      const at = e.target as Element
      if (document.querySelector('dialog[open]') || at.closest?.('.compose')) return
      if (at.matches?.(typed) && !at.matches('input[type=checkbox]')) return
      const run = latest.current[e.key]
      if (!run) return
      e.preventDefault()
      run()
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
}

const groups: [string, [string[], string][]][] = [
  ['Navigate', [
    [['j'], 'Next message'], [['k'], 'Previous message'], [['Enter'], 'Open message'], [['u', 'Esc'], 'Back to the list'],
    [['/'], 'Search'],
  ]],
  ['Message', [
    [['r'], 'Reply'], [['a'], 'Reply all'], [['f'], 'Forward'], [['e'], 'Mark as read, then next message'], [['U'], 'Mark as unread'], [['s'], 'Star or unstar'], [['y'], 'Archive'], [['!'], 'Junk, or not junk'], [['#', 'Del'], 'Delete'],
  ]],
  ['Selection', [[['x'], 'Select message'], [['Shift', 'click'], 'Select range'], [['Esc'], 'Clear selection']]],
  ['Compose', [[['c'], 'New message'], [['Ctrl', 'Enter'], 'Send'], [['?'], 'Keyboard shortcuts']]],
]

const both = new Set(['Shift', 'Ctrl'])

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" wide onClose={onClose}>
      <div class="grid-2 inbox-help">
        {groups.map(([name, keys]) => (
          <section key={name} class="stack-tight">
            <h3>{name}</h3>
            <dl>
              {keys.map(([names, does]) => (
                <div key={does}>
                  <dt>{names.map((k, i) => <>{i > 0 && <span class="muted"> {both.has(names[0]!) ? '+' : 'or'} </span>}<kbd key={k}>{k}</kbd></>)}</dt>
                  <dd>{does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  )
}

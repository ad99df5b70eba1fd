// The keyboard of the inbox.
import { useEffect, useRef } from 'preact/hooks'
import { Dialog, typedIn } from '../../ui'
import { t, type Key } from '../../words'

/**
 * Listens to single keys, wherever they are pressed, but not while something is typed or a dialog
 * is open. What gives false leaves the key to the browser.
 */
export function useKeys(keys: Record<string, (() => void | false) | undefined>) {
  const latest = useRef(keys)
  latest.current = keys
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return
      const at = e.target as Element
      if (document.querySelector('dialog[open]') || at.closest?.('.compose')) return
      if (at.matches?.(typedIn) && !at.matches('input[type=checkbox]')) return
      const run = latest.current[e.key]
      if (run && run() !== false) e.preventDefault()
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
}

const groups: [Key, [string[], Key][]][] = [
  ['inbox.keys.navigate', [
    [['j'], 'inbox.keys.next'], [['k'], 'inbox.keys.previous'], [['enter'], 'inbox.keys.open'], [['u', 'escape'], 'inbox.keys.back'],
    [['/'], 'inbox.keys.search'], [['↓'], 'inbox.keys.down'], [['ctrl', 'K'], 'palette.title'],
  ]],
  ['inbox.keys.message', [
    [['r'], 'message.reply'], [['a'], 'message.reply_all'], [['f'], 'message.forward'], [['e'], 'inbox.keys.read'], [['U'], 'inbox.mark_unread'], [['s'], 'inbox.keys.star'], [['y'], 'inbox.archive'], [['!'], 'inbox.keys.junk'], [['#', 'delete'], 'inbox.delete'],
  ]],
  ['inbox.keys.selection', [[['x'], 'inbox.keys.select'], [['shift', 'click'], 'inbox.keys.range'], [['escape'], 'inbox.select.none']]],
  ['inbox.keys.compose', [[['c'], 'inbox.keys.new'], [['ctrl', 'enter'], 'inbox.keys.send'], [['?'], 'inbox.keys']]],
]

/** The names of keys that are no characters. */
const named: Record<string, Key> = { enter: 'ui.key.enter', escape: 'ui.key.escape', ctrl: 'ui.key.ctrl', shift: 'ui.key.shift', delete: 'ui.key.delete', click: 'inbox.keys.click' }

const both = new Set(['shift', 'ctrl'])

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={t('inbox.keys')} wide onClose={onClose}>
      <div class="grid-2 inbox-help" tabIndex={0} role="group" aria-label={t('inbox.keys')}>
        {groups.map(([name, keys]) => (
          <section key={name} class="stack-tight">
            <h3>{t(name)}</h3>
            <dl>
              {keys.map(([names, does]) => (
                <div key={does}>
                  <dt>{names.map((k, i) => <>{i > 0 && <span class="muted"> {both.has(names[0]!) ? '+' : t('inbox.keys.or')} </span>}<kbd key={k}>{named[k] ? t(named[k]) : k}</kbd></>)}</dt>
                  <dd>{t(does)}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  )
}

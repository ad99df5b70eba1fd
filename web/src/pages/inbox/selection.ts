// Which messages are selected.
import { useRef, useState } from 'preact/hooks'
import { gone, keyOf, type Message } from './actions'

export interface Selection {
  chosen: Message[]
  has: (key: string) => boolean
  /** Selects a message or takes it out; with range, all from the last one up to it. */
  toggle: (key: string, range: boolean) => void
  all: () => void
  none: () => void
}

export function useSelection(items: Message[]): Selection {
  const [chosen, setChosen] = useState<ReadonlyMap<string, Message>>(new Map())
  const last = useRef<string | undefined>(undefined)
  const place = (key: string | undefined) => items.findIndex((m) => keyOf(m) === key)

  const toggle = (key: string, range: boolean) => {
    const at = place(key), from = place(last.current)
    if (at < 0) return
    const next = new Map(chosen)
    if (range && from >= 0) {
      for (const m of items.slice(Math.min(at, from), Math.max(at, from) + 1)) next.set(keyOf(m), m)
    } else if (!next.delete(key)) {
      next.set(key, items[at]!)
    }
    last.current = key
    setChosen(next)
  }
  // What the list has read anew since counts, as whether it is read.
  const now = new Map(chosen.size > 0 ? items.map((m) => [keyOf(m), m]) : [])
  const left = [...chosen.values()].filter((m) => !gone.value.has(m.id)).map((m) => now.get(keyOf(m)) ?? m)
  return {
    chosen: left, has: (key) => chosen.has(key), toggle,
    all: () => setChosen(new Map(items.map((m) => [keyOf(m), m]))),
    none: () => { setChosen(new Map()); last.current = undefined },
  }
}

// The buttons that format the text of a message. They are one stop of the Tab key; arrow keys go
// from one to the next.
import type { Command } from 'prosemirror-state'
import type { EditorView } from 'prosemirror-view'
import { useRef, useState } from 'preact/hooks'
import { t, type Key } from '../../../words'
import { bold, bullets, has, italic, linkAt, numbers, plain, quote, underline, within } from './commands'
import { marks, nodes } from './schema'

interface Tool { name: Key; key: string; shift?: true; shape: string; run: Command | 'link'; on?: (view: EditorView) => boolean }

const tools: Tool[] = [
  { name: 'compose.bold', key: 'B', shape: 'M7 5h6a3.4 3.4 0 0 1 0 6.8H7zM7 11.8h7a3.6 3.6 0 0 1 0 7.2H7z', run: bold, on: (v) => has(v.state, marks.strong) },
  { name: 'compose.italic', key: 'I', shape: 'M10.5 5H18M6 19h7.5M14.5 5l-5 14', run: italic, on: (v) => has(v.state, marks.em) },
  { name: 'compose.underline', key: 'U', shape: 'M7 4.5v7a5 5 0 0 0 10 0v-7M6 20h12', run: underline, on: (v) => has(v.state, marks.underline) },
  { name: 'compose.bullets', key: '8', shift: true, shape: 'M9 6.5h11M9 12h11M9 17.5h11M4.5 6.5h.01M4.5 12h.01M4.5 17.5h.01', run: bullets, on: (v) => within(v.state, nodes.bullet_list) },
  { name: 'compose.numbers', key: '7', shift: true, shape: 'M10 6.5h10M10 12h10M10 17.5h10M4 5l1.5-1v5M4 14.5c0-1.4 2.5-1.4 2.5 0 0 1-2.5 2-2.5 3.5h2.7', run: numbers, on: (v) => within(v.state, nodes.ordered_list) },
  { name: 'compose.quote', key: '9', shift: true, shape: 'M5 5v14M10 7.5h9M10 12h9M10 16.5h6', run: quote, on: (v) => within(v.state, nodes.blockquote) },
  { name: 'compose.link', key: 'K', shape: 'M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10a4 4 0 0 0-5.7 0l-3 3A4 4 0 0 0 11 18.7l1-1', run: 'link', on: (v) => linkAt(v.state) !== undefined },
  { name: 'compose.plain', key: '\\', shape: 'M6 5.5h11M11.5 5.5 9 18.5M14 15l5 5M19 15l-5 5', run: plain },
]

export function Toolbar({ view, onLink }: { view: EditorView; onLink: () => void }) {
  const bar = useRef<HTMLDivElement>(null)
  const [at, setAt] = useState(0)
  const press = (e: KeyboardEvent) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tools.length - 1 }[e.key]
    if (to === undefined) return
    e.preventDefault()
    const next = (to + tools.length) % tools.length
    setAt(next)
    bar.current!.querySelectorAll('button')[next]!.focus()
  }
  const run = (tool: Tool) => {
    if (tool.run === 'link') return onLink()
    tool.run(view.state, view.dispatch, view)
    view.focus()
  }
  return (
    <div class="compose-tools" role="toolbar" aria-label={t('compose.formatting')} ref={bar} onKeyDown={press} onMouseDown={(e) => e.preventDefault() /* the text keeps the focus */}>
      {tools.map((tool, i) => (
        <button key={tool.name} type="button" tabIndex={i === at ? 0 : -1} aria-label={t(tool.name)} title={`${t(tool.name)} (${[t('ui.key.ctrl'), ...(tool.shift ? [t('ui.key.shift')] : []), tool.key].join(' + ')})`} aria-pressed={tool.on?.(view)} onFocus={() => setAt(i)} onClick={() => run(tool)}>
          <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d={tool.shape} /></svg>
        </button>
      ))}
    </div>
  )
}

// What the toolbar and the keyboard do to the text of a message.
import { baseKeymap, chainCommands, exitCode, lift, setBlockType, toggleMark, wrapIn } from 'prosemirror-commands'
import { redo, undo } from 'prosemirror-history'
import { keymap } from 'prosemirror-keymap'
import type { MarkType, NodeType } from 'prosemirror-model'
import { liftListItem, sinkListItem, splitListItem, wrapInList } from 'prosemirror-schema-list'
import { Plugin, type Command, type EditorState } from 'prosemirror-state'
import { marks, nodes } from './schema'

export const bold = toggleMark(marks.strong), italic = toggleMark(marks.em), underline = toggleMark(marks.underline), strike = toggleMark(marks.strike)
export const bullets = toggleList(nodes.bullet_list), numbers = toggleList(nodes.ordered_list)

/** Makes a quotation of the blocks that are selected, or ends it. */
export const quote: Command = (state, dispatch) => (depthOf(state, [nodes.blockquote]) < 0 ? wrapIn(nodes.blockquote) : lift)(state, dispatch)

/** Takes the formatting from what is selected. */
export const plain: Command = (state, dispatch) => {
  const { from, to, empty } = state.selection
  if (dispatch) {
    if (!empty) dispatch(state.tr.removeMark(from, to))
    else dispatch(state.tr.setStoredMarks([]))
  }
  return true
}

/** Makes a list of the blocks that are selected, one of another kind, or none. */
function toggleList(type: NodeType): Command {
  return (state, dispatch) => {
    const depth = depthOf(state, [nodes.bullet_list, nodes.ordered_list])
    if (depth < 0) return wrapInList(type)(state, dispatch)
    const { $from } = state.selection
    if ($from.node(depth).type === type) return liftListItem(nodes.list_item)(state, dispatch)
    dispatch?.(state.tr.setNodeMarkup($from.before(depth), type))
    return true
  }
}

/** How deep the innermost node of the types around the selection is; -1 for none. */
function depthOf(state: EditorState, types: NodeType[]): number {
  const { $from, $to } = state.selection
  for (let depth = $from.sharedDepth($to.pos); depth > 0; depth--) if (types.includes($from.node(depth).type)) return depth
  return -1
}

export function within(state: EditorState, type: NodeType): boolean {
  return depthOf(state, [type]) >= 0
}

/** Whether what is selected, or would be typed, has a mark. */
export function has(state: EditorState, mark: MarkType): boolean {
  const { from, to, empty, $from } = state.selection
  return empty ? mark.isInSet(state.storedMarks ?? $from.marks()) !== undefined : state.doc.rangeHasMark(from, to, mark)
}

/** A link that the selection is in, and how far it reaches. */
export function linkAt(state: EditorState): { from: number; to: number; href: string } | undefined {
  const { $from, empty } = state.selection, { parent } = $from
  const isOn = (i: number, href?: string) => {
    const link = i >= 0 && i < parent.childCount ? marks.link.isInSet(parent.child(i).marks) : undefined
    return link && (href === undefined || link.attrs.href === href) ? link : undefined
  }
  const at = !isOn($from.index()) && empty && $from.textOffset === 0 ? $from.index() - 1 : $from.index() // or just behind it
  const link = isOn(at)
  if (!link) return undefined
  const href: string = link.attrs.href
  let first = at, last = at
  while (isOn(first - 1, href)) first--
  while (isOn(last + 1, href)) last++
  return { from: $from.posAtIndex(first), to: $from.posAtIndex(last + 1), href }
}

const lineBreak = chainCommands(exitCode, (state, dispatch) => {
  dispatch?.(state.tr.replaceSelectionWith(nodes.hard_break.create()).scrollIntoView())
  return true
})

/** The keys of the text. Ctrl with Enter sends the message, so it is not among them. */
export function keys(onLink: () => void): Plugin[] {
  const { 'Mod-Enter': _, ...base } = baseKeymap
  const link: Command = () => {
    onLink()
    return true
  }
  return [
    keymap({
      'Mod-b': bold, 'Mod-i': italic, 'Mod-u': underline, 'Mod-Shift-x': strike, 'Mod-k': link, 'Mod-\\': plain,
      'Mod-Shift-7': numbers, 'Mod-Shift-8': bullets, 'Mod-Shift-9': quote,
      'Mod-]': sinkListItem(nodes.list_item), 'Mod-[': liftListItem(nodes.list_item),
      'Mod-z': undo, 'Mod-y': redo, 'Mod-Shift-z': redo,
      Enter: splitListItem(nodes.list_item), 'Shift-Enter': lineBreak,
      Backspace: (state, dispatch) => { // at the start of a heading
        const { $from, empty } = state.selection
        return empty && $from.parent.type === nodes.heading && $from.parentOffset === 0 && setBlockType(nodes.paragraph)(state, dispatch)
      },
    }),
    keymap(base),
  ]
}

/** Keeps a paragraph behind a table, a line or code at the end, so that one can write on. */
export const wayOut = new Plugin({
  appendTransaction: (_, __, { doc, tr }) => ([nodes.table, nodes.horizontal_rule, nodes.code_block].includes(doc.lastChild!.type) ? tr.insert(doc.content.size, nodes.paragraph.create()) : null),
})

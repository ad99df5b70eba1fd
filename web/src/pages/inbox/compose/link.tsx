// Asks where a link in the text of a message leads.
import { closeHistory } from 'prosemirror-history'
import type { EditorView } from 'prosemirror-view'
import { useState } from 'preact/hooks'
import { Button, Dialog, Form, TextField } from '../../../ui'
import { t } from '../../../words'
import { targetOf } from './clean'
import { linkAt } from './commands'
import { marks, schema } from './schema'

export function LinkDialog({ view, onClose }: { view: EditorView; onClose: () => void }) {
  const [before] = useState(() => linkAt(view.state))
  const { from, to, empty } = view.state.selection
  const [href, setHref] = useState(before?.href ?? '')
  const [text, setText] = useState('')
  const [wrong, setWrong] = useState('')
  const at = before ?? { from, to }
  const save = async () => {
    const typed = href.trim(), target = targetOf(addressOf(typed))
    if (target === '') return setWrong(t('compose.link.wrong'))
    const link = marks.link.create({ href: target })
    const tr = closeHistory(view.state.tr)
    if (!before && empty) tr.replaceSelectionWith(schema.text(text.trim() || typed, [link]), false)
    else tr.removeMark(at.from, at.to, marks.link).addMark(at.from, at.to, link)
    view.dispatch(tr.scrollIntoView())
    onClose()
  }
  const remove = () => {
    view.dispatch(closeHistory(view.state.tr).removeMark(at.from, at.to, marks.link))
    onClose()
  }
  return (
    <div onSubmit={(e) => e.stopPropagation()} onKeyDown={(e) => e.stopPropagation()}>{/* the form around the text hears nothing of it */}
      <Dialog title={t('compose.link.title')} onClose={onClose}>
        <Form onSubmit={save} submit={t('compose.link.save')} actions={before && <Button onClick={remove}>{t('compose.link.remove')}</Button>}>
          <TextField label={t('compose.link.address')} value={href} onInput={(v) => { setHref(v); setWrong('') }} error={wrong || undefined} inputMode="url" placeholder="https://" autoFocus />
          {!before && empty && <TextField label={t('compose.link.text')} value={text} onInput={setText} />}
        </Form>
      </Dialog>
    </div>
  )
}

/** An address as people write it, with its scheme; '' if it is none. */
function addressOf(typed: string): string {
  if (/\s/.test(typed)) return ''
  if (/^[a-z][a-z0-9+.-]*:/i.test(typed)) return typed
  if (/^[^/@]+@[^/@]+$/.test(typed)) return 'mailto:' + typed
  return /^[^/?#]+\.[^/?#.]+/.test(typed) ? 'https://' + typed : ''
}

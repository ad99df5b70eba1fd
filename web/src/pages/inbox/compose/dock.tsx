// Where a message is written beside what one reads.
import { signal } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'
import { go } from '../../../router'
import { Icon, IconButton } from '../../../ui'
import { docked, draftOf } from './draft'
import { ComposeForm, type Sent } from './form'
import { Fates, Undo, useWaits } from './sent'

const last = signal<Sent | null>(null)

export function Dock() {
  const key = docked.value
  return key === null ? <Done /> : <Open key={key} draft={key} />
}

function Open({ draft: key }: { draft: string }) {
  const [before] = useState(() => document.activeElement as HTMLElement | null)
  useEffect(() => () => before?.focus?.(), [])
  const close = () => {
    docked.value = null
  }
  return (
    <section class="compose compose-dock" role="dialog" aria-label={draftOf(key).title} onKeyDown={(e) => {
      if (e.key !== 'Escape' || e.defaultPrevented) return
      e.stopPropagation()
      close()
    }}>
      <header>
        <h2>{draftOf(key).title}</h2>
        <IconButton look="ghost" small icon="expand" label="Open as full page" onClick={() => { close(); go('/compose?draft=' + encodeURIComponent(key)) }} />
        <IconButton look="ghost" small icon="x" label="Close and keep draft" onClick={close} />
      </header>
      <ComposeForm draft={key} onSent={(sent) => { last.value = sent; close() }} onDiscard={close} />
    </section>
  )
}

const seconds = 12

/** Says for some time that a message is on its way. */
function Done() {
  const sent = last.value
  const waits = useWaits(sent)
  useEffect(() => {
    if (!sent || waits) return
    const timer = setTimeout(() => { last.value = null }, seconds * 1000)
    return () => clearTimeout(timer)
  }, [sent, waits])
  if (!sent) return null
  return (
    <section class="compose compose-done" aria-label="Sent" role="status">
      <header>
        <h2><Icon name="check" /> {sent.until === 0 && sent.status === 'scheduled' ? 'Scheduled' : 'Sent'}</h2>
        {waits && <Undo sent={sent} onBack={() => { last.value = null; docked.value = sent.draft.key }} />}
        <IconButton look="ghost" small icon="x" label="Close" onClick={() => { last.value = null }} />
      </header>
      {!waits && <Fates sent={sent} />}
    </section>
  )
}

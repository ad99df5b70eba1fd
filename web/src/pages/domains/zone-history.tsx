// The changes of a domain's own records, each of which can be undone.
import { call, can, type Schemas } from '../../api/client'
import { usePages } from '../../api/query'
import { Button, count, Dialog, doLater, Empty, failed, LongList, theirs, Time, told } from '../../ui'
import type { Domain } from './words'

type Change = Schemas['ZoneChange']

const recent = 20 // changes among which one that was just made is looked for

/** Tells that records were changed, and offers to undo the newest change that fits. */
export function undoable(d: Domain, text: string, fits: (c: Change) => boolean, reload: () => Promise<unknown>) {
  const undo = async () => {
    const { data } = await call('list_zone_changes', { domain_id: d.id, limit: recent })
    const change = data.find(fits)
    if (change) await call('undo_zone_change', { domain_id: d.id, id: change.id })
    await reload()
  }
  doLater(text, async () => {}, () => void undo().catch(failed))
}

function said(c: Change): string {
  const what = c.name === null ? 'several records' : `${c.type} ${c.name}`
  switch (c.kind) {
    case 'set':
      return 'Set ' + what
    case 'delete':
      return 'Deleted ' + what
    case 'import':
      return 'Imported records'
  }
  return c.name === null ? 'Undid an import' : 'Undid a change of ' + what
}

export function History({ domain: d, onClose, reload }: { domain: Domain; onClose: () => void; reload: () => Promise<unknown> }) {
  const pages = usePages('list_zone_changes', { domain_id: d.id, limit: 50 }, (c) => c.id, { kinds: ['record', 'domain'], only: (c) => c.kind === 'record' || c.id === d.id })
  const undo = async (c: Change) => {
    await call('undo_zone_change', { domain_id: d.id, id: c.id })
    told('Change undone.')
    await reload()
  }
  return (
    <Dialog title="History" wide onClose={onClose}>
      <div class="stack">
        <p class="muted">The last 100 changes of your custom records. You can undo a change as long as the same records were not changed again.</p>
        <div class="zone-box" tabIndex={0} role="region" aria-label="History">
          <LongList pages={pages} idOf={(c) => c.id} height={62} label="Changes" row={(c, at) => <Line of={c} old={c.name !== null && pages.items.slice(0, at).some((later) => later.name === c.name && later.type === c.type)} onUndo={() => undo(c)} />}
            empty={<Empty icon="clock" title="No changes yet">Changes appear here once you add, edit, delete or import records.</Empty>} />
        </div>
      </div>
    </Dialog>
  )
}

/** old: the same records were changed again later. */
function Line({ of: c, old, onUndo }: { of: Change; old: boolean; onUndo: () => Promise<void> }) {
  return (
    <div class="line zone-change">
      <span class="grow">
        <span class="truncate zone-block"><strong>{said(c)}</strong></span>
        <span class="muted small truncate zone-block">{[c.added > 0 && `${count(c.added)} added`, c.removed > 0 && `${count(c.removed)} removed`].filter(Boolean).join(', ')}{c.added + c.removed > 0 && ' · '}<Time of={c.created_at} /> by {theirs(c.by)}</span>
      </span>
      {can('undo_zone_change') && <Button small disabled={old} title={old ? 'These records were changed again.' : undefined} onClick={onUndo} aria-label={`Undo: ${said(c)}`}>Undo</Button>}
    </div>
  )
}

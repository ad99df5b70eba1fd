// What a message is underneath: its header fields, and its bytes as they came.
import { fetched } from '../../api/client'
import { useRead } from '../../api/query'
import { bytes, Code, Dialog, LinkButton, Notice, Show } from '../../ui'
import { t } from '../../words'
import { inFolder, type Ref } from './actions'
import type { Detail } from './types'

/** The path of something of a message. */
export function pathOf(m: Ref, what: string): string {
  const folder = inFolder(m)
  return `/v1/email-users/${m.user_id}/inbox/${m.uid}/${what}${folder ? '?folder=' + encodeURIComponent(folder) : ''}`
}

export function rawOf(m: Ref): string {
  return pathOf(m, 'raw')
}

export function Headers({ of: m, onClose }: { of: Detail; onClose: () => void }) {
  return (
    <Dialog title={t('message.headers')} wide onClose={onClose}>
      <dl class="inbox-headers" tabIndex={0}>
        {m.headers.map((h, i) => <div key={i}><dt>{h.name}</dt><dd><code dir="auto">{h.value}</code></dd></div>)}
      </dl>
    </Dialog>
  )
}

const most = 200 * 1024 // bytes of the source that are shown

export function Raw({ of: m, onClose }: { of: Detail; onClose: () => void }) {
  const read = useRead('source of ' + m.id, () => beginning(rawOf(m)))
  return (
    <Dialog title={t('message.source')} wide onClose={onClose}>
      <div class="stack">
        <div class="row-between">
          <span class="muted">{t('message.as_received', { size: bytes(m.size) })}</span>
          <LinkButton small icon="download" href={rawOf(m)} download>{t('message.download')}</LinkButton>
        </div>
        <Show of={read} lines={10}>{(source) => (
          <>
            <Code text={source} label={t('message.source')} />
            {m.size > most && <Notice>{t('message.first_shown', { size: bytes(most) })}</Notice>}
          </>
        )}</Show>
      </div>
    </Dialog>
  )
}

/** Reads the beginning of a file as text. */
async function beginning(path: string): Promise<string> {
  const reader = (await fetched(path)).body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while (text.length < most) {
    const { done, value } = await reader.read()
    if (done) return text
    text += value
  }
  void reader.cancel()
  return text.slice(0, most)
}

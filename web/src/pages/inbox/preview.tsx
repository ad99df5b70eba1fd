// A look at a file of a message without opening it elsewhere: a picture, a text or a PDF. Nothing
// in it runs, and nothing of it is asked for but from this server.
import { useEffect, useState } from 'preact/hooks'
import { fetched } from '../../api/client'
import { useRead } from '../../api/query'
import { bytes, Dialog, IconButton, LinkButton, Notice, Show } from '../../ui'
import { t } from '../../words'
import { lazy } from '../lazy'
import { nameOfFile, pathOfFile, shownAs, viewOfFile, type File } from './files'
import { pdf } from './pdf_part'
import type { Detail } from './types'

const Pdf = lazy(pdf, (p) => p.Pdf)

interface Props { message: Detail; file: File }

export function Preview({ message: m, file, onClose }: Props & { onClose: () => void }) {
  const [index, setIndex] = useState(file.index)
  const files = m.attachments.filter((a) => shownAs(a))
  const place = files.findIndex((a) => a.index === index) // the message may have been read anew meanwhile
  const at = files[place] ?? file
  const step = (by: number) => setIndex(files[(place + by + files.length) % files.length]!.index)
  useEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (files.length < 2 || (e.target as Element).closest?.('pre, .inbox-preview-pages')) return // there, arrows scroll
      if (e.key === 'ArrowRight') step(1)
      if (e.key === 'ArrowLeft') step(-1)
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  })
  return (
    <Dialog title={nameOfFile(at)} wide onClose={onClose}>
      <div class="inbox-preview">
        <div class="row-between">
          <span class="muted small">{files.length > 1 ? t('message.preview.place', { n: place + 1, of: files.length }) + ', ' : ''}{bytes(at.size)}</span>
          <span class="row nowrap">
            {files.length > 1 && <span class="before"><IconButton look="ghost" small icon="next" label={t('message.preview.previous')} onClick={() => step(-1)} /></span>}
            {files.length > 1 && <IconButton look="ghost" small icon="next" label={t('message.preview.next')} onClick={() => step(1)} />}
            <LinkButton small icon="download" href={pathOfFile(m, at)} download>{t('message.preview.download')}</LinkButton>
          </span>
        </div>
        <Look key={at.index} message={m} file={at} />
      </div>
    </Dialog>
  )
}

function Look({ message: m, file: a }: Props) {
  switch (shownAs(a)) {
    case 'image':
      return <Picture message={m} file={a} />
    case 'pdf':
      return <Pdf src={pathOfFile(m, a)} label={nameOfFile(a)} />
  }
  return <Text message={m} file={a} />
}

function Picture({ message: m, file: a }: Props) {
  const [broken, setBroken] = useState(false)
  if (broken) return <Notice tone="warn">{t('message.preview.broken')}</Notice>
  return <img class="inbox-preview-image" src={viewOfFile(m, a, 'image')} alt={nameOfFile(a)} onError={() => setBroken(true)} />
}

const most = 1024 * 1024 // bytes of a text that the server gives

function Text({ message: m, file: a }: Props) {
  const read = useRead(`file ${m.id} ${a.index}`, async () => (await fetched(viewOfFile(m, a, 'text'))).text())
  return (
    <Show of={read} lines={10}>{(text) => (
      <>
        <pre class="inbox-preview-text" dir="auto" tabIndex={0} role="region" aria-label={nameOfFile(a)}>{text}</pre>
        {a.size > most && <Notice>{t('message.first_shown', { size: bytes(most) })}</Notice>}
      </>
    )}</Show>
  )
}

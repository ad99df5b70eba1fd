// The files of a message: small pictures of them, a look at them, and ways to get them.
import { useState } from 'preact/hooks'
import { bytes, Icon, LinkButton, type IconName } from '../../ui'
import { t, tn } from '../../words'
import { lazy } from '../lazy'
import { nameOfFile, pathOfFile, shownAs, viewOfFile, type File, type Shown } from './files'
import { preview } from './preview_part'
import { pathOf } from './source'
import type { Detail } from './types'

const Preview = lazy(preview, (p) => p.Preview)

export function Attachments({ message: m }: { message: Detail }) {
  const [looked, setLooked] = useState<File>()
  const files = m.attachments
  if (files.length === 0) return null
  return (
    <section class="inbox-attachments" aria-label={t('message.attachments')}>
      {files.length > 1 && (
        <div class="inbox-attachments-head">
          <span class="small muted">{tn('message.attachments', files.length)}, {bytes(files.reduce((sum, a) => sum + a.size, 0))}</span>
          <LinkButton look="ghost" small icon="download" href={pathOf(m, 'attachments')} download>{t('message.attachments.all')}</LinkButton>
        </div>
      )}
      <ul class="inbox-files">
        {files.map((a) => <li key={a.index}><One message={m} file={a} onLook={() => setLooked(a)} /></li>)}
      </ul>
      {looked && <Preview message={m} file={looked} onClose={() => setLooked(undefined)} />}
    </section>
  )
}

const icons: Record<Shown, IconName> = { image: 'image', pdf: 'file', text: 'file' }

function One({ message: m, file: a, onLook }: { message: Detail; file: File; onLook: () => void }) {
  const as = shownAs(a), name = nameOfFile(a)
  const what = (
    <>
      {as === 'image' ? <Thumbnail message={m} file={a} /> : <Icon name={as ? icons[as] : 'clip'} />}
      <span class="inbox-file-name"><span class="truncate" dir="auto">{name}</span><span class="small muted nowrap">{bytes(a.size)}</span></span>
    </>
  )
  const download = { href: pathOfFile(m, a), download: a.filename || `attachment-${a.index + 1}` }
  if (!as) return <a class="inbox-file" {...download} title={name}>{what}<Icon name="download" /></a>
  return (
    <div class="inbox-file">
      <button type="button" aria-haspopup="dialog" onClick={onLook} title={t('message.attachment.preview', { name })}>{what}</button>
      <a {...download} aria-label={t('message.attachment.download', { name })} title={t('message.attachment.download', { name })}><Icon name="download" /></a>
    </div>
  )
}

const thumbnailed = 1024 * 1024 // bytes of a picture that is fetched before one asks for it

function Thumbnail({ message: m, file: a }: { message: Detail; file: File }) {
  const [broken, setBroken] = useState(a.size > thumbnailed)
  if (broken) return <Icon name="image" />
  return <img class="inbox-thumbnail" src={viewOfFile(m, a, 'image')} alt="" loading="lazy" decoding="async" width="36" height="36" onError={() => setBroken(true)} />
}

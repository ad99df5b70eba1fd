// Files that go with a message.
import { useRef, useState } from 'preact/hooks'
import type { ComponentChildren } from 'preact'
import { bytes, Icon, Notice } from '../../../ui'
import { language, t, tn } from '../../../words'
import { filesOf, type Draft } from './draft'

export const mostBytes = 25 * 1024 * 1024 // of text and files together

/** How many bytes of text and files a draft has. */
export function sizeOf(d: Draft): number {
  const { attached, images } = filesOf(d)
  return [...attached, ...images.map((i) => i.file)].reduce((sum, f) => sum + f.size, 0) + new Blob([d.text, d.html ?? '']).size
}

/** Names files in a sentence. */
export function list(files: string[]): string {
  return new Intl.ListFormat(language.value).format(files)
}

/** The file as send_email takes it. */
export function encode(file: File): Promise<{ filename: string; content: string; content_type: string }> {
  return new Promise((done, fail) => {
    const reader = new FileReader()
    reader.onload = () => done({ filename: file.name, content: String(reader.result).split(',')[1] ?? '', content_type: file.type || 'application/octet-stream' })
    reader.onerror = () => fail(new Error(t('compose.unreadable', { name: file.name })))
    reader.readAsDataURL(file)
  })
}

interface ListProps { files: File[]; fetching?: boolean; lost?: string[]; wrong?: string; onRemove: (file: File) => void; onForget: () => void }

export function FileList({ files, fetching, lost = [], wrong, onRemove, onForget }: ListProps) {
  if (files.length === 0 && !fetching && !wrong && lost.length === 0) return null
  return (
    <div class="compose-files">
      <ul class="inbox-files" aria-label={t('compose.attachments')}>
        {files.map((f, i) => (
          <li key={f.name + i}>
            <span class="compose-file">
              <Icon name="clip" />
              <span class="truncate" dir="auto">{f.name}</span>
              <span class="small muted nowrap">{bytes(f.size)}</span>
              <button type="button" aria-label={t('compose.remove', { name: f.name })} onClick={() => onRemove(f)}><Icon name="x" /></button>
            </span>
          </li>
        ))}
        {fetching && <li><span class="compose-file" role="status"><span class="spinner" /> {t('compose.adding')}</span></li>}
      </ul>
      {lost.length > 0 && (
        <Notice tone="warn">
          {tn('compose.not_kept', lost.length, { files: list(lost) })} <button type="button" class="inbox-link" onClick={onForget}>{tn('compose.without', lost.length)}</button>
        </Notice>
      )}
      {wrong && <span class="compose-wrong" role="alert">{wrong}</span>}
    </div>
  )
}

/** A button that asks for files. */
export function FilePicker({ onFiles }: { onFiles: (files: File[]) => void }) {
  const input = useRef<HTMLInputElement>(null)
  return (
    <>
      <button type="button" class="button ghost icon-only" aria-label={t('compose.attach')} title={t('compose.attach')} onClick={() => input.current?.click()}><Icon name="clip" /></button>
      <input ref={input} type="file" multiple hidden aria-label={t('compose.files')} onChange={(e) => {
        onFiles([...(e.currentTarget.files ?? [])])
        e.currentTarget.value = ''
      }} />
    </>
  )
}

/** Takes files that are dropped or pasted on what is within, unless the text has taken them. */
export function DropZone({ onFiles, children }: { onFiles: (files: File[]) => void; children: ComponentChildren }) {
  const [over, setOver] = useState(0)
  const has = (e: DragEvent) => e.dataTransfer?.types.includes('Files')
  return (
    <div class="compose-drop" onDragEnter={(e) => { if (has(e)) setOver((n) => n + 1) }} onDragLeave={(e) => { if (has(e)) setOver((n) => Math.max(0, n - 1)) }}
      onDragOver={(e) => { if (has(e)) e.preventDefault() }}
      onDrop={(e) => {
        setOver(0)
        if (!has(e) || e.defaultPrevented) return
        e.preventDefault()
        onFiles([...e.dataTransfer!.files])
      }}
      onPaste={(e) => {
        const files = [...(e.clipboardData?.files ?? [])]
        if (files.length === 0 || e.defaultPrevented) return
        e.preventDefault()
        onFiles(files)
      }}>
      {children}
      {over > 0 && <div class="compose-over"><Icon name="upload" /> {t('compose.drop')}</div>}
    </div>
  )
}

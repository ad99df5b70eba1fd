// Files that go with a message.
import { useRef, useState } from 'preact/hooks'
import type { ComponentChildren } from 'preact'
import { bytes, Icon, Notice } from '../../../ui'

export const mostBytes = 25 * 1024 * 1024 // of text and files together

export function sizeOf(files: File[], text: string): number {
  return files.reduce((sum, f) => sum + f.size, 0) + new Blob([text]).size
}

const names = new Intl.ListFormat('en')

/** Names files in a sentence. */
export function list(files: string[]): string {
  return names.format(files)
}

/** The file as send_email takes it. */
export function encode(file: File): Promise<{ filename: string; content: string; content_type: string }> {
  return new Promise((done, fail) => {
    const reader = new FileReader()
    reader.onload = () => done({ filename: file.name, content: String(reader.result).split(',')[1] ?? '', content_type: file.type || 'application/octet-stream' })
    reader.onerror = () => fail(new Error(`Couldn’t read ${file.name}. It may have been moved or changed. Attach it again.`))
    reader.readAsDataURL(file)
  })
}

interface ListProps { files: File[]; fetching?: boolean; lost?: string[]; wrong?: string; onRemove: (at: number) => void; onForget: () => void }

export function FileList({ files, fetching, lost = [], wrong, onRemove, onForget }: ListProps) {
  if (files.length === 0 && !fetching && !wrong && lost.length === 0) return null
  return (
    <div class="compose-files">
      <ul class="inbox-files" aria-label="Attachments">
        {files.map((f, i) => (
          <li key={f.name + i}>
            <span>
              <Icon name="clip" />
              <span class="truncate" dir="auto">{f.name}</span>
              <span class="small muted nowrap">{bytes(f.size)}</span>
              <button type="button" aria-label={'Remove ' + f.name} onClick={() => onRemove(i)}><Icon name="x" /></button>
            </span>
          </li>
        ))}
        {fetching && <li><span role="status"><span class="spinner" /> Adding attachments…</span></li>}
      </ul>
      {lost.length > 0 && (
        <Notice tone="warn">
          Your browser did not keep {list(lost)}. Attach {lost.length === 1 ? 'it' : 'them'} again. <button type="button" class="inbox-link" onClick={onForget}>Continue without {lost.length === 1 ? 'it' : 'them'}</button>
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
      <button type="button" class="button ghost icon-only" aria-label="Attach files" title="Attach files" onClick={() => input.current?.click()}><Icon name="clip" /></button>
      <input ref={input} type="file" multiple hidden aria-label="Files to attach" onChange={(e) => {
        onFiles([...(e.currentTarget.files ?? [])])
        e.currentTarget.value = ''
      }} />
    </>
  )
}

/** Takes files that are dropped or pasted on what is within. */
export function DropZone({ onFiles, children }: { onFiles: (files: File[]) => void; children: ComponentChildren }) {
  const [over, setOver] = useState(0)
  const has = (e: DragEvent) => e.dataTransfer?.types.includes('Files')
  return (
    <div class="compose-drop" onDragEnter={(e) => { if (has(e)) setOver((n) => n + 1) }} onDragLeave={(e) => { if (has(e)) setOver((n) => Math.max(0, n - 1)) }}
      onDragOver={(e) => { if (has(e)) e.preventDefault() }}
      onDrop={(e) => {
        if (!has(e)) return
        e.preventDefault()
        setOver(0)
        onFiles([...e.dataTransfer!.files])
      }}
      onPaste={(e) => {
        const files = [...(e.clipboardData?.files ?? [])]
        if (files.length === 0) return
        e.preventDefault()
        onFiles(files)
      }}>
      {children}
      {over > 0 && <div class="compose-over"><Icon name="upload" /> Drop files to attach</div>}
    </div>
  )
}

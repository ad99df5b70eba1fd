// What a message says. HTML is shown in a frame that can do nothing; plain text by the page itself.
import { useState } from 'preact/hooks'
import { fetched } from '../../api/client'
import { useRead } from '../../api/query'
import { theme } from '../../theme'
import { Button, Icon, Notice } from '../../ui'
import { rich, t, tn } from '../../words'
import { inFolder } from './actions'
import { webAddress } from './compose/quote'
import { useFit } from './frame'
import type { Detail } from './types'
import { rawOf } from './source'

export function Body({ message: m }: { message: Detail }) {
  const [plain, setPlain] = useState(false)
  const html = m.html !== null && !plain
  return (
    <>
      {m.truncated && <div class="inbox-strip"><Notice tone="info">{rich('message.truncated', { link: <a href={rawOf(m)} download>{t('message.truncated.link')}</a> })}</Notice></div>}
      {html ? <Frame message={m} onPlain={m.text !== null ? () => setPlain(true) : undefined} /> : (
        <>
          {m.html !== null && <div class="inbox-strip"><button type="button" class="inbox-link" onClick={() => setPlain(false)}>{t('message.show_html')}</button></div>}
          <Text text={m.text ?? ''} />
        </>
      )}
    </>
  )
}

interface Images { held: number; trackers: number }

function Frame({ message: m, onPlain }: { message: Detail; onPlain?: () => void }) {
  const [images, setImages] = useState(false)
  const path = `/session/view/${m.user_id}/${m.uid}?images=`
  const folder = inFolder(m)
  const look = `&theme=${theme.value}${folder ? '&folder=' + encodeURIComponent(folder) : ''}`
  const held = useRead<Images>('images of ' + m.id, async () => {
    const { headers } = await fetched(path + '0' + look, { method: 'HEAD' })
    return { held: Number(headers.get('X-Images-Held') ?? 0), trackers: Number(headers.get('X-Images-Trackers') ?? 0) }
  })
  const frame = useFit()
  const { held: n = 0, trackers = 0 } = held.data ?? {}
  const show = n > 0 && !images
  return (
    <>
      {(show || trackers > 0 || onPlain) && (
        <div class="inbox-strip stacks">
          {(show || trackers > 0) && <Icon name="shield" />}
          <span class="grow">
            {show && tn('message.images', n) + ' '}
            {trackers > 0 && tn('message.trackers', trackers)}
          </span>
          {show && <Button small icon="eye" onClick={() => setImages(true)}>{t('message.show_images')}</Button>}
          {onPlain && <button type="button" class="inbox-link" onClick={onPlain}>{t('message.show_plain')}</button>}
        </div>
      )}
      <iframe class="inbox-frame" key={`${images}${theme.value}`} ref={frame} title={t('message.body')} sandbox="allow-same-origin allow-popups allow-popups-to-escape-sandbox" src={path + (images ? '1' : '0') + look} />
    </>
  )
}

interface Block { quoted: boolean; text: string }

/** Splits a text where quoted lines begin and end. */
function blocksOf(text: string): Block[] {
  const blocks: Block[] = []
  for (const line of text.replace(/\r\n?/g, '\n').trimEnd().split('\n')) {
    const quoted = line.startsWith('>')
    const last = blocks.at(-1)
    if (last && last.quoted === quoted) last.text += '\n' + line
    else blocks.push({ quoted, text: line })
  }
  return blocks
}

const folded = 4 // lines of a quotation that stay open

function Text({ text }: { text: string }) {
  if (text.trim() === '') return <p class="inbox-text muted">{t('message.no_text')}</p>
  return (
    <div class="inbox-text">
      {blocksOf(text).map((b, i) => {
        const lines = b.text.split('\n').length
        if (!b.quoted) return <div key={i} dir="auto"><Linked text={b.text} /></div>
        const quote = <blockquote dir="auto"><Linked text={b.text.replace(/^> ?/gm, '')} /></blockquote>
        return lines <= folded ? <div key={i}>{quote}</div> : <details key={i}><summary>{tn('message.quoted', lines)}</summary>{quote}</details>
      })}
    </div>
  )
}

function Linked({ text }: { text: string }) {
  return <>{text.split(webAddress).map((part, i) => (i % 2 === 1 ? <a key={i} href={part} target="_blank" rel="noopener noreferrer nofollow">{part}</a> : part))}</>
}

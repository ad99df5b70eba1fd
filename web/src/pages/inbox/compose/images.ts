// Images that stand in the text of a message: attachments with a Content-ID.
import { change, draftOf, freeName, randomHex } from './draft'

const mostBytes = 5 * 1024 * 1024 // of one image
const widest = 640 // pixels at which an image is shown at first
const kinds: Record<string, string> = { 'image/png': 'png', 'image/jpeg': 'jpg', 'image/gif': 'gif', 'image/webp': 'webp' }

/** Whether a file can stand in the text. Others go with the message as attachments. */
export function fits(file: File): boolean {
  return file.type in kinds && file.size > 0 && file.size <= mostBytes
}

/** Puts an image with the files of a draft, and gives its Content-ID. */
export function embed(key: string, file: File): string {
  const d = draftOf(key)
  const id = randomHex(8)
  const name = freeName(d, file.name && file.name !== 'image.png' ? file.name : `image-${id.slice(0, 6)}.${kinds[file.type]}`)
  const cid = id + '@inline'
  change(key, { files: [...d.files, new File([file], name, { type: file.type })], inline: { ...d.inline, [cid]: name } })
  return cid
}

/** The image that a data: address holds; undefined if it holds none that can stand in the text. */
export function fileOfData(address: string): File | undefined {
  const head = /^data:(image\/\w+);base64,/i.exec(address)
  if (!head || address.length > mostBytes * 1.4) return undefined
  try {
    const type = head[1]!.toLowerCase()
    const file = new File([Uint8Array.from(atob(address.slice(head[0].length).replace(/\s/g, '')), (c) => c.charCodeAt(0))], 'image.png', { type })
    return fits(file) ? file : undefined
  } catch {
    return undefined // it is no base64
  }
}

/** The width at which an image is shown at first; 0 if it cannot be read. */
export async function widthOf(file: File): Promise<number> {
  try {
    const image = await createImageBitmap(file)
    const { width } = image
    image.close()
    return Math.min(width, widest)
  } catch {
    return 0
  }
}

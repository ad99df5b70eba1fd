import { encode } from 'uqr'

/** A text as a QR code. */
export function Qr({ text, label }: { text: string; label: string }) {
  const { data, size } = encode(text, { border: 2 })
  let path = ''
  data.forEach((line, y) => line.forEach((dark, x) => { if (dark) path += `M${x} ${y}h1v1h-1z` }))
  return <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={label} shape-rendering="crispEdges"><path d={path} fill="#000" /></svg>
}

import type { AriaAttributes, ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { barred } from '../access'
import { failed } from './toast'
import { Icon, type IconName } from './icons'

type Look = 'primary' | 'danger' | 'danger-solid' | 'ghost' | 'plain'

interface ButtonProps extends AriaAttributes {
  id?: string
  title?: string
  look?: Look
  small?: boolean
  icon?: IconName
  busy?: boolean
  disabled?: boolean
  type?: 'button' | 'submit'
  /** What it does. While a promise that it gives is open the button waits; why it failed is told in a toast. */
  onClick?: (e: MouseEvent) => unknown
  children?: ComponentChildren
}

export function Button({ look = 'plain', small, icon, busy, disabled, type = 'button', onClick, children, ...rest }: ButtonProps) {
  const [waits, setWaits] = useState(false)
  const wrong = useRef<(() => void) | undefined>(undefined) // takes away why it failed the last time
  const holds = busy || waits
  const run = async (e: MouseEvent) => {
    if (holds) return
    const answer = onClick?.(e)
    if (!(answer instanceof Promise)) return
    setWaits(true)
    wrong.current?.()
    await answer.catch((error) => { wrong.current = failed(error) })
    setWaits(false)
  }
  return (
    <button {...rest} type={type} class={`button ${look} ${small ? 'small' : ''} ${children ? '' : 'icon-only'}`} disabled={disabled} aria-busy={holds} onClick={onClick && run}>
      {holds ? <span class="spinner" /> : icon && <Icon name={icon} />}
      {children}
    </button>
  )
}

/** A button that shows only an icon; the label says what it does. */
export function IconButton({ label, ...rest }: ButtonProps & { label: string; icon: IconName }) {
  return <Button {...rest} aria-label={label} title={label} />
}

/** A link that looks like a button. There is none to a place that the viewer’s role may not open. */
export function LinkButton({ href, look = 'plain', small, icon, children, ...rest }: { href: string; look?: Look; small?: boolean; icon?: IconName; children: ComponentChildren; download?: boolean; target?: string; rel?: string }) {
  if (barred(href)) return null
  return (
    <a {...rest} href={href} class={`button ${look} ${small ? 'small' : ''}`}>
      {icon && <Icon name={icon} />}
      {children}
    </a>
  )
}

import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { setTitle } from '../../title'
import { Card, Toasts } from '../../ui'

/** What stands alone on the screen, without the navigation. */
export function Frame({ title, intro, children }: { title: string; intro?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => setTitle(title), [title])
  return (
    <main class="gate">
      <div>
        <span class="brand"><img src={ICON} alt="" /> Mailstead</span>
        <Card>
          <div class="stack-tight"><h1>{title}</h1>{intro && <p class="muted">{intro}</p>}</div>
          {children}
        </Card>
      </div>
      <Toasts />
    </main>
  )
}

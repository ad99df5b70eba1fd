// What the page that is open shows in the navigation, below its own place there.
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'

export const aside = signal<ComponentChildren>(null)

// What concerns the whole server is for those alone who signed in a moment ago. Whoever did so
// earlier is asked to sign in again; then what they wanted is asked for once more.
import { signal } from '@preact/signals'

/** Set while the viewer is asked to sign in again: takes whether they did. */
export const asked = signal<((done: boolean) => void) | undefined>(undefined)

let answer: Promise<boolean> | undefined

/**
 * Has the viewer sign in again, and tells whether they did. Who asks meanwhile gets the same
 * answer.
 */
export function signedInAgain(): Promise<boolean> {
  return answer ??= new Promise<boolean>((done) => { asked.value = done }).finally(() => {
    answer = undefined
    asked.value = undefined
  })
}

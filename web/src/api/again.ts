// Reads that failed for a reason that passes are done again automatically: those that came too
// often when the server says, a few times; those that did not reach the server until they do.
import { ApiError } from './client'

const most = 5 // in a row, of those that came too often
const shortest = 1, longest = 90 // seconds
const first = 2, last = 30 // seconds between tries to reach the server

/** One read that may have to wait. */
export class Again {
  #timer: ReturnType<typeof setTimeout> | undefined
  #tries = 0
  #asked = false // to wait, by the server
  #online: (() => void) | undefined

  /**
   * Tells whether it waits because the server asked it to: reading before would only be refused as
   * well.
   */
  get waits(): boolean {
    return this.#timer !== undefined && this.#asked
  }

  /** Does it again later, if the error says no more than to wait. */
  after(error: unknown, run: () => unknown) {
    this.stop()
    if (!(error instanceof ApiError)) return
    this.#asked = error.status === 429
    const lost = error.code === 'offline'
    if (!lost && (!this.#asked || this.#tries === most)) return
    const wait = 1000 * (lost ? Math.min(last, first * 2 ** Math.min(this.#tries, 10)) : Math.min(longest, Math.max(shortest, error.retryAfter)))
    this.#tries++
    error.again = Date.now() + wait
    const now = () => {
      this.stop()
      void run()
    }
    this.#timer = setTimeout(now, wait)
    if (lost) addEventListener('online', this.#online = now)
  }

  /** Waits no longer. */
  stop() {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#online) removeEventListener('online', this.#online)
    this.#online = undefined
  }

  /** Begins to count anew. */
  done() {
    this.stop()
    this.#tries = 0
  }
}

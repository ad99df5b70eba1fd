// Reads that the server refuses for coming too often are done again by themselves, when it says and a few times.
import { ApiError } from './client'

const most = 5 // in a row
const shortest = 1, longest = 90 // seconds

/** One read that may have to wait. */
export class Again {
  #timer: ReturnType<typeof setTimeout> | undefined
  #tries = 0

  /** Tells whether it waits: asking before would only be refused as well. */
  get waits(): boolean {
    return this.#timer !== undefined
  }

  /** Does it again later, if the error says no more than to wait. */
  after(error: unknown, run: () => unknown) {
    this.stop()
    if (!(error instanceof ApiError) || error.status !== 429 || this.#tries === most) return
    this.#tries++
    const wait = 1000 * Math.min(longest, Math.max(shortest, error.retryAfter))
    error.again = Date.now() + wait
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      void run()
    }, wait)
  }

  /** Waits no longer. */
  stop() {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  /** Begins to count anew. */
  done() {
    this.stop()
    this.#tries = 0
  }
}

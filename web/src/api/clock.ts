// The server's clock, as far as its answers tell it: those of browsers may differ.

let ahead = 0 // ms that the server's clock is ahead of the browser's

/** The time by the server's clock, in ms since 1970. */
export function serverNow(): number {
  return Date.now() + ahead
}

/** The day that was so many days ago, in UTC by the server's clock, as yyyy-mm-dd. */
export function daysAgo(days: number): string {
  return new Date(serverNow() - days * 86_400_000).toISOString().slice(0, 10)
}

let least = -Infinity, most = Infinity // ms that the server's clock is ahead, as far as the answers tell

/**
 * Sets the clock by an answer. The server wrote its time, in whole seconds, at some moment between
 * the request and the answer. These may be many seconds apart where network or browser are slow, so
 * an answer gives bounds only, and what all of them leave counts; a clock that was set begins anew.
 */
export function setClock(date: string | null, asked: number, answered: number) {
  const said = Date.parse(date ?? '')
  if (!said) return
  const from = said - answered, to = said + 1000 - asked
  const fits = from <= most && to >= least
  least = fits ? Math.max(least, from) : from
  most = fits ? Math.min(most, to) : to
  ahead = least > 1000 || most < -1000 ? Math.round((least + most) / 2) : 0
}

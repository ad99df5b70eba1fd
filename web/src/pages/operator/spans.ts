// Spans of time, and settings that are such.
import { plural } from '../../ui'

/** The units of durations, the largest first. */
export const units: [name: string, letter: string, ms: number][] = [['day', 'd', 86_400_000], ['hour', 'h', 3_600_000], ['minute', 'm', 60_000], ['second', 's', 1000]]

/** A span in its two largest units, such as "3 days 4 hours". */
export function spanOf(ms: number): string {
  const first = units.findIndex(([, , size]) => ms >= size)
  if (first < 0) return '0 seconds'
  const [name, , size] = units[first]!, next = units[first + 1]
  const rest = next ? Math.floor((ms % size) / next[2]) : 0
  return plural(Math.floor(ms / size), name) + (rest > 0 ? ' ' + plural(rest, next![0]) : '')
}

/** How often something is done with a span between, such as "every 3 days" or "every hour". */
export function everyOf(ms: number): string {
  return 'every ' + spanOf(ms).replace(/^1 (?=[a-z]+$)/, '')
}

/** The milliseconds of a setting such as "7d", "90m" or "1h30m0s"; 0 for an empty one. */
export function spanIn(setting: string): number {
  let ms = 0
  for (const [, n, letter] of setting.matchAll(/([\d.]+)(ms|[dhms])/g)) ms += Number(n) * (units.find((u) => u[1] === letter)?.[2] ?? 1)
  return ms
}

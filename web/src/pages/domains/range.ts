// The days that reports are shown for.
import { daysAgo } from '../../api/clock'

export interface Range { days: number; from: string; to: string; org: string }

/** The last days, today with them. */
export function rangeOf(days: number, org: string): Range {
  return { days, from: daysAgo(days - 1), to: daysAgo(0), org }
}

/** The days of a range, each as yyyy-mm-dd. */
export function daysOf(range: Range): string[] {
  const first = Date.parse(range.from + 'T00:00:00Z')
  return Array.from({ length: range.days }, (_, i) => new Date(first + i * 86_400_000).toISOString().slice(0, 10))
}

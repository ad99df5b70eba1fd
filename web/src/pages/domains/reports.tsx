// What others report: whether mail in the domain's name passed their checks, and whether it came encrypted.
import { useState } from 'preact/hooks'
import { Select, TextField } from '../../ui'
import { DmarcReports } from './dmarc-reports'
import type { TabProps } from './domain'
import { TlsReports } from './tls-reports'

export interface Range { days: number; from: string; to: string; org: string }

function rangeOf(days: number, org: string): Range {
  const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10)
  return { days, from: day(days - 1), to: day(0), org }
}

/** The days of a range, each as yyyy-mm-dd. */
export function daysOf(range: Range): string[] {
  const first = Date.parse(range.from + 'T00:00:00Z')
  return Array.from({ length: range.days }, (_, i) => new Date(first + i * 86_400_000).toISOString().slice(0, 10))
}

export function Reports({ domain: d }: TabProps) {
  const [days, setDays] = useState('30')
  const [org, setOrg] = useState('')
  const range = rangeOf(Number(days), org.trim())
  return (
    <>
      <div class="domains-filters">
        <Select label="Time" value={days} onChange={setDays} options={[['7', 'The last 7 days'], ['30', 'The last 30 days'], ['90', 'The last 90 days']]} />
        <TextField label="Reported by" type="search" value={org} onInput={setOrg} placeholder="google.com" />
      </div>
      <DmarcReports domain={d} range={range} />
      <TlsReports domain={d} range={range} />
    </>
  )
}

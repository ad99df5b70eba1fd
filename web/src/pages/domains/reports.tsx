// What others report: whether mail in the domain's name passed their checks, and whether it came encrypted.
import { useState } from 'preact/hooks'
import { Select, TextField } from '../../ui'
import { DmarcReports } from './dmarc-reports'
import { rangeOf } from './range'
import { TlsReports } from './tls-reports'
import type { TabProps } from './types'

export function Reports({ domain: d }: TabProps) {
  const [days, setDays] = useState('30')
  const [org, setOrg] = useState('')
  const range = rangeOf(Number(days), org.trim())
  return (
    <>
      <div class="filters">
        <Select label="Period" value={days} onChange={setDays} options={[['7', 'Last 7 days'], ['30', 'Last 30 days'], ['90', 'Last 90 days']]} />
        <TextField label="Reporter" type="search" value={org} onInput={setOrg} placeholder="google.com" />
      </div>
      <DmarcReports domain={d} range={range} />
      <TlsReports domain={d} range={range} />
    </>
  )
}

import { Badge, Icon, theirs, Time } from '../../ui'

/** One report in a list of them. */
export function ReportRow({ org, begin, text, bad, trusted, onOpen }: { org: string; begin: string; text: string; bad?: string; trusted: boolean; onOpen: () => void }) {
  return (
    <button type="button" class="line domains-report" onClick={onOpen}>
      <span class="grow truncate"><strong>{theirs(org)}</strong>{!trusted && <span class="muted small"> unverified reporter</span>}</span>
      <span class="small nowrap">{text}</span>
      {bad && <Badge tone="bad">{bad}</Badge>}
      <span class="muted small nowrap"><Time of={begin} form="date" /></span>
      <Icon name="next" />
    </button>
  )
}

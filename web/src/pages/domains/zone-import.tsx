// Importing a zone file: what would come of it is shown before anything is changed.
import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { call, type Input, type Schemas } from '../../api/client'
import { plain } from '../../api/wording'
import { Button, bytes, Check, count, Dialog, failed, Form, Icon, IconButton, LongList, Notice, plural, TextArea, TextField, told } from '../../ui'
import type { Domain } from './words'
import { undoable } from './zone-history'
import { keyOf, shown, whole, type RecordSet } from './zone-values'

type Plan = Schemas['ZoneImported']
type Skipped = Plan['skipped'][number]
type Excluded = NonNullable<Input<'import_zone'>['exclude']>

const largest = 2 << 20 // bytes of a zone file

/** Why records are skipped, in the order in which the reasons are shown. */
const reasons: Record<string, (domain: string) => string> = {
  here: (d) => `The website address of ${d} leads to this server, so the file’s addresses are not used.`,
  proxied: () => 'These are addresses of a proxy, such as Cloudflare’s. They stop serving your website once its DNS is here. Add the address of the server behind the proxy instead.',
  unknown_type: () => 'Mailstead doesn’t support records of these types.',
  outside: (d) => `These names are not part of ${d}.`,
  cname_at_apex: (d) => `${d} itself can’t be a CNAME.`,
  mx: (d) => `Mail for ${d} is delivered to Mailstead.`,
  managed: () => 'Mailstead manages these records.',
  nameservers: () => 'The zone has its own nameservers and SOA record.',
  dnssec: () => 'Mailstead signs the zone with its own keys.',
  excluded: () => 'You left these out.',
}

/** Names that are to be left out: each may have a type behind it. */
function excludedIn(text: string): Excluded {
  return text.split(/[,;\n]/).map((part) => part.trim().split(/\s+/)).filter(([name]) => name).map(([name, type]) => ({ name: name!, type: type?.toUpperCase() }))
}

interface Source { text: string; file?: string }

export function ImportDialog({ domain: d, onClose, onDone }: { domain: Domain; onClose: () => void; onDone: () => Promise<void> }) {
  const [source, setSource] = useState<Source>({ text: '' })
  const [without, setWithout] = useState('')
  const [replace, setReplace] = useState(false)
  const [accept, setAccept] = useState<string[]>([])
  const [left, setLeft] = useState<Set<string>>(new Set())
  const [plan, setPlan] = useState<Plan>()
  const look = async (more: { replace?: boolean; accept?: string[] } = {}) => {
    setPlan(await call('import_zone', { domain_id: d.id, zone_file: source.text, exclude: excludedIn(without), replace, accept, ...more, dry_run: true }))
  }
  const run = async () => {
    const exclude = plan!.records.filter((r) => left.has(keyOf(r))).map((r) => ({ name: r.name, type: r.type }))
    const done = await call('import_zone', { domain_id: d.id, zone_file: source.text, exclude: [...excludedIn(without), ...exclude], replace, accept })
    await onDone()
    if (done.imported + done.merged.length === 0) told('Nothing was imported.')
    else undoable(d, done.imported > 0 ? `${plural(done.imported, 'value')} imported.` : 'Records merged.', (c) => c.kind === 'import', onDone)
  }
  return (
    <Dialog title="Import zone file" wide unsaved={source.text !== ''} onClose={onClose}>
      {plan ? (
        <Review plan={plan} domain={d} left={left} onLeft={setLeft} onImport={run} onBack={() => { setPlan(undefined); setLeft(new Set()) }}
          replace={replace} onReplace={async (on) => { await look({ replace: on }); setReplace(on) }}
          accepted={accept.length > 0} onAccept={async (addresses) => { await look({ accept: addresses }); setAccept(addresses) }} />
      ) : (
        <Form onSubmit={() => look()} submit="Check file" disabled={source.text.trim() === ''}>
          <p class="muted">Most DNS providers can export a zone file. Nothing is changed before you confirm.</p>
          <Choose source={source} onChange={setSource} />
          <TextField label="Skip names" name="exclude" value={without} onInput={setWithout} placeholder="old, _sip._tcp SRV" hint="Separate names with commas. Add a type to skip only that type." mono />
        </Form>
      )}
    </Dialog>
  )
}

function Choose({ source, onChange }: { source: Source; onChange: (source: Source) => void }) {
  const input = useRef<HTMLInputElement>(null)
  const take = async (file: File | undefined) => {
    if (!file) return
    if (file.size > largest) throw new Error(`${file.name} has ${bytes(file.size)}. A zone file can have at most ${bytes(largest)}.`)
    onChange({ text: await file.text(), file: `${file.name}, ${bytes(file.size)}` })
  }
  return (
    <div class="stack-tight">
      <div>
        <Button icon="upload" onClick={() => input.current?.click()}>Choose file</Button>
        <input ref={input} type="file" hidden aria-label="Zone file to import" accept=".zone,.txt,.db,.bind,text/dns,text/plain" onChange={(e) => {
          void take(e.currentTarget.files?.[0]).catch(failed)
          e.currentTarget.value = ''
        }} />
      </div>
      {source.file
        ? <div class="row"><Icon name="clip" /> <span>{source.file}</span> <IconButton look="ghost" small icon="x" label="Remove file" onClick={() => onChange({ text: '' })} /></div>
        : <TextArea label="Or paste it here" name="zone_file" value={source.text} onInput={(text) => onChange({ text })} rows={9} mono autoFocus placeholder={'www  300 IN A   192.0.2.7\n@    300 IN MX  10 mx.example.net.'} />}
    </div>
  )
}

interface ReviewProps {
  plan: Plan; domain: Domain; left: Set<string>; onLeft: (left: Set<string>) => void; onImport: () => Promise<void>; onBack: () => void
  replace: boolean; onReplace: (on: boolean) => Promise<void>; accepted: boolean; onAccept: (addresses: string[]) => Promise<void>
}

function Review({ plan, domain: d, left, onLeft, onImport, onBack, replace, onReplace, accepted, onAccept }: ReviewProps) {
  const chosen = plan.records.filter((r) => !left.has(keyOf(r)))
  const values = chosen.reduce((sum, r) => sum + r.values.length, 0)
  const conflicts = plan.skipped.filter((s) => codeOf(s) === 'exists')
  const proxied = plan.skipped.filter((s) => codeOf(s) === 'proxied').map((s) => s.value)
  const pick = (r: RecordSet, on: boolean) => {
    const next = new Set(left)
    if (on) next.delete(keyOf(r))
    else next.add(keyOf(r))
    onLeft(next)
  }
  return (
    <Form onSubmit={onImport} submit={values > 0 ? `Import ${plural(values, 'value')}` : 'Import'} disabled={values + plan.merged.length === 0} actions={<Button onClick={onBack}>Back</Button>}>
      {plan.records.length + plan.merged.length === 0 && <Notice>There is nothing to import: these records are here already, or they are skipped.</Notice>}
      {plan.records.length > 0 && (
        <Section title={`To add: ${plural(values, 'value')}`} note="Clear a box to leave records out.">
          <Box label="Records to import" items={plan.records} idOf={keyOf} row={(r) => (
            <label class="line zone-plan">
              <input type="checkbox" class="zone-tick" checked={!left.has(keyOf(r))} onChange={(e) => pick(r, e.currentTarget.checked)} />
              <Plain name={r.name} type={r.type} value={r.values.map((v) => shown(r.type, v)).join(', ')} />
            </label>
          )} />
        </Section>
      )}
      {plan.merged.length > 0 && (
        <Section title="To merge" note="What the file has is added to these records, which Mailstead manages.">
          <div class="rows domains-boxed">{plan.merged.map((m) => <div key={keyOf(m)} class="line zone-merged"><code class="zone-name">{m.name}</code><span class="mono">{m.type}</span><code class="muted">{shown(m.type, m.value)}</code></div>)}</div>
        </Section>
      )}
      {(conflicts.length > 0 || replace) && (
        <Section title={conflicts.length > 0 ? `Conflicts: ${plural(conflicts.length, 'record')}` : 'Conflicts'} note="You already have other records with these names and types.">
          <Check checked={replace} onChange={(on) => void onReplace(on).catch(failed)} label="Replace my records with those of the file" />
          {conflicts.length > 0 && <SkippedBox label="Conflicts" items={conflicts} />}
        </Section>
      )}
      {(plan.skipped.length > conflicts.length || accepted) && (
        <Section title={`To skip: ${plural(plan.skipped.length - conflicts.length, 'record')}`}>
          {(proxied.length > 0 || accepted) && <Check checked={accepted} onChange={(on) => void onAccept(on ? proxied : []).catch(failed)} label="Import proxy addresses anyway" />}
          {byReason(plan.skipped, d.domain).map(([reason, items]) => <div key={reason} class="stack-tight"><p class="small">{reason}</p><SkippedBox label={reason} items={items} /></div>)}
        </Section>
      )}
    </Form>
  )
}

function codeOf(s: Skipped): string {
  return s.reason.split(':', 1)[0]!
}

/** Skipped records by why, without those that conflict. */
function byReason(skipped: Skipped[], domain: string): [string, Skipped[]][] {
  const groups = new Map<string, Skipped[]>()
  for (const s of skipped) {
    const code = codeOf(s)
    if (code === 'exists') continue
    const reason = reasons[code]?.(domain) ?? plain(s.reason.slice(code.length + 1).trim()) ?? 'These records can’t be imported.'
    groups.set(reason, [...groups.get(reason) ?? [], s])
  }
  const known = Object.values(reasons).map((of) => of(domain))
  return [...groups].sort(([a], [b]) => known.indexOf(a) - known.indexOf(b))
}

function Section({ title, note, children }: { title: string; note?: string; children: ComponentChildren }) {
  return <section class="stack-tight"><h3>{title}</h3>{note && <p class="muted small">{note}</p>}{children}</section>
}

function Box<T>({ label, items, idOf, row }: { label: string; items: T[]; idOf: (item: T) => string; row: (item: T) => ComponentChildren }) {
  return <div class="zone-box" tabIndex={0} role="region" aria-label={`${label}, ${count(items.length)}`}><LongList pages={whole(items)} idOf={idOf} height={34} narrowHeight={40} label={label} row={row} empty={null} /></div>
}

function SkippedBox({ label, items }: { label: string; items: Skipped[] }) {
  return <Box label={label} items={items} idOf={(s) => keyOf(s) + s.value} row={(s) => <div class="line zone-plan"><Plain name={s.name} type={s.type} value={shown(s.type, s.value)} /></div>} />
}

function Plain({ name, type, value }: { name: string; type: string; value: string }) {
  return <><code class="zone-name truncate" title={name}>{name}</code><span class="mono">{type}</span><code class="truncate muted" title={value}>{value}</code></>
}

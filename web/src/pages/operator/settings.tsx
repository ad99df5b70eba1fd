// The settings of the server: what holds, where it comes from, and what it can be changed to.
import { useState } from 'preact/hooks'
import { call } from '../../api/client'
import { useQuery } from '../../api/query'
import { capital } from '../../api/wording'
import { params, setParams } from '../../router'
import { Button, Card, Empty, Notice, Page, SaveArea, SearchField, Select, Show, told } from '../../ui'
import { EntryList, Test } from './entries'
import { draftOf, entryOf, fits, groupsOf, isFixed, lists, nameOf, originOf, valueOf, written, type Draft, type Group, type Setting, type Value } from './setting'
import { choiceOf, SecretState, ValueField } from './setting-field'

export function Settings() {
  const settings = useQuery('list_settings', {}, { kinds: [] })
  return (
    <Page title="Settings" intro="What this server is set to, and where each value comes from. Changes here take effect at once.">
      <Show of={settings} lines={8}>{({ data }) => <All settings={data} reload={settings.reload} />}</Show>
    </Page>
  )
}

const shows: [string, string][] = [['', 'All settings'], ['here', 'Can be changed here'], ['set', 'Not the default']]

function isShown(s: Setting, show: string): boolean {
  if (show === 'here') return s.editable && !isFixed(s)
  return show !== 'set' || s.source !== 'default'
}

function All({ settings, reload }: { settings: Setting[]; reload: () => Promise<void> }) {
  const q = (params.value.get('q') ?? '').trim(), show = params.value.get('show') ?? '', only = params.value.get('group') ?? ''
  const [drafts, setDrafts] = useState<Record<string, Draft>>({})
  const all = groupsOf(settings)
  const filtered = q !== '' || show !== ''
  const groups = all.filter((g) => only === '' || g.id === only)
    .map((g) => ({ ...g, shown: g.settings.filter((s) => isShown(s, show) && (q === '' || fits(s, g.title, q))) }))
    .filter((g) => g.shown.length > 0 || !filtered)
  const edit = (s: Setting, draft: Draft) => setDrafts(({ [s.key]: _, ...rest }) => draft === draftOf(s.type, s.value as Value) ? rest : { ...rest, [s.key]: draft })
  const save = async () => {
    const values = Object.fromEntries(Object.entries(drafts).map(([key, draft]) => [key, valueOf(settings.find((s) => s.key === key)!.type, draft)]))
    await call('update_settings', { values })
    await reload()
    setDrafts((all) => Object.fromEntries(Object.entries(all).filter(([key, draft]) => draft !== drafts[key]))) // what was typed meanwhile stays
    return 'Saved. The changes are in force.'
  }
  return (
    <SaveArea at="/settings" parts={[{ changed: Object.keys(drafts).length > 0, save, reset: () => setDrafts({}) }]} reveal={clear}>
      <div class="list-bar">
        <SearchField label="Search settings" />
        <Select label="Group" hideLabel value={only} onChange={(group) => setParams({ group })} options={[['', 'All groups'], ...all.map((g) => [g.id, g.title] as const)]} />
        <Select label="Show" hideLabel value={show} onChange={(show) => setParams({ show })} options={shows} />
      </div>
      {groups.length === 0 && <Card><Empty icon="search" title="No settings match" action={<Button onClick={clear}>Clear filters</Button>} /></Card>}
      {groups.map((g) => <GroupCard key={g.id} of={g} shown={g.shown} all={settings} drafts={drafts} onEdit={edit} reload={reload} filtered={filtered} />)}
    </SaveArea>
  )
}

function clear() {
  setParams({ q: '', show: '', group: '' })
}

interface GroupProps { of: Group; shown: Setting[]; all: Setting[]; drafts: Record<string, Draft>; onEdit: (s: Setting, draft: Draft) => void; reload: () => Promise<void>; filtered: boolean }

function GroupCard({ of: g, shown, all, drafts, onEdit, reload, filtered }: GroupProps) {
  const list = lists.includes(g.id) || g.id === 'registrar' ? g.id : undefined
  const rows = shown.filter((s) => !list || entryOf(s.key)?.list !== list)
  const inRows = rows.length > 0 && <ul class="settings-list">{rows.map((s) => <Row key={s.key} of={s} draft={drafts[s.key]} onEdit={(draft) => onEdit(s, draft)} reload={reload} />)}</ul>
  if (list) {
    return (
      <>
        <EntryList list={list} title={g.title} note={g.note} shown={shown} all={all} reload={reload} filtered={filtered} />
        {inRows && <Card flush>{inRows}</Card>}
      </>
    )
  }
  return <Card flush title={g.title} note={g.note}>{inRows}</Card>
}

interface RowProps { of: Setting; draft: Draft | undefined; onEdit: (draft: Draft) => void; reload: () => Promise<void> }

function Row({ of: s, draft, onEdit, reload }: RowProps) {
  const name = nameOf(s.key), value = s.value as Value
  const open = s.editable && !isFixed(s)
  const shown = draft === undefined ? draftOf(s.type, value) : draft === null ? draftOf(s.type, s.default as Value) : draft
  const drop = async () => {
    await call('update_settings', { values: { [s.key]: null } })
    await reload()
    told('The stored value was removed.')
  }
  return (
    <li class={'settings-row' + (draft === undefined ? '' : ' changed')}>
      <div class="settings-about">
        <div><strong>{name}</strong> <code class="muted small">{s.key}</code></div>
        {s.description.toLowerCase() !== name.toLowerCase() && <p class="muted small">{capital(s.description)}</p>}
        <p class="small settings-origin"><Origin of={s} draft={draft} onEdit={onEdit} /></p>
        {s.ignored && <Notice tone="warn" title="The stored value is ignored.">{capital(s.ignored)}. <Button small onClick={drop}>Remove it</Button></Notice>}
      </div>
      <div class="stack-tight">
        {open ? <ValueField label={name} name={s.key} type={s.type} value={shown} onChange={onEdit} hideLabel none={s.default === null ? 'Not set' : undefined} hint={s.key === 'alerts.url' && value ? 'Shown without user name and query. Enter it whole to change it.' : undefined} placeholder={written(s.default as Value)[0] ?? 'Not set'} /> : <Fixed of={s} />}
        {s.key === 'alerts.url' && shown !== '' && <Test label="Send a test alert" text="Send a test alert" small of={{ key: s.key, ...(draft === undefined ? {} : { values: { [s.key]: valueOf(s.type, draft) } }) }} />}
      </div>
    </li>
  )
}

/** Where a value comes from, what the default is, and how to get back to it. */
function Origin({ of: s, draft, onEdit }: { of: Setting; draft: Draft | undefined; onEdit: (draft: Draft) => void }) {
  if (draft === null) return <>The default, once you save. <button type="button" class="settings-keep" onClick={() => onEdit(draftOf(s.type, s.value as Value))}>Keep the value<span class="visually-hidden"> of {nameOf(s.key)}</span></button></>
  const usual = s.secret ? [] : written(s.default as Value)
  return (
    <>
      {originOf(s)}
      {s.source !== 'default' && <> · Default: {usual.length === 0 ? 'none' : usual.map(choice(s)).join(', ')}</>}
      {!s.editable && ` · Only in the file${s.restart ? ', needs a restart' : ''}`}
      {s.editable && s.source === 'store' && <> · <button type="button" class="settings-keep" onClick={() => onEdit(null)}>Reset<span class="visually-hidden"> {nameOf(s.key)}</span> to default</button></>}
    </>
  )
}

const choice = (s: Setting) => (text: string) => s.type.includes('|') ? choiceOf(text) : text

/** A value that cannot be changed here. */
function Fixed({ of: s }: { of: Setting }) {
  if (s.secret) return <SecretState set={s.value === true} />
  const lines = written(s.value as Value)
  return lines.length === 0 ? <span class="muted">Not set</span> : <ul class="settings-value">{lines.map((line) => <li key={line}>{typeof s.value === 'boolean' || s.type.includes('|') ? choice(s)(line) : <code>{line}</code>}</li>)}</ul>
}

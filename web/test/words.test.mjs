// The texts of people's pages, without a browser.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { check, faultsIn } from '../words.mjs'

const en = { 'a.title': 'Title', 'a.count.one': '{n} file', 'a.count.other': '{n} files', 'a.state.open': 'open', 'error.lost': 'Lost. {message}', 'field.name': 'Name' }
const de = { 'a.title': 'Titel', 'a.count.one': '{n} Datei', 'a.count.other': '{n} Dateien', 'a.state.open': 'offen', 'error.lost': 'Verloren.', 'field.name': 'Name' }
const source = "t('a.title'), tn('a.count', 2), t(`a.state.${state}`), textOf('error.' + code), textOf('field.' + field)"

test('texts that every language has, with the same names, and that are used, are well', () => {
  assert.deepEqual(faultsIn({ en, de }, [source]), [])
})

test('a missing text, one too many, a name that differs and an unused text are found', () => {
  const { 'a.title': _, ...less } = de
  assert.deepEqual(faultsIn({ en, de: less }, [source]), ['de: a.title is missing'])
  assert.deepEqual(faultsIn({ en, de: { ...de, 'a.more': 'Mehr' } }, [source]), ['de: a.more is not in en'])
  assert.deepEqual(faultsIn({ en, de: { ...de, 'a.count.other': '{m} Dateien' } }, [source]), ['de: a.count.other must have {n}: {m} Dateien'])
  assert.deepEqual(faultsIn({ en, de: { ...de, 'a.title': 'Titel {n}' } }, [source]), ['de: a.title must have no {names}: Titel {n}'])
  assert.deepEqual(faultsIn({ en: { ...en, 'a.old': 'Old' }, de: { ...de, 'a.old': 'Alt' } }, [source]), ['en: a.old is not used'])
})

test('the texts of the dashboard are well', async () => {
  assert.deepEqual(await check(), [])
})

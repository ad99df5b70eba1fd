// Writes src/api/generated from the OpenAPI document on standard input: the types of every operation's parameters, body
// and answer, and a small table of the operations that is part of the bundle.
import { mkdir, writeFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import openapi, { astToString } from 'openapi-typescript'

const methods = ['get', 'post', 'put', 'patch', 'delete']
const document = JSON.parse(await text(process.stdin))
const folder = new URL('src/api/generated/', import.meta.url)

// What the types do not need makes the file several times as long. The properties of a schema may have any name.
function bare(value, named = false) {
  if (Array.isArray(value)) return value.map((v) => bare(v))
  if (value === null || typeof value !== 'object') return value
  const kept = Object.entries(value).filter(([key, v]) =>
    named || !(['description', 'summary', 'title'].includes(key) && typeof v === 'string') && !['example', 'examples', 'headers'].includes(key))
  return Object.fromEntries(kept.map(([key, v]) => [key, bare(v, key === 'properties' && !named)]))
}

function parameter(p) {
  return p.$ref ? document.components.parameters[p.$ref.split('/').at(-1)] : p
}

const operations = {}
const paths = {}
for (const [path, item] of Object.entries(document.paths)) {
  paths[path] = {}
  for (const method of methods.filter((m) => item[m])) {
    const op = item[method]
    const query = (op.parameters ?? []).map((p) => parameter(p)).filter((p) => p.in === 'query').map((p) => p.name)
    const row = [method.toUpperCase(), path, op['x-scope'], (op['x-roles'] ?? []).map((role) => (role === 'mailbox' ? 'p' : role[0])).join('') + (op['x-roles']?.includes('member') && !op['x-whole-account'] ? 'l' : '')]
    operations[op.operationId] = method === 'get' || query.length === 0 ? row : [...row, ...query]
    const responses = Object.fromEntries(Object.entries(op.responses).filter(([code]) => code.startsWith('2')))
    paths[path][method] = { ...bare(op), responses: bare(responses), parameters: bare(item.parameters ?? []).concat(bare(op.parameters ?? [])) }
  }
}
const { schemas, parameters } = bare(document.components)
const small = { openapi: document.openapi, info: document.info, paths, components: { schemas, parameters } }

await mkdir(folder, { recursive: true })
await writeFile(new URL('schema.d.ts', folder), astToString(await openapi(small, { defaultNonNullable: false })))
const rows = Object.entries(operations).map(([id, row]) => `  ${id}: ${JSON.stringify(row)},`)
await writeFile(new URL('operations.ts', folder), `// Each operation: method, path, permission, first letters of the roles that may use it (p: the person of a mailbox, l: a member who
// sees some mailboxes alone); of what is no GET, the names that
// belong into the query.
export const operations = {
${rows.join('\n')}
} as const
`)

// Bundles src into dist: the script that a browser loads first, the parts that it loads later, one style sheet, the page,
// its manifest and its icon. All but the page have a hash of their content in their names, so that browsers keep them for
// good.
import { createHash } from 'node:crypto'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { check } from './words.mjs'

const here = (path) => new URL(path, import.meta.url).pathname
const faults = await check()
if (faults.length > 0) {
  console.error(faults.join('\n'))
  process.exit(1)
}
const dist = process.argv[2] ?? here('dist')
await rm(dist, { recursive: true, force: true }) // files of earlier builds have other names
await mkdir(dist, { recursive: true })

/** Writes a file, compressed if it is long, under its name with the hash of its content, and gives its path in the page. */
async function put(name, content) {
  const hash = createHash('sha256').update(content).digest('hex').slice(0, 16)
  const hashed = name.replace(/\.(?=\w+$)/, `-${hash}.`)
  if (content.length > 4096) await writeFile(`${dist}/${hashed}.gz`, gzipSync(content, { level: 9 }))
  else await writeFile(`${dist}/${hashed}`, content)
  return '/' + hashed
}

/** Puts the hashed paths in place of the plain ones. */
function link(text, paths) {
  for (const [plain, hashed] of Object.entries(paths)) {
    if (!text.includes(`"${plain}"`)) throw new Error(`${plain} is named nowhere`)
    text = text.replaceAll(`"${plain}"`, `"${hashed}"`)
  }
  return text
}

const icon = await put('icon.svg', await readFile(here('public/icon.svg')))
const manifest = await put('app.webmanifest', link(await readFile(here('public/app.webmanifest'), 'utf8'), { '/icon.svg': icon }))
const { outputFiles, metafile } = await build({
  entryPoints: { app: here('src/main.tsx'), 'pdf-worker': 'pdfjs-dist/legacy/build/pdf.worker.mjs' },
  outdir: dist,
  write: false,
  bundle: true,
  splitting: true,
  metafile: true,
  chunkNames: 'part-[hash]',
  absWorkingDir: here('.'),
  minify: true,
  format: 'esm',
  target: ['es2022', 'chrome123', 'firefox120', 'safari17.5'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  define: { ICON: JSON.stringify(icon), PDF_WORKER: '"/pdf-worker.js"' },
  loader: { '.go': 'text', '.py': 'text', '.sh': 'text' },
  logLevel: 'warning',
})
// A script names those that it imports, so they are written before it.
const paths = { '/icon.svg': icon, '/app.webmanifest': manifest }
const outputs = new Map(outputFiles.map((file) => [file.path.split('/').at(-1), file]))
const imports = Object.fromEntries(Object.entries(metafile.outputs).map(([path, o]) => [path.split('/').at(-1), o.imports.map((i) => i.path.split('/').at(-1))]))
const hashed = {}
async function write(name) {
  if (hashed[name]) return
  hashed[name] = '…' // two that import each other would have no hash
  let content = outputs.get(name).text
  for (const other of imports[name] ?? []) {
    await write(other)
    if (hashed[other] === '…') throw new Error(`${name} and ${other} import each other`)
    content = content.replaceAll(`"./${other}"`, `".${hashed[other]}"`)
  }
  content = content.replaceAll('"/pdf-worker.js"', () => `"${hashed['pdf-worker.js']}"`)
  hashed[name] = await put(name.replace(/^part-.*\./, 'part.'), Buffer.from(content))
}
await write('pdf-worker.js') // a part of the script has its path as a text
for (const name of [...outputs.keys()].sort()) await write(name)
for (const name of ['app.js', 'app.css']) paths['/' + name] = hashed[name]
// The page names what the script imports at once, so that a browser asks for it together with the script.
const outputOf = (name) => Object.entries(metafile.outputs).find(([path]) => path.split('/').at(-1) === name)[1]
const atOnce = new Set(['app.js'])
for (const name of atOnce) {
  for (const { path, kind } of outputOf(name).imports) if (kind === 'import-statement') atOnce.add(path.split('/').at(-1))
}
const script = '<script type="module" src="/app.js"></script>'
const preloads = [...atOnce].slice(1).map((name) => `<link rel="modulepreload" href="${hashed[name]}">\n`)
const page = await readFile(here('public/index.html'), 'utf8')
if (!page.includes(script)) throw new Error(`index.html has no ${script}`)
await writeFile(`${dist}/index.html`, link(page.replace(script, preloads.join('') + script), paths))

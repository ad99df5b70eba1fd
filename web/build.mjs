// Bundles src into dist: one script, one style sheet, the page and its icon.
import { cp, mkdir } from 'node:fs/promises'
import { build } from 'esbuild'

const here = (path) => new URL(path, import.meta.url).pathname
const dist = process.argv[2] ?? here('dist')
await mkdir(dist, { recursive: true })
await build({
  entryPoints: { app: here('src/main.tsx') },
  outdir: dist,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022', 'chrome123', 'firefox120', 'safari17.5'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  loader: { '.go': 'text', '.py': 'text', '.sh': 'text' },
  logLevel: 'warning',
})
for (const name of ['index.html', 'icon.svg', 'app.webmanifest']) await cp(here(`public/${name}`), `${dist}/${name}`)

// How a program verifies that a call comes from here: the examples of docs/examples, which are tested there.
import { useState } from 'preact/hooks'
import go from '../../../../docs/examples/go/receive/main.go'
import javascript from '../../../../docs/examples/javascript/receive.mjs' with { type: 'text' }
import python from '../../../../docs/examples/python/receive.py'
import shell from '../../../../docs/examples/curl/verify.sh'
import { Button, Card, Code } from '../../ui'

const examples = { JavaScript: javascript, Python: python, Go: go, Shell: shell }
type Language = keyof typeof examples

export function Verify() {
  const [language, setLanguage] = useState<Language>('JavaScript')
  return (
    <Card title="Verify signatures" note="Each request is signed with the signing secret. You can also verify it with a Standard Webhooks library.">
      <div class="stack-tight">
        <div class="chips" role="group" aria-label="Language">
          {(Object.keys(examples) as Language[]).map((name) => <Button key={name} small look={name === language ? 'plain' : 'ghost'} aria-pressed={name === language} onClick={() => setLanguage(name)}>{name}</Button>)}
        </div>
        <div class="webhooks-example"><Code label={`Example in ${language}`} text={examples[language].trim()} /></div>
      </div>
    </Card>
  )
}

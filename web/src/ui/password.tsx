import { t } from '../words'
import { TextField } from './form'

export const leastPassword = 8 // characters, as the server has it for those who sign in here

interface Props { label?: string; name?: string; value: string; onInput: (value: string) => void; autoFocus?: boolean }

/** Where somebody chooses the password with which they will sign in here. It advises while they type. */
export function NewPassword({ label = t('ui.password'), name = 'password', value, onInput, autoFocus }: Props) {
  return <TextField label={label} name={name} type="password" value={value} onInput={onInput} autoComplete="new-password" maxLength={128} autoFocus={autoFocus} hint={<span aria-live="polite">{adviceOn(value)}</span>} />
}

/** What to say of a password. Only its length can be wrong; the rest is advice. */
export function adviceOn(password: string): string {
  const n = [...password].length
  if (n === 0) return t('ui.password.rule', { n: leastPassword })
  if (n < leastPassword) return t('ui.password.short', { n: leastPassword })
  if (new Set(password.toLowerCase()).size < 5 || usual.test(password)) return t('ui.password.common')
  return n < 12 ? t('ui.password.good') : t('ui.password.strong')
}

const usual = /^(?=.{0,15}$)\W*(pass(word|wort)?|motdepasse|contrase[nñ]a|qwert[yz]\w*|azerty\w*|asdf\w*|1?23456\d*|abc\w{0,5}|letmein|welcome|admin\w*|mailstead|iloveyou|secret|changeme|dragon|monkey|football)\W*\d*\W*$/i

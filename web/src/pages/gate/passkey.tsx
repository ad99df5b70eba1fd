// Passkeys: signing in with what the device or its key holds (Web Authentication).
import { request } from '../../api/client'
import { signInByPasskey } from '../../api/session'
import { Button } from '../../ui'
import { t } from '../../words'

const isAddress = /^[\d.]+$|^\[/.test(location.hostname) // a passkey belongs to a name, not to an IP address

/** Whether passkeys can be used here, with this browser. */
export const passkeys = !isAddress && typeof PublicKeyCredential === 'function' && 'parseRequestOptionsFromJSON' in PublicKeyCredential

interface Options { publicKey: PublicKeyCredentialRequestOptionsJSON }

export function PasskeyButton({ onDone }: { onDone: () => void }) {
  if (!passkeys) return null
  const enter = async () => {
    const { publicKey } = (await request('POST', '/session/passkey/options', {})) as Options
    const credential = (await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) })) as PublicKeyCredential | null
    if (!credential) return
    await signInByPasskey(credential.toJSON())
    onDone()
  }
  return <Button icon="key" onClick={enter}>{t('gate.passkey')}</Button>
}

// What the overview knows of the whole account.
import { call, can, serverNow, type Schemas } from '../../api/client'
import { useQuery, useRead } from '../../api/query'

export { useFleet as useDomains } from '../domains/fleet'
export type { Domain } from '../domains/words'
type Webhook = Schemas['Webhook']

export interface Endpoint {
  webhook: Webhook
  tried: number
  succeeded: number
  /** How many of the newest attempts failed, one after the other. */
  failing: number
}

/** The account's webhooks, with how their newest hundred attempts ended. */
export function useEndpoints() {
  return useRead('overview endpoints', async () => {
    const { data } = await call('list_webhooks')
    return Promise.all(data.map(async (webhook): Promise<Endpoint> => {
      const { data } = await call('list_webhook_deliveries', { id: webhook.id, limit: 100 })
      const ended = data.filter((d) => d.outcome !== 'pending')
      const lastGood = ended.findIndex((d) => d.outcome === 'success') // newest first
      return { webhook, tried: ended.length, succeeded: ended.filter((d) => d.outcome === 'success').length, failing: lastGood < 0 ? ended.length : lastGood }
    }))
  }, { kinds: ['webhook', 'delivery'], pause: 15_000, when: can('list_webhooks') })
}

/** Jobs that failed within the last day. */
export function useFailedJobs() {
  const since = new Date(serverNow() - 86_400_000)
  since.setMinutes(0, 0, 0) // so that the question stays the same for an hour
  return useQuery('list_jobs', { status: 'error', created_after: since.toISOString(), limit: 20 })
}

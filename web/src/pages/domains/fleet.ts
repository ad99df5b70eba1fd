// What is known of all domains together.
import { call } from '../../api/client'
import { useRead, type Query } from '../../api/query'
import { useSandboxActivation } from './activate'
import type { Domain } from './words'

const mostPages = 6 // of a hundred domains each
const pause = 10_000 // ms between two readings: many domains that are set up at once change many times a second

interface Read { domains: Domain[]; whole: boolean }

export interface Fleet extends Omit<Query<Domain[]>, 'data'> { data: Domain[] | undefined; whole: boolean; tags: string[] }

/** All domains of the account, as far as a page may read them, and the tags that they have. */
export function useFleet(): Fleet {
  const read = useRead<Read>('domains fleet', async () => {
    const domains: Domain[] = []
    let cursor: string | undefined
    for (let i = 0; i < mostPages; i++) {
      const page = await call('list_domains', { limit: 100, cursor })
      domains.push(...page.data)
      if (!page.pagination.cursor) return { domains, whole: true }
      cursor = page.pagination.cursor
    }
    return { domains, whole: false }
  }, { kinds: ['domain'], pause })
  useSandboxActivation(read.data?.domains)
  const tags = [...new Set(read.data?.domains.flatMap((d) => d.tags))].sort((a, b) => a.localeCompare(b))
  return { ...read, data: read.data?.domains, whole: read.data?.whole ?? true, tags }
}

// What is known of all domains together.
import { useEffect } from 'preact/hooks'
import { call } from '../../api/client'
import { useRead, type Query } from '../../api/query'
import { onChange } from '../../api/stream'
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
  })
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    let last = 0
    const stop = onChange((changes) => {
      if (timer || (changes !== 'all' && !changes.some((c) => c.kind === 'domain'))) return
      timer = setTimeout(() => {
        timer = undefined
        last = Date.now()
        void read.reload()
      }, Math.max(500, last + pause - Date.now()))
    })
    return () => {
      stop()
      clearTimeout(timer)
    }
  }, [])
  const tags = [...new Set(read.data?.domains.flatMap((d) => d.tags))].sort((a, b) => a.localeCompare(b))
  return { ...read, data: read.data?.domains, whole: read.data?.whole ?? true, tags }
}

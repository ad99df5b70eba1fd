// Pages are in parts of the script that are fetched when one of them is opened.
import { useEffect, useState } from 'preact/hooks'
import type { ComponentType } from 'preact'
import { offline } from '../api/client'
import { Failure, Loading } from '../ui'

/** A part of the script: what it has, once it was fetched. */
export interface Part<M> { load: () => Promise<M>; now: M | undefined }

export function part<M>(fetch: () => Promise<M>): Part<M> {
  let loading: Promise<M> | undefined
  const self: Part<M> = {
    now: undefined,
    load: () => loading ??= fetch().then(
      (m) => self.now = m,
      (error) => {
        loading = undefined
        throw error
      },
    ),
  }
  return self
}

/** A component whose script is fetched when it is shown, or before that by load. */
export type Lazy = ComponentType<any> & { load: () => Promise<unknown> }

/** A component of a part, which shows that it is loading until the part is there. */
export function lazy<M>(of: Part<M>, pick: (m: M) => ComponentType<any>): Lazy {
  function Lazy(props: object) {
    const [, setLoaded] = useState(of.now)
    const [failed, setFailed] = useState(false)
    const load = () => of.load().then((m) => { setFailed(false); setLoaded(() => m) }, () => setFailed(true))
    useEffect(() => void load(), []) // also of a part that has come since this was drawn: nothing else draws it again
    if (of.now) {
      const Page = pick(of.now)
      return <Page {...props} />
    }
    return failed ? <Failure error={offline()} retry={load} /> : <Loading />
  }
  return Object.assign(Lazy, { load: of.load })
}

import './jobs.css'
import type { Place } from '../types'
import { Job } from './job'
import { Jobs } from './jobs'

export const places: Place[] = [{ path: '/jobs', page: Jobs }, { path: '/jobs/:id', page: Job }]

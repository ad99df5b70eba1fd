import './people.css'
import type { Place } from '../types'
import { Profile } from './profile'
import { Team } from './team'
import { Tokens } from './tokens'

export const places: Place[] = [{ path: '/team', page: Team }, { path: '/tokens', page: Tokens }, { path: '/profile', page: Profile }]

// The pages of domains, which only the team of an account has.
export { Add } from './add'
export { DomainPage } from './domain'
export { Domains, readDomainsAhead as readAhead } from './list'

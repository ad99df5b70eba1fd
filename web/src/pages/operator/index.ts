// The pages of who runs the server, and the logs of an account.
export { Settings } from './settings'

// The host and its backups.
export { Backups } from './backups'
export { Host } from './host'

// The accounts on the server.
export { AccountPage } from './account'
export { Accounts } from './accounts'

// What was asked of the API, and what was changed.
export { Audit } from './audit'
export { RequestPage } from './request'
export { Requests } from './requests'

export { ComposePage } from './compose/page'
export { Inbox, readInboxAhead as readAhead } from './inbox'

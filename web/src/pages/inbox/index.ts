export { ComposePage } from './compose/page'
export { Inbox } from './inbox'

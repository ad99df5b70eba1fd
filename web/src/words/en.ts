// The texts of the pages of people with a mailbox, in English. The files beside it have the same keys.
// A text has {name} where a value comes. A key that ends in .one or .other is a form of a count.
export const en = {
  'inbox.title': 'Inbox',
}

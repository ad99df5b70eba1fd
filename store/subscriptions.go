package store

import "strconv"

// Subscriptions are the names that a mailbox is subscribed to although it has no folders of them: IMAP keeps such names
// (RFC 3501 section 6.3.6). Those of folders are kept with the folders.
type Subscriptions struct {
	Mailbox uint32 // number
	Names   []string
}

// SubscribedNames keeps them for the mailboxes that have any, by SubscriptionsID.
var SubscribedNames = newTable("subscribed_names", func(s *Subscriptions) string { return SubscriptionsID(s.Mailbox) })

// SubscriptionsID is the id of a mailbox's Subscriptions.
func SubscriptionsID(mailbox uint32) string { return strconv.FormatUint(uint64(mailbox), 10) }

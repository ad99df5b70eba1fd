// Package mail has the end-to-end tests of mail on its way: received, sent, forwarded, bounced,
// moved in and out of mailboxes here and elsewhere.
package mail

// Package textindex finds messages by their words. The index is written some time after messages
// arrive, merged as it grows, and purged of deleted messages. The caller decides what the words of
// a message are.
package textindex

import "github.com/mailstead/mailstead/store/mailindex"

// An Index is the text index of one database. Only one call at a time may write it.
type Index struct{ *mailindex.Index }

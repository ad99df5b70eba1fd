// Package textindex finds messages by their words: an index that is written some time after the
// messages came, merged while it grows, and purged of what is deleted. What the words of a message
// are, its caller says.
package textindex

import "github.com/mailstead/mailstead/store/mailindex"

// An Index is the text index of one database. One call at a time writes it.
type Index struct{ *mailindex.Index }

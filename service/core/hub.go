package core

import (
	"github.com/mailstead/mailstead/jobs"
)

// A hub wakes whoever watches a mailbox, such as an idle IMAP session, when something in it has
// changed.
type hub struct{ watchers jobs.Watchers[uint32] }

func newHub() *hub { return &hub{} }

// watch gives a channel that gets a value soon after each change of the mailbox, and a function
// that ends the watch.
func (h *hub) Watch(mailbox uint32) (<-chan struct{}, func()) { return h.watchers.Watch(mailbox) }

// changed wakes the watchers of the mailbox; it never blocks.
func (h *hub) Changed(mailbox uint32) { h.watchers.Changed(mailbox) }

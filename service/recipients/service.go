// Package recipients says who receives mail here: which mailbox, group, alias or other address one
// address of a domain leads to, and what that takes. It makes and reads the addresses of this
// server's own making: return paths, rewritten senders and links by which people unsubscribe. It
// does not know how mail comes or goes.
//
// Where things stand:
//   - destinations.go: where mail to an address goes ([Service.Receiver], [Service.Find]), and
//     whether that takes a message now ([Destination.Takes]).
//   - groups.go: the members of a group, one by one.
//   - return_path.go: addresses of rows of the sending log, and the Sender Rewriting Scheme.
//   - unsubscribe.go: links by which a recipient unsubscribes.
//   - reach.go: where mail goes besides ([Service.SendsOnTo]).
package recipients

import "github.com/mailstead/mailstead/service/core"

// A Service finds recipients.
type Service struct {
	*core.Core
}

// New makes it.
func New(c *core.Core) *Service { return &Service{Core: c} }

// Package recipients resolves addresses: to which mailbox, group, alias or other address mail goes,
// and whether it is accepted there. It also makes and reads addresses and links of this server:
// return paths, rewritten senders and unsubscribe links. It does not know how mail arrives or
// leaves.
//
// The files:
//   - destinations.go: where mail to an address goes ([Service.Receiver], [Service.Find]), and
//     whether a message is accepted there now ([Destination.Takes]).
//   - groups.go: the members of a group, one by one.
//   - return_path.go: addresses of rows of the sending log, and the Sender Rewriting Scheme.
//   - unsubscribe.go: links by which a recipient unsubscribes.
//   - reach.go: where mail is sent on to ([Service.SendsOnTo]).
package recipients

import "github.com/mailstead/mailstead/service/core"

// A Service resolves recipients.
type Service struct {
	*core.Core
}

// New returns a Service.
func New(c *core.Core) *Service { return &Service{Core: c} }

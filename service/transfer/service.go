// Package transfer imports mail into mailboxes from files and other servers, exports it, and
// rebuilds rows that a store has lost. It does not know where files come from or go to.
//
// Where things are:
//   - import.go: messages with their folder, flags and date ([Service.ImportMessages]).
//   - importer.go: reads mbox files and IMAP servers, and imports what they have ([Importer]).
//   - export_mail.go: messages with what a file stores of them ([Service.ExportMessages]).
//     export_tar.go: the mail of a mailbox as a tar.
//   - restore.go: a mailbox out of a backup ([Service.RestoreMailbox]).
//   - rebuild.go: rebuilds rows that the store has lost, from the messages ([Rebuild]).
package transfer

import (
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

// Servers provides IMAP clients for servers that users have named.
type Servers interface {
	// Client returns the client that logs in to the server.
	Client(server pull.Server) *pull.Client
}

// A Service imports, exports and restores mail.
type Service struct {
	*core.Core
	inbox   *inbox.Service
	servers Servers
}

// New returns a Service.
func New(c *core.Core, i *inbox.Service, servers Servers) *Service {
	return &Service{Core: c, inbox: i, servers: servers}
}

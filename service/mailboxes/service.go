// Package mailboxes makes, changes, exports and deletes mailboxes, logs mail clients in to them and
// tells clients how to connect. It does not know the messages in them, nor how a domain is set up.
//
// Where things stand:
//   - mailboxes.go: reading mailboxes. logins.go: log-ins of mail clients ([Service.LoginMailbox],
//     [Service.SCRAM]). credentials.go: passwords beside that of a mailbox, and those of domains.
//   - addresses.go, groups.go: aliases, and groups of mailboxes.
//   - mailbox_create.go: making one, limits ([Service.RoomForMailboxes]), when it becomes active.
//   - mailbox_changes.go: changing and deleting one. mailbox_bulk.go: many at once.
//   - inboxes.go: mailboxes for programs, which are deleted at a time.
//   - names.go, templates.go: generated names, and templates of usernames.
//   - exports.go: files of credentials. export_mail.go, import_mail.go:
//     files of mail. discovery.go: settings that clients look up.
package mailboxes

import (
	"context"
	"crypto/tls"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// Certificates are those of this host.
type Certificates interface {
	// HostCertificate gives the certificate of this host's own name; nil if there is none.
	HostCertificate() *tls.Certificate
}

// Servers are those of external mailboxes.
type Servers interface {
	// BeginExternal has a new external mailbox synced, if its account's universal inbox is on.
	BeginExternal(tx *store.Tx, mb *store.Mailbox) error
	// ResumeExternal has an external mailbox looked at again, with what was refused before
	// forgotten. The caller writes mb.
	ResumeExternal(tx *store.Tx, mb *store.Mailbox) error
	// EndIdle ends the session that waits for changes of an external mailbox, if there is one.
	EndIdle(mailboxID string)
	// PlainAllowed reports whether any server may be logged in to without TLS, and PlainGuard
	// which.
	PlainAllowed() bool
	PlainGuard() *netguard.Guard
}

// Mail is what mailboxes have waiting to be sent.
type Mail interface {
	// Hold keeps what a mailbox has waiting until somebody releases it.
	Hold(tx *store.Tx, mb *store.Mailbox) error
	// CancelMailOfMailbox takes back what a mailbox that is deleted has waiting, unless it is held.
	CancelMailOfMailbox(ctx context.Context, mb *store.Mailbox) error
}

// A Service holds what mailboxes need.
type Service struct {
	*core.Core
	events     *events.Service
	servers    Servers
	transfer   *transfer.Service
	mail       Mail
	reputation *reputation.Service
	certs      Certificates
	uses       core.Uses // of credentials
}

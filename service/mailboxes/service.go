// Package mailboxes creates, changes, exports and deletes mailboxes, checks the logins of mail
// clients and gives clients the settings to connect. It does not know the messages in mailboxes,
// nor how a domain is set up.
//
// Where things are:
//   - mailboxes.go: reading mailboxes. logins.go: logins of mail clients ([Service.LoginMailbox],
//     [Service.SCRAM]). credentials.go: additional passwords of mailboxes, and those of domains.
//   - addresses.go, groups.go: aliases, and groups of mailboxes.
//   - mailbox_create.go: creating a mailbox, limits ([Service.MailboxesLeft]), activation.
//   - mailbox_changes.go: changing and deleting one. mailbox_bulk.go: many in one request.
//   - inboxes.go: mailboxes for programs, which expire.
//   - names.go, templates.go: generated names, and templates of usernames.
//   - exports.go: files of credentials. export_mail.go, import_mail.go: files of mail.
//     discovery.go: settings that clients look up.
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

// Certificates returns certificates of this host.
type Certificates interface {
	// HostCertificate returns the certificate of this host's own name; nil if there is none.
	HostCertificate() *tls.Certificate
}

// Servers syncs external mailboxes.
type Servers interface {
	// BeginExternal starts the sync of a new external mailbox, if its account's universal inbox is
	// on.
	BeginExternal(tx *store.Tx, mb *store.Mailbox) error
	// ResumeExternal starts the sync of an external mailbox again and clears its earlier errors.
	// The caller writes mb.
	ResumeExternal(tx *store.Tx, mb *store.Mailbox) error
	// EndIdle ends the session that waits for changes of an external mailbox, if there is one.
	EndIdle(mailboxID string)
	// PlainAllowed reports whether logins to servers without TLS are allowed at all. PlainGuard
	// says to which addresses.
	PlainAllowed() bool
	PlainGuard() *netguard.Guard
}

// Mail is the queue of outgoing mail.
type Mail interface {
	// Hold holds the queued mail of a mailbox until somebody releases it.
	Hold(tx *store.Tx, mb *store.Mailbox) error
	// CancelMailOfMailbox cancels the queued mail of a mailbox that is deleted, except held mail.
	CancelMailOfMailbox(ctx context.Context, mb *store.Mailbox) error
}

// A Service creates, changes and deletes mailboxes, and checks logins. It uses the rooms that its
// fields name.
type Service struct {
	*core.Core
	events     *events.Service
	servers    Servers
	transfer   *transfer.Service
	mail       Mail
	reputation *reputation.Service
	certs      Certificates
	uses       core.Uses // when credentials were last used
}

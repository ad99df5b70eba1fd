package imapd

import (
	"context"
	"errors"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

// A session is the state of one connection. One goroutine runs its commands. IDLE starts a second
// goroutine; while that runs, it alone uses the session.
type session struct {
	server *Server
	conn   *wire.Conn
	slot   *connlimit.Slot
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	user         core.MailboxUser // MailboxID is "" before log-in
	failedLogins int
	selected     *selectedFolder // nil: no folder is selected
	rev2         bool            // the client has enabled IMAP4rev2
	condStore    bool            // changes are reported with their MODSEQ (RFC 7162)
	qresync      bool            // expunged messages are reported by their UIDs
	compressed   bool            // the connection counts against Server.MaxCompressed
	over         bool            // the connection ends after the current command

	// The response code and the text for the tagged OK of the current command.
	code, text string
}

// close ends the connection and its log-in.
func (ss *session) close() {
	ss.conn.Close()
	ss.slot.Release()
	ss.server.removeSession(ss)
	if ss.compressed {
		ss.server.releaseCompression()
	}
}

// responseCodes has the IMAP response code (RFC 5530) for each code of a service error that a mail
// client can get.
var responseCodes = map[string]imap.ResponseCode{
	inbox.CodeFolderNotFound:    imap.ResponseCodeNonExistent,
	inbox.CodeFolderExists:      imap.ResponseCodeAlreadyExists,
	inbox.CodeFolderHasChildren: imap.ResponseCodeHasChildren,
	inbox.CodeFolderLimit:       imap.ResponseCodeLimit,
	inbox.CodeFolderRate:        imap.ResponseCodeLimit, // RFC 5530 section 3
	inbox.CodeFolderName:        imap.ResponseCodeCannot,
	inbox.CodeSpecialUse:        "USEATTR",
	core.CodeQuota:              imap.ResponseCodeOverQuota,
	core.CodeMailboxClosed:      imap.ResponseCodeUnavailable,
	inbox.CodeKeywords:          imap.ResponseCodeLimit,
	inbox.CodeMessageEmpty:      imap.ResponseCodeCannot,
	inbox.CodeMessageGone:       expungedCode, // RFC 5530 section 3

	"tainted": imap.ResponseCodeNoPerm,

	"unauthorized":        imap.ResponseCodeAuthenticationFailed,
	"mailbox_unavailable": imap.ResponseCodeContactAdmin,
	"account_suspended":   imap.ResponseCodeContactAdmin,
	"not_found":           imap.ResponseCodeNonExistent,
	"rate_limited":        imap.ResponseCodeUnavailable,
	"busy":                imap.ResponseCodeUnavailable,
	"shutting_down":       imap.ResponseCodeUnavailable,
	"storage_unavailable": imap.ResponseCodeUnavailable,
	"storage_full":        imap.ResponseCodeUnavailable,
	"internal_error":      imap.ResponseCodeServerBug,
}

// expungedCode is the response code for expunged messages (RFC 5530 section 3).
const expungedCode = "EXPUNGEISSUED"

// errReadOnly is the answer to a command that would change a folder that is open for reading only.
var errReadOnly = wire.No(imap.ResponseCodeNoPerm, "The folder is open for reading only")

// imapError returns the tagged answer for any error. It logs internal errors.
func (ss *session) imapError(err error) *imap.Error {
	var given *imap.Error
	if errors.As(err, &given) {
		return given
	}
	e := core.Explain(err)
	// Once the connection has failed, errors may follow from that, and are not logged.
	if e.Code == "internal_error" && !ss.conn.Failed() {
		ss.server.Log.Error("IMAP command failed", "mailbox", ss.user.Email, "error", err)
	}
	return &imap.Error{Type: imap.StatusResponseTypeNo, Code: responseCodes[e.Code], Text: printableASCII(e.Message)}
}

// withTryCreate returns the tagged answer for an error of a command with a destination folder. If
// the folder does not exist, the answer has the code TRYCREATE (RFC 9051 section 7.1). nil stays
// nil.
func (ss *session) withTryCreate(err error) error {
	if err == nil {
		return nil
	}
	given := *ss.imapError(err)
	if given.Code == imap.ResponseCodeNonExistent {
		given.Code = imap.ResponseCodeTryCreate
	}
	return &given
}

// closeWithError ends the connection because of an error, with a BYE that says why. It returns err.
func (ss *session) closeWithError(err error) error {
	ss.over = true
	why := "[UNAVAILABLE] " + ss.imapError(err).Text
	ss.conn.Stop(why)
	ss.conn.Bye(why)
	return err
}

// printableASCII replaces every rune that is not printable ASCII by "?", so that the text is
// allowed in any answer.
func printableASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, s)
}

// errAnswered is the result of a command that has written its tagged answer itself, or whose client
// got a BYE.
var errAnswered = errors.New("the IMAP command has already been answered")

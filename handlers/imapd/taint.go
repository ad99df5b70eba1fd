package imapd

import (
	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/order"
)

// A taintRule says what a command means for a log-in with a taint policy: once such a log-in has
// read text of strangers, it is tainted and may do less.
type taintRule int

const (
	// Refused once the log-in is tainted; the default for a command without a rule.
	refusedIfTainted taintRule = iota
	noMessageText              // the reply contains no text of messages
	// The reply may contain text of messages; that taints the log-in before it is written.
	hasMessageText
	// For a tainted log-in, the folder or the names in the command decide.
	dependsOnArguments
)

// taintRules has the rule of every command that the server knows.
var taintRules = map[string]taintRule{
	"CAPABILITY": noMessageText, "NOOP": noMessageText, "CHECK": noMessageText, "LOGOUT": noMessageText, "ID": noMessageText,
	"STARTTLS": noMessageText, "AUTHENTICATE": noMessageText, "LOGIN": noMessageText, "UNAUTHENTICATE": noMessageText,
	"ENABLE": noMessageText, "COMPRESS": noMessageText, "IDLE": noMessageText, "NAMESPACE": noMessageText,
	"GETQUOTA": noMessageText, "GETQUOTAROOT": noMessageText,

	"SELECT": noMessageText, "EXAMINE": noMessageText, "UNSELECT": noMessageText, "CLOSE": dependsOnArguments,
	"STATUS": noMessageText, "LIST": noMessageText, "LSUB": noMessageText, "SUBSCRIBE": dependsOnArguments, "UNSUBSCRIBE": noMessageText,
	"CREATE": refusedIfTainted, "DELETE": refusedIfTainted, "RENAME": refusedIfTainted,

	"FETCH": hasMessageText, "UID FETCH": hasMessageText, "SEARCH": hasMessageText, "UID SEARCH": hasMessageText,
	"SORT": hasMessageText, "UID SORT": hasMessageText, "THREAD": hasMessageText, "UID THREAD": hasMessageText,

	"STORE": dependsOnArguments, "UID STORE": dependsOnArguments, "COPY": noMessageText, "UID COPY": noMessageText, "MOVE": noMessageText, "UID MOVE": noMessageText,
	"APPEND": dependsOnArguments, "REPLACE": dependsOnArguments, "UID REPLACE": dependsOnArguments,
	"EXPUNGE": refusedIfTainted, "UID EXPUNGE": refusedIfTainted,
}

// checkTaint refuses commands that a tainted log-in must not run, whatever their arguments are.
func (ss *session) checkTaint(verb string) error {
	if !ss.user.Policy.Taint || taintRules[verb] != refusedIfTainted {
		return nil
	}
	return ss.server.Service.Inbox.CheckUntainted(ss.user)
}

// checkClose refuses a CLOSE that would delete messages.
func (ss *session) checkClose() error {
	tainted := ss.server.Service.Inbox.CheckUntainted(ss.user)
	if tainted == nil {
		return nil
	}
	n, _, err := ss.server.Service.Inbox.CountDeleted(ss.conn.ctx, ss.user, ss.selected.folder)
	if err == nil && n > 0 {
		err = tainted
	}
	return err
}

// taintByFetch taints the log-in if a FETCH returns more than flags, dates, sizes and IDs.
func (ss *session) taintByFetch(uids []uint32, o *imap.FetchOptions, a *attributes) error {
	if !ss.user.Policy.Taint || !needsBlob(o) && !a.structure() && !a.preview {
		return nil
	}
	return ss.server.Service.Inbox.ReadMessages(ss.conn.ctx, ss.user, ss.selected.folder, uids)
}

// taintBySearch taints the log-in if the result of a SEARCH, SORT or THREAD depends on the content
// of messages.
func (ss *session) taintBySearch(uids []uint32, criteria *imap.SearchCriteria) error {
	if !ss.user.Policy.Taint {
		return nil
	}
	o := ss.extensions.ordering
	if !needsParts(criteria) && (o == nil || o.keys != nil && !order.NeedsEnvelope(o.keys)) {
		return nil
	}
	return ss.server.Service.Inbox.ReadFolder(ss.conn.ctx, ss.user, ss.selected.folder, uids)
}

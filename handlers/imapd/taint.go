package imapd

import (
	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/order"
)

// A taintRule says what a command means to a log-in whose policy taints it by what strangers wrote.
type taintRule int

const (
	closedByTaint taintRule = iota // refused once the log-in is tainted; so is a command that has no rule
	saysNothing                    // its answer has no words of messages
	tellsWords                     // its answer may have some, and then taints before it is written
	mayBeClosed                    // once the log-in is tainted, it depends on the folder, or on the names that it gives
)

// taintRules has every command that the server knows.
var taintRules = map[string]taintRule{
	"CAPABILITY": saysNothing, "NOOP": saysNothing, "CHECK": saysNothing, "LOGOUT": saysNothing, "ID": saysNothing,
	"STARTTLS": saysNothing, "AUTHENTICATE": saysNothing, "LOGIN": saysNothing, "UNAUTHENTICATE": saysNothing,
	"ENABLE": saysNothing, "COMPRESS": saysNothing, "IDLE": saysNothing, "NAMESPACE": saysNothing,
	"GETQUOTA": saysNothing, "GETQUOTAROOT": saysNothing,

	"SELECT": saysNothing, "EXAMINE": saysNothing, "UNSELECT": saysNothing, "CLOSE": mayBeClosed,
	"STATUS": saysNothing, "LIST": saysNothing, "LSUB": saysNothing, "SUBSCRIBE": mayBeClosed, "UNSUBSCRIBE": saysNothing,
	"CREATE": closedByTaint, "DELETE": closedByTaint, "RENAME": closedByTaint,

	"FETCH": tellsWords, "UID FETCH": tellsWords, "SEARCH": tellsWords, "UID SEARCH": tellsWords,
	"SORT": tellsWords, "UID SORT": tellsWords, "THREAD": tellsWords, "UID THREAD": tellsWords,

	"STORE": mayBeClosed, "UID STORE": mayBeClosed, "COPY": saysNothing, "UID COPY": saysNothing, "MOVE": saysNothing, "UID MOVE": saysNothing,
	"APPEND": mayBeClosed, "REPLACE": mayBeClosed, "UID REPLACE": mayBeClosed,
	"EXPUNGE": closedByTaint, "UID EXPUNGE": closedByTaint,
}

// mayRun refuses the commands that a tainted log-in may not give, whatever their arguments are.
func (ss *session) mayRun(verb string) error {
	if !ss.user.Policy.Taint || taintRules[verb] != closedByTaint {
		return nil
	}
	return ss.server.Service.Inbox.CheckUntainted(ss.user)
}

// mayClose refuses a CLOSE that would delete messages.
func (ss *session) mayClose() error {
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

// readFetched taints the log-in if a FETCH gives more than flags, dates, the size and ids.
func (ss *session) readFetched(uids []uint32, o *imap.FetchOptions, a *attributes) error {
	if !ss.user.Policy.Taint || !needsBlob(o) && !a.structure() && !a.preview {
		return nil
	}
	return ss.server.Service.Inbox.ReadMessages(ss.conn.ctx, ss.user, ss.selected.folder, uids)
}

// readSearched taints the log-in if the answer of a SEARCH, SORT or THREAD of messages depends on
// what is in them.
func (ss *session) readSearched(uids []uint32, criteria *imap.SearchCriteria) error {
	if !ss.user.Policy.Taint {
		return nil
	}
	o := ss.extensions.ordering
	if !needsParts(criteria) && (o == nil || o.keys != nil && !order.NeedsEnvelope(o.keys)) {
		return nil
	}
	return ss.server.Service.Inbox.ReadFolder(ss.conn.ctx, ss.user, ss.selected.folder, uids)
}

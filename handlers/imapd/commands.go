package imapd

import (
	"runtime/debug"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// A requiredState is the state of a session that a command needs (RFC 9051 section 3).
type requiredState int

const (
	anyState requiredState = iota
	notLoggedIn
	loggedIn
	folderSelected
)

// A taintRule is the rule for a command if the log-in has a taint policy. With such a policy, a
// log-in that has read text of strangers is tainted: it may do less.
type taintRule int

const (
	// The command is refused if the log-in is tainted. This is the default.
	refusedIfTainted taintRule = iota
	noMessageText              // the answer contains no text of messages
	// The answer may contain text of messages. The log-in becomes tainted before it is written.
	hasMessageText
	// A tainted log-in may run the command for some folders or flags, but not for others.
	dependsOnArguments
)

// A command says how one IMAP command is run, and when it is allowed.
type command struct {
	// run parses the arguments, acts, and writes the untagged answers. If it returns nil, the
	// tagged OK follows, with the session's code and text.
	run       func(*session, *wire.Command) error
	state     requiredState
	taint     taintRule
	reporting reportRule
}

// A reportRule says which changes by other sessions are reported before the tagged OK of a command.
type reportRule int

const (
	reportAll        reportRule = iota
	reportNoExpunges            // no expunges: sequence numbers must stay valid (RFC 9051 section 7.5.1)
	reportNothing               // no changes: the command has reported everything itself, or need not
)

// commands are all commands that the server knows, by name.
var commands = map[string]command{
	"CAPABILITY":   {(*session).capability, anyState, noMessageText, reportAll},
	"NOOP":         {(*session).noop, anyState, noMessageText, reportAll},
	"LOGOUT":       {(*session).logout, anyState, noMessageText, reportNothing},
	"ID":           {(*session).id, anyState, noMessageText, reportNothing},
	"STARTTLS":     {(*session).startTLS, anyState, noMessageText, reportNothing},
	"LOGIN":        {(*session).login, notLoggedIn, noMessageText, reportNothing},
	"AUTHENTICATE": {(*session).authenticate, notLoggedIn, noMessageText, reportNothing},

	"ENABLE":       {(*session).enable, loggedIn, noMessageText, reportAll},
	"COMPRESS":     {(*session).compress, loggedIn, noMessageText, reportNothing},
	"IDLE":         {(*session).idle, loggedIn, noMessageText, reportAll},
	"NAMESPACE":    {(*session).namespace, loggedIn, noMessageText, reportAll},
	"GETQUOTA":     {(*session).getQuota, loggedIn, noMessageText, reportNothing},
	"GETQUOTAROOT": {(*session).getQuotaRoot, loggedIn, noMessageText, reportNothing},
	"LIST":         {(*session).list, loggedIn, noMessageText, reportAll},
	"LSUB":         {(*session).list, loggedIn, noMessageText, reportAll},
	"STATUS":       {(*session).status, loggedIn, noMessageText, reportAll},
	"CREATE":       {(*session).create, loggedIn, refusedIfTainted, reportAll},
	"DELETE":       {(*session).delete, loggedIn, refusedIfTainted, reportAll},
	"RENAME":       {(*session).rename, loggedIn, refusedIfTainted, reportAll},
	"SUBSCRIBE":    {(*session).subscribe, loggedIn, dependsOnArguments, reportAll},
	"UNSUBSCRIBE":  {(*session).subscribe, loggedIn, noMessageText, reportAll},
	"SELECT":       {(*session).selectFolder, loggedIn, noMessageText, reportNothing},
	"EXAMINE":      {(*session).selectFolder, loggedIn, noMessageText, reportNothing},
	"APPEND":       {(*session).append, loggedIn, dependsOnArguments, reportAll},

	"CHECK":       {(*session).noop, folderSelected, noMessageText, reportAll},
	"CLOSE":       {(*session).closeFolder, folderSelected, dependsOnArguments, reportAll},
	"UNSELECT":    {(*session).unselect, folderSelected, noMessageText, reportAll},
	"EXPUNGE":     {(*session).expunge, folderSelected, refusedIfTainted, reportAll},
	"UID EXPUNGE": {(*session).expunge, folderSelected, refusedIfTainted, reportAll},
	"FETCH":       {(*session).fetch, folderSelected, hasMessageText, reportNoExpunges},
	"UID FETCH":   {(*session).fetch, folderSelected, hasMessageText, reportAll},
	"STORE":       {(*session).store, folderSelected, dependsOnArguments, reportNoExpunges},
	"UID STORE":   {(*session).store, folderSelected, dependsOnArguments, reportAll},
	"SEARCH":      {(*session).search, folderSelected, hasMessageText, reportNoExpunges},
	"UID SEARCH":  {(*session).search, folderSelected, hasMessageText, reportAll},
	"SORT":        {(*session).sort, folderSelected, hasMessageText, reportNoExpunges},
	"UID SORT":    {(*session).sort, folderSelected, hasMessageText, reportAll},
	"THREAD":      {(*session).thread, folderSelected, hasMessageText, reportNoExpunges},
	"UID THREAD":  {(*session).thread, folderSelected, hasMessageText, reportAll},
	"COPY":        {(*session).copy, folderSelected, noMessageText, reportAll},
	"UID COPY":    {(*session).copy, folderSelected, noMessageText, reportAll},
	"MOVE":        {(*session).move, folderSelected, noMessageText, reportAll},
	"UID MOVE":    {(*session).move, folderSelected, noMessageText, reportAll},
	"REPLACE":     {(*session).replace, folderSelected, dependsOnArguments, reportAll},
	"UID REPLACE": {(*session).replace, folderSelected, dependsOnArguments, reportAll},
}

// serve runs the commands of a client until the connection ends. If greet is true, it sends the
// greeting first.
func (ss *session) serve(greet bool) {
	defer ss.close()
	defer func() {
		if v := recover(); v != nil {
			ss.server.Log.Error("panic in an IMAP command", "mailbox", ss.user.Email, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if greet {
		ss.conn.WriteLine("* OK [CAPABILITY %s] IMAP server ready", ss.capabilities())
	}
	for !ss.over {
		p, err := ss.conn.Next()
		if err != nil {
			ss.server.Log.Debug("IMAP connection ended", "remote", ss.conn.RemoteAddr(), "mailbox", ss.user.Email, "error", err)
			return
		}
		ss.run(p)
	}
}

// run runs a command and writes its tagged answer.
func (ss *session) run(p *wire.Command) {
	ss.code, ss.text = "", p.Name+" completed"
	c, known := commands[p.Name]
	if !known {
		ss.conn.WriteLine("%s BAD Unknown command", p.Tag)
		if ss.user.MailboxID == "" {
			// The client may be a browser: a web page can make it send IMAP commands over HTTP.
			ss.conn.Bye("Unknown command")
			ss.over = true
		}
		return
	}
	err := ss.checkAllowed(c)
	if err == nil {
		err = c.run(ss, p)
	}
	if err == nil && c.reporting != reportNothing {
		ss.server.Service.Inbound.WaitFiled(ss.ctx, ss.user.Mailbox)
		if ss.reportChanges(c.reporting == reportAll) != nil {
			return // the client got its BYE
		}
	}
	switch {
	case err == nil:
		ss.conn.WriteLine("%s OK %s%s", p.Tag, inBrackets(ss.code), ss.text)
	case err != errAnswered:
		e := ss.imapError(err)
		ss.conn.WriteLine("%s %s %s%s", p.Tag, e.Type, inBrackets(string(e.Code)), e.Text)
	}
}

// inBrackets returns a response code in brackets and with a space after it, or "" if there is no
// code.
func inBrackets(code string) string {
	if code == "" {
		return ""
	}
	return "[" + code + "] "
}

// checkAllowed returns an error if the command is not allowed in the state of the session: before
// log-in, without a selected folder, or when the log-in is tainted.
func (ss *session) checkAllowed(c command) error {
	switch {
	case c.state == notLoggedIn && ss.user.MailboxID != "":
		return wire.Bad("You are logged in already")
	case c.state >= loggedIn && ss.user.MailboxID == "":
		return wire.Bad("Log in first")
	case ss.user.Policy.Taint && c.taint == refusedIfTainted:
		if err := ss.server.Service.Inbox.CheckUntainted(ss.user); err != nil {
			return err
		}
	}
	if c.state == folderSelected && ss.selected == nil {
		return wire.Bad("Select a folder first")
	}
	return nil
}

// noop answers NOOP and CHECK (RFC 9051 section 6.1.2). It does nothing itself: run reports changes
// of other sessions after it.
func (ss *session) noop(p *wire.Command) error { return p.End() }

// logout answers LOGOUT (RFC 9051 section 6.1.3).
func (ss *session) logout(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	ss.conn.WriteLine("* BYE Logging out")
	ss.over = true
	return nil
}

// startTLS refuses STARTTLS. Clients can start TLS only before the session begins; plaintext.go
// serves them until then.
func (ss *session) startTLS(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	return wire.No("", "TLS cannot start now")
}

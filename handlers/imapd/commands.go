package imapd

import (
	"runtime/debug"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// A state is what a command needs of its session (RFC 9051 section 3).
type state int

const (
	anyState state = iota
	notLoggedIn
	loggedIn
	folderSelected
)

// A taintRule says what a command means for a log-in with a taint policy: once such a log-in has
// read text of strangers, it is tainted and may do less.
type taintRule int

const (
	// Refused once the log-in is tainted; the default.
	refusedIfTainted taintRule = iota
	noMessageText              // the answer contains no text of messages
	// The answer may contain text of messages; that taints the log-in before it is written.
	hasMessageText
	// For a tainted log-in, the folder or the names in the command decide.
	dependsOnArguments
)

// A command is a row of the table of commands.
type command struct {
	// run parses the arguments, acts and writes the untagged answers. A nil error becomes the
	// tagged OK, which has the session's code and text if they are set.
	run   func(*session, *wire.Command) error
	state state
	taint taintRule
	poll  poll
}

// A poll says how changes by other sessions are reported before the tagged OK.
type poll int

const (
	all          poll = iota
	allButGone        // without expunged messages, since the numbers must stay valid (RFC 9051 section 7.5.1)
	nothingToAdd      // the command has reported the state of everything, or there is none
)

// commands has every command that the server knows.
var commands = map[string]command{
	"CAPABILITY":   {(*session).capability, anyState, noMessageText, all},
	"NOOP":         {(*session).noop, anyState, noMessageText, all},
	"LOGOUT":       {(*session).logout, anyState, noMessageText, nothingToAdd},
	"ID":           {(*session).id, anyState, noMessageText, nothingToAdd},
	"STARTTLS":     {(*session).startTLS, anyState, noMessageText, nothingToAdd},
	"LOGIN":        {(*session).login, notLoggedIn, noMessageText, nothingToAdd},
	"AUTHENTICATE": {(*session).authenticate, notLoggedIn, noMessageText, nothingToAdd},

	"ENABLE":       {(*session).enable, loggedIn, noMessageText, all},
	"COMPRESS":     {(*session).compress, loggedIn, noMessageText, nothingToAdd},
	"IDLE":         {(*session).idle, loggedIn, noMessageText, all},
	"NAMESPACE":    {(*session).namespace, loggedIn, noMessageText, all},
	"GETQUOTA":     {(*session).getQuota, loggedIn, noMessageText, nothingToAdd},
	"GETQUOTAROOT": {(*session).getQuotaRoot, loggedIn, noMessageText, nothingToAdd},
	"LIST":         {(*session).list, loggedIn, noMessageText, all},
	"LSUB":         {(*session).list, loggedIn, noMessageText, all},
	"STATUS":       {(*session).status, loggedIn, noMessageText, all},
	"CREATE":       {(*session).create, loggedIn, refusedIfTainted, all},
	"DELETE":       {(*session).delete, loggedIn, refusedIfTainted, all},
	"RENAME":       {(*session).rename, loggedIn, refusedIfTainted, all},
	"SUBSCRIBE":    {(*session).subscribe, loggedIn, dependsOnArguments, all},
	"UNSUBSCRIBE":  {(*session).subscribe, loggedIn, noMessageText, all},
	"SELECT":       {(*session).selectFolder, loggedIn, noMessageText, nothingToAdd},
	"EXAMINE":      {(*session).selectFolder, loggedIn, noMessageText, nothingToAdd},
	"APPEND":       {(*session).append, loggedIn, dependsOnArguments, all},

	"CHECK":       {(*session).noop, folderSelected, noMessageText, all},
	"CLOSE":       {(*session).closeFolder, folderSelected, dependsOnArguments, all},
	"UNSELECT":    {(*session).unselect, folderSelected, noMessageText, all},
	"EXPUNGE":     {(*session).expunge, folderSelected, refusedIfTainted, all},
	"UID EXPUNGE": {(*session).expunge, folderSelected, refusedIfTainted, all},
	"FETCH":       {(*session).fetch, folderSelected, hasMessageText, allButGone},
	"UID FETCH":   {(*session).fetch, folderSelected, hasMessageText, all},
	"STORE":       {(*session).store, folderSelected, dependsOnArguments, allButGone},
	"UID STORE":   {(*session).store, folderSelected, dependsOnArguments, all},
	"SEARCH":      {(*session).search, folderSelected, hasMessageText, allButGone},
	"UID SEARCH":  {(*session).search, folderSelected, hasMessageText, all},
	"SORT":        {(*session).sort, folderSelected, hasMessageText, allButGone},
	"UID SORT":    {(*session).sort, folderSelected, hasMessageText, all},
	"THREAD":      {(*session).thread, folderSelected, hasMessageText, allButGone},
	"UID THREAD":  {(*session).thread, folderSelected, hasMessageText, all},
	"COPY":        {(*session).copy, folderSelected, noMessageText, all},
	"UID COPY":    {(*session).copy, folderSelected, noMessageText, all},
	"MOVE":        {(*session).move, folderSelected, noMessageText, all},
	"UID MOVE":    {(*session).move, folderSelected, noMessageText, all},
	"REPLACE":     {(*session).replace, folderSelected, dependsOnArguments, all},
	"UID REPLACE": {(*session).replace, folderSelected, dependsOnArguments, all},
}

// serve runs the commands of a client, from the greeting to the end of the connection.
func (ss *session) serve(greet bool) {
	defer ss.close()
	defer func() {
		if v := recover(); v != nil {
			ss.server.Log.Error("panic in an IMAP command", "mailbox", ss.user.Email, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if greet {
		ss.conn.Line("* OK [CAPABILITY %s] IMAP server ready", ss.capabilities())
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
		ss.conn.Line("%s BAD Unknown command", p.Tag)
		if ss.user.MailboxID == "" {
			// The client may speak another protocol, into which a web page can put commands.
			ss.conn.Bye("Unknown command")
			ss.over = true
		}
		return
	}
	err := ss.check(c)
	if err == nil {
		err = c.run(ss, p)
	}
	if err == nil && c.poll != nothingToAdd {
		ss.server.Service.Inbound.WaitFiled(ss.ctx, ss.user.Mailbox)
		if ss.report(c.poll == all) != nil {
			return // the client got its BYE
		}
	}
	switch {
	case err == nil:
		ss.conn.Line("%s OK %s%s", p.Tag, inBrackets(ss.code), ss.text)
	case err != errAnswered:
		e := ss.imapError(err)
		ss.conn.Line("%s %s %s%s", p.Tag, e.Type, inBrackets(string(e.Code)), e.Text)
	}
}

func inBrackets(code string) string {
	if code == "" {
		return ""
	}
	return "[" + code + "] "
}

// check refuses a command for the state of the session: before log-in, without a selected folder,
// or tainted.
func (ss *session) check(c command) error {
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

// noop answers NOOP and CHECK (RFC 9051 section 6.1.2): the changes by others are all that they
// report.
func (ss *session) noop(p *wire.Command) error { return p.End() }

// logout answers LOGOUT (RFC 9051 section 6.1.3).
func (ss *session) logout(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	ss.conn.Line("* BYE Logging out")
	ss.over = true
	return nil
}

// startTLS refuses STARTTLS, which a client sends only before it logs in; see plaintext.go.
func (ss *session) startTLS(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	return wire.No("", "TLS cannot start now")
}

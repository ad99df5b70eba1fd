package imapd

// intercept sees each command before go-imap's parser. It answers the commands that the parser does
// not know; then it returns nil. From the others it takes the extensions, which the session's
// methods find in ss.extensions.
func (ss *session) intercept(text []byte) []byte {
	tag, verb := commandName(text)
	ss.extensions = extensions{verb: verb}
	switch verb {
	case "ID", "GETQUOTA", "GETQUOTAROOT", "COMPRESS":
		ss.writeResult(tag, ss.runIntercepted(tag, verb, newCommandEditor(text)))
		return nil
	}
	text, a := takeExtensions(verb, text)
	if len(text) > maxCommand {
		ss.writeResult(tag, badCommand("The command is too long"))
		return nil
	}
	ss.extensions = a
	ss.enableCondStore(a)
	return text
}

// writeResult writes how an intercepted command has ended; nil says that it has been answered.
func (ss *session) writeResult(tag string, err error) {
	if err == nil {
		return
	}
	e := ss.imapError(err)
	code := ""
	if e.Code != "" {
		code = "[" + string(e.Code) + "] "
	}
	ss.conn.writeReply("%s %s %s%s", plainText(tag), e.Type, code, e.Text)
}

// runIntercepted runs a command that go-imap does not know.
func (ss *session) runIntercepted(tag, verb string, p *commandEditor) error {
	if verb != "ID" && ss.user.MailboxID == "" {
		return badCommand("Log in first")
	}
	switch verb {
	case "ID":
		return ss.id(tag, p)
	case "COMPRESS":
		return ss.compress(tag, p)
	case "GETQUOTA":
		return ss.getQuota(tag, p)
	}
	return ss.getQuotaRoot(tag, p)
}

// quoted writes a string of a client's that the parser has taken as one.
func quoted(s string) string { return string(appendQuoted(nil, []byte(s))) }

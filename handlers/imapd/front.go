package imapd

import (
	"fmt"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service"
)

// Bounds on what a client says of itself (RFC 2971 section 3.3).
const (
	maxIDFields = 30
	maxIDText   = 1024
)

// quotaRoot is the name of what a mailbox's quota is counted over: all of its folders.
const quotaRoot = "mailbox"

// front sees each command before go-imap's parser does. It answers those that the parser does not
// know, and takes from the others what the session's methods then find in ss.asks.
func (ss *session) front(text []byte) []byte {
	tag, verb := commandName(text)
	ss.asks = asks{verb: verb}
	switch verb {
	case "ID", "GETQUOTA", "GETQUOTAROOT", "COMPRESS":
		ss.reply(tag, ss.own(tag, verb, newPhrase(text)))
		return nil
	}
	text, a := extend(verb, text)
	if len(text) > maxCommand {
		ss.reply(tag, badCommand("The command is too long"))
		return nil
	}
	ss.asks = a
	ss.enable(a)
	return text
}

// reply tells how a command of our own has ended; nil says that it has been answered.
func (ss *session) reply(tag string, err error) {
	if err == nil {
		return
	}
	e := ss.explain(err)
	code := ""
	if e.Code != "" {
		code = "[" + string(e.Code) + "] "
	}
	ss.wire.tell("%s %s %s%s", plainText(tag), e.Type, code, e.Text)
}

// own runs a command that go-imap does not know.
func (ss *session) own(tag, verb string, p *phrase) error {
	if verb != "ID" && ss.user.MailboxID == "" {
		return badCommand("Log in first")
	}
	switch verb {
	case "ID":
		return ss.identify(tag, p)
	case "COMPRESS":
		return ss.compress(tag, p)
	case "GETQUOTA":
		return ss.getQuota(tag, p)
	}
	return ss.getQuotaRoot(tag, p)
}

// identify answers ID (RFC 2971). Strangers are not told which version this is.
func (ss *session) identify(tag string, p *phrase) error {
	fields, err := idFields(p)
	if err != nil {
		return err
	}
	ss.server.Log.Debug("IMAP client", "mailbox", ss.user.Email, "id", fields)
	version := ss.server.Service.Config.Version
	if ss.user.MailboxID == "" || version == "" {
		ss.wire.tell(`* ID ("name" "Mailstead")`)
	} else {
		ss.wire.tell(`* ID ("name" "Mailstead" "version" %s)`, quoted(version))
	}
	ss.wire.tell("%s OK ID completed", tag)
	return nil
}

// idFields reads what a client says of itself: NIL, or a list of names and values.
func idFields(p *phrase) ([]string, error) {
	if len(p.list) == 3 && p.word(2) == "NIL" {
		return nil, nil
	}
	end, ok := 0, false
	if p.is(2, '(') {
		end, ok = p.closing(2)
	}
	if !ok || end != len(p.list)-1 || end%2 == 0 || end > 3+2*maxIDFields {
		return nil, badCommand("ID takes NIL or a list of at most %d names and values", maxIDFields)
	}
	var fields []string
	for i := 3; i < end; i += 2 {
		name, ok := p.value(i)
		value, ok2 := p.value(i + 1)
		if !ok || !ok2 || len(name) > maxIDText || len(value) > maxIDText {
			return nil, badCommand("A name or a value of the ID is none")
		}
		fields = append(fields, plainText(name)+"="+plainText(value))
	}
	return fields, nil
}

// compress answers COMPRESS (RFC 4978).
func (ss *session) compress(tag string, p *phrase) error {
	switch {
	case len(p.list) != 3 || p.word(2) != "DEFLATE":
		return badCommand("The one way to compress is DEFLATE")
	case ss.wire.compressed():
		return refused("COMPRESSIONACTIVE", "The connection is compressed already")
	case !ss.server.mayCompress():
		return refused("LIMIT", "Too many connections are compressed")
	}
	ss.compressing = true
	ss.wire.setCaps(strings.ReplaceAll(capsAfterLogin, " COMPRESS=DEFLATE", ""))
	if err := ss.wire.compress(ss.server.packers, tag+" OK COMPRESS completed"); err != nil {
		ss.wire.ending = err
	}
	return nil
}

// getQuota answers GETQUOTA (RFC 9208 section 4.1.1).
func (ss *session) getQuota(tag string, p *phrase) error {
	root, ok := p.value(2)
	if !ok || len(p.list) != 3 {
		return badCommand("GETQUOTA takes the name of a quota root")
	}
	q, err := ss.server.Service.MailboxQuota(ss.wire.ctx, ss.user)
	if err != nil {
		return err
	}
	if q.Limit == nil || root != quotaRoot {
		return refused("NONEXISTENT", "There is no such quota root")
	}
	ss.tellQuota(q)
	ss.wire.tell("%s OK GETQUOTA completed", tag)
	return nil
}

// getQuotaRoot answers GETQUOTAROOT (RFC 9208 section 4.1.2). A mailbox without a quota has no
// root.
func (ss *session) getQuotaRoot(tag string, p *phrase) error {
	given, ok := p.value(2)
	if !ok || len(p.list) != 3 {
		return badCommand("GETQUOTAROOT takes the name of a folder")
	}
	name, ok := decodeName(given)
	if !ok {
		return refused(imap.ResponseCodeNonExistent, "The name of the folder cannot be read")
	}
	if _, err := ss.server.Service.FolderByName(ss.wire.ctx, ss.user, name); err != nil {
		return err
	}
	q, err := ss.server.Service.MailboxQuota(ss.wire.ctx, ss.user)
	if err != nil {
		return err
	}
	if q.Limit == nil {
		ss.wire.tell("* QUOTAROOT %s", quoted(given))
	} else {
		ss.wire.tell("* QUOTAROOT %s %s", quoted(given), quotaRoot)
		ss.tellQuota(q)
	}
	ss.wire.tell("%s OK GETQUOTAROOT completed", tag)
	return nil
}

// tellQuota tells storage in units of 1 024 bytes (RFC 9208 section 5.1).
func (ss *session) tellQuota(q service.Quota) {
	ss.wire.tell("* QUOTA %s (STORAGE %d %d)", quotaRoot, (q.Used+1023)/1024, *q.Limit/1024)
}

// quoted writes a string of a client's that the parser has taken as one.
func quoted(s string) string { return string(appendQuoted(nil, []byte(s))) }

// enable turns CONDSTORE on, from which time every FETCH answer that tells of a change has a MODSEQ
// (RFC 7162 section 3.1).
func (ss *session) enable(a asks) {
	if !a.enable || ss.user.MailboxID == "" {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if a.verb == "ENABLE" {
		ss.wire.amendEnd("* ENABLED", "\r\n", " CONDSTORE")
	}
	opens := a.verb == "SELECT" || a.verb == "EXAMINE"
	if !ss.condStore && ss.selected != nil && !opens {
		ss.tellHighest(ss.selected.modSeq)
	}
	ss.condStore = true
}

func (ss *session) tellHighest(modSeq uint64) {
	ss.wire.tell("* OK [HIGHESTMODSEQ %d] Highest", modSeq)
}

// modSeqItem is a MODSEQ item as it stands at the beginning of a FETCH answer.
func modSeqItem(modSeq uint64) string { return fmt.Sprintf("MODSEQ (%d) ", modSeq) }

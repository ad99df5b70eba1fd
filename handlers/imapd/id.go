package imapd

// Limits of the fields that a client sends with ID (RFC 2971 section 3.3).
const (
	maxIDFields = 30
	maxIDText   = 1024
)

// id answers ID (RFC 2971). The reply has the server's version only after log-in.
func (ss *session) id(tag string, p *commandEditor) error {
	fields, err := idFields(p)
	if err != nil {
		return err
	}
	ss.server.Log.Debug("IMAP client", "mailbox", ss.user.Email, "id", fields)
	version := ss.server.Service.Core.Config.Version
	if ss.user.MailboxID == "" || version == "" {
		ss.conn.writeReply(`* ID ("name" "Mailstead")`)
	} else {
		ss.conn.writeReply(`* ID ("name" "Mailstead" "version" %s)`, quoted(version))
	}
	ss.conn.writeReply("%s OK ID completed", tag)
	return nil
}

// idFields parses the argument of ID: NIL, or a list of names and values.
func idFields(p *commandEditor) ([]string, error) {
	if len(p.tokens) == 3 && p.word(2) == "NIL" {
		return nil, nil
	}
	end, ok := 0, false
	if p.is(2, '(') {
		end, ok = p.closing(2)
	}
	if !ok || end != len(p.tokens)-1 || end%2 == 0 || end > 3+2*maxIDFields {
		return nil, badCommand("ID takes NIL or a list of at most %d names and values", maxIDFields)
	}
	var fields []string
	for i := 3; i < end; i += 2 {
		name, ok := p.value(i)
		value, ok2 := p.value(i + 1)
		if !ok || !ok2 || len(name) > maxIDText || len(value) > maxIDText {
			return nil, badCommand("A name or a value of the ID is not valid")
		}
		fields = append(fields, plainText(name)+"="+plainText(value))
	}
	return fields, nil
}

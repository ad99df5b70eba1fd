package autoconfig

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // what RFC 9562 section 5.5 makes names of
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/mailboxes"
)

const (
	profilePath  = "/mail/profile.mobileconfig"
	profileMedia = "application/x-apple-aspen-config"
)

// writeProfile answers with a configuration profile for Apple's Mail, unsigned. It holds no
// password: the device asks for it.
func (s *Server) writeProfile(q *request) error {
	address := q.r.URL.Query().Get("email")
	if address == "" {
		http.Error(q.w, "say whose: ?email=ADDRESS", http.StatusBadRequest)
		return nil
	}
	email, settings, err := s.settingsFor(q, address)
	if err != nil {
		return err
	}
	if settings == nil || len(settings.IMAP) == 0 || len(settings.SMTP) == 0 { // a profile must have both
		http.NotFound(q.w, q.r)
		return nil
	}
	q.send(profileMedia, newProfile(settings, email, s.Service.Config.Hostname).document())
	return nil
}

// newProfile is the profile of an address. Its identifiers are always the same, so that it replaces
// an older one.
func newProfile(settings *mailboxes.MailSettings, email, host string) plist {
	imap, smtp := settings.IMAP[0], settings.SMTP[0]
	of := strings.Split(host, ".")
	slices.Reverse(of)
	account, whole := nameUUID(host+" mail "+email), nameUUID(host+" profile "+email)
	identifier := strings.Join(of, ".") + ".profile." + whole
	mail := plist{
		{"EmailAccountDescription", email}, {"EmailAccountType", "EmailTypeIMAP"}, {"EmailAddress", email},
		{"IncomingMailServerAuthentication", "EmailAuthPassword"}, {"IncomingMailServerHostName", imap.Host},
		{"IncomingMailServerPortNumber", imap.Port}, {"IncomingMailServerUseSSL", imap.Security != "none"},
		{"IncomingMailServerUsername", email},
		{"OutgoingMailServerAuthentication", "EmailAuthPassword"}, {"OutgoingMailServerHostName", smtp.Host},
		{"OutgoingMailServerPortNumber", smtp.Port}, {"OutgoingMailServerUseSSL", smtp.Security != "none"},
		{"OutgoingMailServerUsername", email}, {"OutgoingPasswordSameAsIncomingPassword", true},
		{"PayloadDescription", "Mail account of " + email}, {"PayloadDisplayName", email},
		{"PayloadIdentifier", identifier + ".mail"}, {"PayloadType", "com.apple.mail.managed"},
		{"PayloadUUID", account}, {"PayloadVersion", 1},
	}
	return plist{
		{"PayloadContent", mail}, {"PayloadDescription", "Mail account of " + email}, {"PayloadDisplayName", email},
		{"PayloadIdentifier", identifier}, {"PayloadOrganization", settings.Name}, {"PayloadRemovalDisallowed", false},
		{"PayloadType", "Configuration"}, {"PayloadUUID", whole}, {"PayloadVersion", 1},
	}
}

// A plist is a dictionary of a property list, in order. Values are strings, integers, booleans and
// dictionaries; a dictionary is written as an array with one item.
type plist []struct {
	key   string
	value any
}

func (p plist) document() []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	b.WriteString(`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n" + `<plist version="1.0">` + "\n")
	p.write(&b)
	b.WriteString("</plist>\n")
	return b.Bytes()
}

func (p plist) write(b *bytes.Buffer) {
	b.WriteString("<dict>\n")
	for _, entry := range p {
		element(b, "key", entry.key)
		switch value := entry.value.(type) {
		case plist:
			b.WriteString("<array>\n")
			value.write(b)
			b.WriteString("</array>\n")
		case bool:
			fmt.Fprintf(b, "<%t/>\n", value)
		case int:
			fmt.Fprintf(b, "<integer>%d</integer>\n", value)
		default:
			element(b, "string", fmt.Sprint(value))
		}
	}
	b.WriteString("</dict>\n")
}

func element(b *bytes.Buffer, name, text string) {
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
	b.WriteString("</" + name + ">\n")
}

// nameUUID is the UUID of a name (version 5, RFC 9562 section 5.5, name space URL).
func nameUUID(name string) string {
	space := []byte("\x6b\xa7\xb8\x11\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8")
	sum := sha1.Sum(append(space, name...)) //nolint:gosec // see the import
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
}

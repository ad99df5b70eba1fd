package autoconfig

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // what RFC 9562 section 5.5 makes names of
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// The path and media type of profiles for Apple devices.
const (
	profilePath  = "/mail/profile.mobileconfig"
	profileMedia = "application/x-apple-aspen-config"
)

// writeProfile sends an unsigned configuration profile for Apple Mail. The profile has no password;
// the device asks its user for it.
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
	// A profile needs both IMAP and SMTP.
	if settings == nil || len(settings.IMAP) == 0 || len(settings.SMTP) == 0 {
		http.NotFound(q.w, q.r)
		return nil
	}
	q.send(profileMedia, newProfile(settings, email, s.Service.Core.Config.Hostname).xmlDocument())
	return nil
}

// newProfile returns the profile of an address. Its identifiers depend only on the host and the
// address, so that the profile replaces an older one on the device.
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

// A plist is a dictionary of an Apple property list, with an order. Values are strings, integers,
// booleans and dictionaries. A nested dictionary is written as an array that has it as its only
// item.
type plist []struct {
	key   string
	value any
}

// xmlDocument returns the property list as an XML document.
func (p plist) xmlDocument() []byte {
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
		writeElement(b, "key", entry.key)
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
			writeElement(b, "string", fmt.Sprint(value))
		}
	}
	b.WriteString("</dict>\n")
}

// writeElement writes an XML element with escaped text.
func writeElement(b *bytes.Buffer, name, text string) {
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a bytes.Buffer never fails
	b.WriteString("</" + name + ">\n")
}

// nameUUID returns the UUID that is made from a name (version 5, RFC 9562 section 5.5), in the name
// space of URLs.
func nameUUID(name string) string {
	space := []byte("\x6b\xa7\xb8\x11\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8")
	sum := sha1.Sum(append(space, name...)) //nolint:gosec // see the import
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
}

// A clientConfig is the configuration document of Thunderbird and other clients, version 1.1
// (draft-ietf-mailmaint-autoconfig).
type clientConfig struct {
	XMLName  xml.Name `xml:"clientConfig"`
	Version  string   `xml:"version,attr"`
	Provider struct {
		ID        string         `xml:"id,attr"`
		Domain    string         `xml:"domain"`
		Name      string         `xml:"displayName"`
		ShortName string         `xml:"displayShortName"`
		Incoming  []clientServer `xml:"incomingServer"`
		Outgoing  []clientServer `xml:"outgoingServer"`
	} `xml:"emailProvider"`
}

type clientServer struct {
	Type           string `xml:"type,attr"`
	Host           string `xml:"hostname"`
	Port           int    `xml:"port"`
	Socket         string `xml:"socketType"`
	Authentication string `xml:"authentication"`
	Username       string `xml:"username"`
}

// addressPlaceholder is the placeholder that clients replace by the address.
const addressPlaceholder = "%EMAILADDRESS%"

// socketTypes has the socketType of each kind of core.MailServer.Security.
var socketTypes = map[string]string{"tls": "SSL", "starttls": "STARTTLS", "none": "plain"}

// writeClientConfig sends the settings of a domain. It is the domain of the request's host. For the
// installation's own host, it is the domain of the address in the query.
func (s *Server) writeClientConfig(q *request) error {
	username, settings, err := s.settingsFor(q, q.r.URL.Query().Get("emailaddress"))
	if settings == nil && err == nil && q.host.Domain != "" {
		username = addressPlaceholder
		settings, err = s.Service.Mailboxes.MailSettings(q.host.Domain)
	}
	if err != nil {
		return err
	}
	if settings == nil {
		http.NotFound(q.w, q.r)
		return nil
	}
	text, err := xml.MarshalIndent(newClientConfig(settings, username), "", "  ")
	if err != nil {
		return err
	}
	q.send(xmlMedia, append([]byte(xml.Header), append(text, '\n')...))
	return nil
}

func newClientConfig(settings *mailboxes.MailSettings, username string) clientConfig {
	out := clientConfig{Version: "1.1"}
	p := &out.Provider
	p.ID, p.Domain, p.Name, p.ShortName = settings.Domain, settings.Domain, settings.Name, settings.Name
	p.Incoming = clientServers("imap", settings.IMAP, username)
	p.Outgoing = clientServers("smtp", settings.SMTP, username)
	return out
}

// clientServers returns the servers with the preferred one first. "password-cleartext" means that
// clients send the password itself; they do so within TLS.
func clientServers(kind string, servers []core.MailServer, username string) []clientServer {
	var out []clientServer
	for _, m := range servers {
		out = append(out, clientServer{kind, m.Host, m.Port, socketTypes[m.Security], "password-cleartext", username})
	}
	return out
}

// Autodiscover: the plain XML protocol ([MS-OXDSCLI]), and the JSON protocol that only leads to it.
const (
	autodiscoverPath  = "/autodiscover/autodiscover.xml"
	autodiscoverV2    = "/autodiscover/autodiscover.json"
	outlookNamespace  = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
	autodiscoverLimit = 16 << 10 // maximum bytes of a request
	xmlMedia          = "text/xml; charset=utf-8"
)

// Error codes of Autodiscover.
const (
	codeInvalidRequest = 600
	codeNoSuchSchema   = 601
	codeNoSuchAddress  = 500
)

// An autodiscoverRequest has the fields of a request that matter here.
type autodiscoverRequest struct {
	Email  string // the user's address
	Schema string // the response schema that the client accepts; "": not given
}

// errNoRequest is the cause of all errors of parseAutodiscover.
var errNoRequest = errors.New("the body is not an Autodiscover request")

// parseAutodiscover parses a request. It ignores namespaces, because clients differ in them. It
// refuses a document type, so that a request has only the five predefined XML entities.
func parseAutodiscover(text []byte) (out autodiscoverRequest, err error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	var at []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, fmt.Errorf("%w: %w", errNoRequest, err)
		}
		switch t := token.(type) {
		case xml.Directive:
			return out, fmt.Errorf("%w: the XML has a document type", errNoRequest)
		case xml.StartElement:
			at = append(at, t.Name.Local)
		case xml.EndElement:
			at = at[:len(at)-1]
		case xml.CharData:
			out.addText(at, string(t))
		}
	}
	if out.Email == "" {
		return out, fmt.Errorf("%w: the XML has no EMailAddress", errNoRequest)
	}
	return out, nil
}

// addText adds text of the element with the path at. Only two elements matter. Their text may come
// in pieces.
func (r *autodiscoverRequest) addText(at []string, text string) {
	if len(at) != 3 || at[0] != "Autodiscover" || at[1] != "Request" {
		return
	}
	switch at[2] {
	case "EMailAddress":
		r.Email += strings.TrimSpace(text)
	case "AcceptableResponseSchema":
		r.Schema += strings.TrimSpace(text)
	}
}

// An outlookAnswer is the response to Outlook with the settings of an address.
type outlookAnswer struct {
	XMLName  xml.Name        `xml:"http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006 Autodiscover"`
	Response outlookResponse `xml:"http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a Response"`
}

type outlookResponse struct {
	DisplayName string `xml:"User>DisplayName"`
	Account     struct {
		Type      string            `xml:"AccountType"`
		Action    string            `xml:"Action"`
		Protocols []outlookProtocol `xml:"Protocol"`
	}
}

type outlookProtocol struct {
	Type           string
	Server         string
	Port           int
	DomainRequired string
	LoginName      string
	SPA            string
	SSL            string
	Encryption     string
	AuthRequired   string
	UsePOPAuth     string `xml:",omitempty"`
	SMTPLast       string `xml:",omitempty"`
}

// An outlookError is the response if there are no settings.
type outlookError struct {
	XMLName xml.Name `xml:"http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006 Autodiscover"`
	Error   struct {
		Time    string `xml:",attr"`
		ID      uint32 `xml:"Id,attr"`
		Code    int    `xml:"ErrorCode"`
		Message string
		Debug   string `xml:"DebugData"`
	} `xml:"Response>Error"`
}

// writeAutodiscover answers Outlook. Outlook also sends a GET to find the server. That is
// redirected to the installation's own host, which most likely has a certificate.
func (s *Server) writeAutodiscover(q *request) error {
	if q.r.Method != http.MethodPost {
		if at := s.Service.Mailboxes.SecureURL(); at != "" && q.host.Domain != "" {
			http.Redirect(q.w, q.r, at+autodiscoverPath, http.StatusFound)
			return nil
		}
		q.w.Header().Set("Allow", http.MethodPost)
		http.Error(q.w, "method not allowed", http.StatusMethodNotAllowed)
		return nil
	}
	text, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, autodiscoverLimit))
	if err != nil {
		http.Error(q.w, "the request is too long, or came only in part", http.StatusRequestEntityTooLarge)
		return nil
	}
	asked, err := parseAutodiscover(text)
	if err != nil {
		return s.refuseOutlook(q, codeInvalidRequest, "Invalid Request")
	}
	if asked.Schema != "" && asked.Schema != outlookNamespace {
		return s.refuseOutlook(q, codeNoSuchSchema, "Provider is not available")
	}
	email, settings, err := s.settingsFor(q, asked.Email)
	if err != nil {
		return err
	}
	if settings == nil {
		return s.refuseOutlook(q, codeNoSuchAddress, "The email address can't be found.")
	}
	return q.sendXML(newOutlookAnswer(settings, email))
}

// newOutlookAnswer returns the response with the settings of an address.
func newOutlookAnswer(settings *mailboxes.MailSettings, email string) outlookAnswer {
	var out outlookAnswer
	r := &out.Response
	r.DisplayName, r.Account.Type, r.Account.Action = email, "email", "settings"
	if len(settings.IMAP) > 0 {
		r.Account.Protocols = append(r.Account.Protocols, newOutlookProtocol("IMAP", settings.IMAP[0], email))
	}
	if len(settings.SMTP) > 0 {
		smtp := newOutlookProtocol("SMTP", settings.SMTP[0], email)
		smtp.UsePOPAuth, smtp.SMTPLast = "on", "off"
		r.Account.Protocols = append(r.Account.Protocols, smtp)
	}
	return out
}

func newOutlookProtocol(kind string, m core.MailServer, email string) outlookProtocol {
	out := outlookProtocol{
		Type: kind, Server: m.Host, Port: m.Port, DomainRequired: "off", LoginName: email, SPA: "off",
		SSL: "on", Encryption: "SSL", AuthRequired: "on",
	}
	switch m.Security {
	case "starttls":
		out.Encryption = "TLS"
	case "none":
		out.SSL, out.Encryption = "off", "None"
	}
	return out
}

// refuseOutlook answers Outlook with an error.
func (s *Server) refuseOutlook(q *request, code int, message string) error {
	var out outlookError
	out.Error.Time, out.Error.ID = s.Now().UTC().Format("15:04:05.0000000"), crc32.ChecksumIEEE([]byte(s.Service.Core.Config.Hostname))
	out.Error.Code, out.Error.Message = code, message
	return q.sendXML(out)
}

// sendXML sends the response to a POST. It must not be cached.
func (q *request) sendXML(body any) error {
	text, err := xml.MarshalIndent(body, "", "  ")
	if err != nil {
		return err
	}
	q.w.Header().Set("Cache-Control", "no-store")
	q.write(http.StatusOK, xmlMedia, append([]byte(xml.Header), append(text, '\n')...))
	return nil
}

// writeAutodiscoverV2 answers clients of the JSON protocol with the URL of the XML protocol. The
// user's address is in the path or in the query.
func (s *Server) writeAutodiscoverV2(q *request) error {
	protocol, email := valueOf(q.r.URL.Query(), "Protocol"), valueOf(q.r.URL.Query(), "Email")
	if at := q.r.URL.Path; len(at) > len(autodiscoverV2) {
		email = at[len(autodiscoverV2+"/v1.0/"):]
	}
	_, settings, err := s.settingsFor(q, email)
	switch {
	case err != nil:
		return err
	case email == "":
		return q.refuseJSON(http.StatusBadRequest, "MandatoryParameterMissing", "A valid value must be provided for the query parameter 'Email'.")
	case protocol == "":
		return q.refuseJSON(http.StatusBadRequest, "MandatoryParameterMissing", "A valid value must be provided for the query parameter 'Protocol'.")
	case !strings.EqualFold(protocol, "AutodiscoverV1"):
		return q.refuseJSON(http.StatusBadRequest, "ProtocolNotSupported", "The only protocol here is 'AutodiscoverV1'.")
	case settings == nil:
		return q.refuseJSON(http.StatusNotFound, "UserNotFound", "There are no settings for this address here.")
	}
	at := s.Service.Mailboxes.SecureURL()
	if at == "" {
		at = s.Service.Core.Config.BaseURL
	}
	text, err := json.Marshal(struct{ Protocol, Url string }{"AutodiscoverV1", at + autodiscoverPath}) //nolint:staticcheck // the protocol's spelling
	if err != nil {
		return err
	}
	q.send("application/json", text)
	return nil
}

// refuseJSON answers a client of the JSON protocol with an error.
func (q *request) refuseJSON(status int, code, message string) error {
	text, err := json.Marshal(struct{ ErrorCode, ErrorMessage string }{code, message})
	if err != nil {
		return err
	}
	q.w.Header().Set("Cache-Control", "no-store")
	q.write(status, "application/json", text)
	return nil
}

// valueOf returns the query parameter that has the name in any case, "" if there is none.
func valueOf(query url.Values, name string) string {
	for key, values := range query {
		if strings.EqualFold(key, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

package autoconfig

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/service/mailboxes"
)

// The plain-XML Autodiscover protocol ([MS-OXDSCLI]) and the look-up in JSON that leads to it.
const (
	autodiscoverPath  = "/autodiscover/autodiscover.xml"
	autodiscoverV2    = "/autodiscover/autodiscover.json"
	outlookSpace      = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
	autodiscoverLimit = 16 << 10 // bytes of a request
	xmlMedia          = "text/xml; charset=utf-8"
)

// Codes of Autodiscover errors.
const (
	invalidRequest = 600
	noSuchSchema   = 601
	noSuchAddress  = 500
)

// An autodiscoverRequest is what is read of a request.
type autodiscoverRequest struct {
	Email  string
	Schema string // of the response that the client understands; "" if it does not say
}

var errNoRequest = errors.New("this is no Autodiscover request")

// parseAutodiscover reads a request. It ignores namespaces, in which clients differ. It refuses a
// document type, and so all entities but the five of XML.
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
			return out, fmt.Errorf("%w: it has a document type", errNoRequest)
		case xml.StartElement:
			at = append(at, t.Name.Local)
		case xml.EndElement:
			at = at[:len(at)-1]
		case xml.CharData:
			out.take(at, string(t))
		}
	}
	if out.Email == "" {
		return out, fmt.Errorf("%w: it has no EMailAddress", errNoRequest)
	}
	return out, nil
}

// take keeps the text of an element that is read. A text may come in pieces.
func (r *autodiscoverRequest) take(at []string, text string) {
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

// An outlookAnswer is the response to Outlook.
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

// An outlookError is the response where there are no settings.
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

// writeAutodiscover answers Outlook. A GET, with which it looks for the server to ask, is
// redirected to our own name, which is the likeliest to have a certificate.
func (s *Server) writeAutodiscover(q *request) error {
	if q.r.Method != http.MethodPost {
		if at := s.Service.SecureURL(); at != "" && q.host.Domain != "" {
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
		return s.refuseOutlook(q, invalidRequest, "Invalid Request")
	}
	if asked.Schema != "" && asked.Schema != outlookSpace {
		return s.refuseOutlook(q, noSuchSchema, "Provider is not available")
	}
	email, settings, err := s.settingsFor(q, asked.Email)
	if err != nil {
		return err
	}
	if settings == nil {
		return s.refuseOutlook(q, noSuchAddress, "The email address can't be found.")
	}
	return q.sendXML(newOutlookAnswer(settings, email))
}

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

func newOutlookProtocol(kind string, m mailboxes.MailServer, email string) outlookProtocol {
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

func (s *Server) refuseOutlook(q *request, code int, message string) error {
	var out outlookError
	out.Error.Time, out.Error.ID = s.Now().UTC().Format("15:04:05.0000000"), crc32.ChecksumIEEE([]byte(s.Service.Config.Hostname))
	out.Error.Code, out.Error.Message = code, message
	return q.sendXML(out)
}

// sendXML answers a POST, which nobody caches.
func (q *request) sendXML(body any) error {
	text, err := xml.MarshalIndent(body, "", "  ")
	if err != nil {
		return err
	}
	q.w.Header().Set("Cache-Control", "no-store")
	q.write(http.StatusOK, xmlMedia, append([]byte(xml.Header), append(text, '\n')...))
	return nil
}

// writeAutodiscoverV2 tells clients of version 2 where version 1 is. The address is in the path or
// the query.
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
	at := s.Service.SecureURL()
	if at == "" {
		at = s.Service.Config.BaseURL
	}
	text, err := json.Marshal(struct{ Protocol, Url string }{"AutodiscoverV1", at + autodiscoverPath}) //nolint:staticcheck // the protocol's spelling
	if err != nil {
		return err
	}
	q.send("application/json", text)
	return nil
}

func (q *request) refuseJSON(status int, code, message string) error {
	text, err := json.Marshal(struct{ ErrorCode, ErrorMessage string }{code, message})
	if err != nil {
		return err
	}
	q.w.Header().Set("Cache-Control", "no-store")
	q.write(status, "application/json", text)
	return nil
}

// valueOf is a value of the query, ignoring the case of its name.
func valueOf(query url.Values, name string) string {
	for key, values := range query {
		if strings.EqualFold(key, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

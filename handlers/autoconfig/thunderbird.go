package autoconfig

import (
	"encoding/xml"
	"net/http"

	"github.com/mailstead/mailstead/service/mailboxes"
)

// A clientConfig is the document of Thunderbird and other clients, version 1.1
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

// wholeAddress is a placeholder for the address, which clients replace.
const wholeAddress = "%EMAILADDRESS%"

var socketTypes = map[string]string{"tls": "SSL", "starttls": "STARTTLS", "none": "plain"}

// writeClientConfig answers with the settings of a domain: the one of the host, or of the address
// if the host is our own.
func (s *Server) writeClientConfig(q *request) error {
	username, settings, err := s.settingsFor(q, q.r.URL.Query().Get("emailaddress"))
	if settings == nil && err == nil && q.host.Domain != "" {
		username = wholeAddress
		settings, err = s.Service.MailSettings(q.host.Domain)
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

// clientServers lists servers, the preferred one first. Clients send the password itself, inside
// TLS.
func clientServers(kind string, servers []mailboxes.MailServer, username string) []clientServer {
	var out []clientServer
	for _, m := range servers {
		out = append(out, clientServer{kind, m.Host, m.Port, socketTypes[m.Security], "password-cleartext", username})
	}
	return out
}

package mailboxes

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// MailSettings are the settings that mail clients of one domain get. The preferred server of each
// kind comes first; a kind that is off has none. The user name is the whole address.
type MailSettings struct {
	Domain string
	Name   string // of the domain, in its own letters
	IMAP   []core.MailServer
	SMTP   []core.MailServer // for submission
}

// MailSettings gives the settings of a domain whose mail is here; nil if it is not, or if nothing
// is on. Whether there is a mailbox makes no difference.
func (s *Service) MailSettings(domain string) (*MailSettings, error) {
	d, err := s.hosted(domain)
	if d == nil || err != nil {
		return nil, err
	}
	c := s.Config
	out := &MailSettings{
		Domain: d.Name, Name: core.UnicodeName(d.Name),
		IMAP: core.MailServers(c.ClientName(), c.IMAPPort, c.IMAPBeside, c.IMAPSecurity),
		SMTP: core.MailServers(c.ClientName(), c.SubmissionPort, c.SubmissionBeside, c.SMTPSecurity),
	}
	if len(out.IMAP) == 0 && len(out.SMTP) == 0 {
		return nil, nil
	}
	return out, nil
}

// MailSettingsOf gives the settings for an address, in its one form; nil if its domain is not here,
// or it is no address.
func (s *Service) MailSettingsOf(address string) (email string, out *MailSettings, err error) {
	email, err = core.NormalizeEmail("email", address)
	if err != nil {
		return "", nil, nil // what is no address has no settings
	}
	_, domain, _ := msg.SplitEmail(email)
	out, err = s.MailSettings(domain)
	return email, out, err
}

// STSPolicy gives the MTA-STS policy of a domain whose mail is here; "" if it is not, or if nobody
// who applies the policy could deliver now.
func (s *Service) STSPolicy(domain string) (string, error) {
	d, err := s.hosted(domain)
	if d == nil || err != nil || !s.trusted() {
		return "", err
	}
	return dnsprov.STSPolicy(s.Config.Hostname), nil
}

// trusted reports whether this host shows mail servers a certificate that holds. A domain may have
// one before the host does, by another challenge, and the host's may run out. One in a file is the
// operator's care.
func (s *Service) trusted() bool {
	if s.Config.ACME == nil || !s.Config.ACME.Host {
		return true
	}
	cert := s.certs.HostCertificate()
	if cert == nil {
		return false
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	return err == nil && s.Now().Before(leaf.NotAfter)
}

// hosted gives a complete domain whose mail is here; nil if there is none of that name.
func (s *Service) hosted(domain string) (*store.Domain, error) {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = store.DomainByName.Get(tx, domain)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.Hosted() {
		return nil, nil
	}
	return d, err
}

// SecureURL is this host's own name by HTTPS, without a trailing slash; "" if it serves none.
func (s *Service) SecureURL() string {
	c := s.Config
	switch {
	case !c.HTTPS:
		return ""
	case c.HTTPSPort == 0 || c.HTTPSPort == 443:
		return "https://" + c.Hostname
	}
	return fmt.Sprintf("https://%s:%d", c.Hostname, c.HTTPSPort)
}

// RequestHost is the name in the Host field of a request: lower-case, without port and last dot.
func RequestHost(field string) string {
	if name, _, err := net.SplitHostPort(field); err == nil {
		field = name
	}
	return strings.ToLower(strings.TrimSuffix(field, "."))
}

// A VisitedHost is what a request's Host field means to mail clients and other mail servers.
type VisitedHost struct {
	Label  string // one of dnsprov's for what is served below domains; "" for the domain itself
	Domain string // a domain whose mail is here; "" for this host's own name, under which there is every domain
}

// VisitHost says what a Host field means; nil if it is nothing of that kind.
func (s *Service) VisitHost(field string) (*VisitedHost, error) {
	host := RequestHost(field)
	if host == s.Config.Hostname || host == s.Config.ClientHost && host != "" {
		return &VisitedHost{}, nil
	}
	if label, domain, _ := strings.Cut(host, "."); servedLabel(label) {
		if d, err := s.hosted(domain); d != nil || err != nil {
			return &VisitedHost{Label: label, Domain: domain}, err
		}
	}
	d, err := s.hosted(host)
	if d == nil || err != nil {
		return nil, err
	}
	return &VisitedHost{Domain: host}, nil
}

func servedLabel(label string) bool {
	return label == dnsprov.STSLabel || label == dnsprov.AutoconfigLabel || label == dnsprov.AutodiscoverLabel
}

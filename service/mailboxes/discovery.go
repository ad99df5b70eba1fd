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

// MailSettings are the settings for mail clients of one domain. The preferred server of each
// protocol comes first; a protocol that is off has none. The username is the whole address.
type MailSettings struct {
	Domain string
	Name   string // of the domain, in Unicode
	IMAP   []core.MailServer
	SMTP   []core.MailServer // for submission
}

// MailSettings returns the settings of a domain that is hosted here. It returns nil if the domain
// is not hosted here, or if IMAP and submission are off. The domain need not have a mailbox.
func (s *Service) MailSettings(domain string) (*MailSettings, error) {
	d, err := s.hostedDomain(domain)
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

// MailSettingsOf returns the normalized address and the settings of its domain. The settings are
// nil if the address is not valid or its domain is not hosted here.
func (s *Service) MailSettingsOf(address string) (email string, out *MailSettings, err error) {
	email, err = core.NormalizeEmail("email", address)
	if err != nil {
		return "", nil, nil // not an address
	}
	_, domain, _ := msg.SplitEmail(email)
	out, err = s.MailSettings(domain)
	return email, out, err
}

// STSPolicy returns the MTA-STS policy of a domain that is hosted here. It returns "" if the domain
// is not hosted here, or if this host has no valid certificate: then senders that obey the policy
// could not deliver mail.
func (s *Service) STSPolicy(domain string) (string, error) {
	d, err := s.hostedDomain(domain)
	if d == nil || err != nil || !s.hasValidCertificate() {
		return "", err
	}
	return dnsprov.STSPolicy(s.Config.Hostname), nil
}

// hasValidCertificate reports whether this host has a valid certificate for mail servers. An ACME
// certificate may not be issued yet, or may have expired. A certificate from a file counts as
// valid: the operator is responsible for it.
func (s *Service) hasValidCertificate() bool {
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

// hostedDomain returns the complete domain of that name that is hosted here; nil if there is none.
func (s *Service) hostedDomain(domain string) (*store.Domain, error) {
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

// SecureURL returns the HTTPS URL of this host, without a trailing slash; "" if it serves no HTTPS.
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

// RequestHost returns the name in a request's Host field: lower case, without port and trailing
// dot.
func RequestHost(field string) string {
	if name, _, err := net.SplitHostPort(field); err == nil {
		field = name
	}
	return strings.ToLower(strings.TrimSuffix(field, "."))
}

// A VisitedHost is what a request's Host field names: this host, or a domain that is hosted here.
type VisitedHost struct {
	Label  string // one of dnsprov's labels for hosts below a domain; "" for the domain itself
	Domain string // a domain that is hosted here; "" for this host's own name, which serves all domains
}

// VisitHost returns what a request's Host field names. It returns nil for a name other than this
// host, a domain that is hosted here, and a host below such a domain that this server answers for.
func (s *Service) VisitHost(field string) (*VisitedHost, error) {
	host := RequestHost(field)
	if host == s.Config.Hostname || host == s.Config.ClientHost && host != "" {
		return &VisitedHost{}, nil
	}
	if label, domain, _ := strings.Cut(host, "."); isServedLabel(label) {
		if d, err := s.hostedDomain(domain); d != nil || err != nil {
			return &VisitedHost{Label: label, Domain: domain}, err
		}
	}
	d, err := s.hostedDomain(host)
	if d == nil || err != nil {
		return nil, err
	}
	return &VisitedHost{Domain: host}, nil
}

func isServedLabel(label string) bool {
	return label == dnsprov.STSLabel || label == dnsprov.AutoconfigLabel || label == dnsprov.AutodiscoverLabel
}

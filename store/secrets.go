package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store/engine"
)

// Some fields of records are secrets that the service has sealed, which means encrypted. The store
// knows which fields these are, and the binding of each: a text that ties the sealed secret to its
// record, used as associated data of the encryption. The store knows neither the key nor the
// secrets.

// CertificateAccountBinding returns the associated data for encrypting our private key at a
// certificate authority.
func CertificateAccountBinding(directory string) string { return "acme account " + directory }

// CertificateBinding returns the associated data for encrypting the private keys of a certificate.
func CertificateBinding(set string) string { return "certificate " + set }

// DNSSECBinding returns the associated data for encrypting a domain's zone signing key.
func DNSSECBinding(domainID string) string { return "dnssec " + domainID }

// DKIMBinding returns the associated data for encrypting a domain's DKIM keys.
func DKIMBinding(domainID string) string { return "dkim " + domainID }

// EdgeBinding returns the associated data for encrypting a domain's API token for the edge
// provider.
func EdgeBinding(domainID string) string { return "edge " + domainID }

// MailboxBinding returns the associated data for encrypting a mailbox's password.
func MailboxBinding(id string) string { return "mailbox " + id }

// SCRAMBinding returns the associated data for encrypting the SCRAM keys of a mailbox's password.
func SCRAMBinding(id string) string { return "mailbox " + id + " scram" }

// ServerBinding returns the associated data for encrypting the password at an external mailbox's
// server. field is imap or smtp.
func ServerBinding(id, field string) string { return "mailbox " + id + " " + field }

// ReplayBinding returns the associated data for encrypting the stored response to a request with an
// Idempotency-Key.
func ReplayBinding(id string) string { return "replay " + id }

// SettingBinding returns the associated data for encrypting the value of a setting.
func SettingBinding(key string) string { return "setting " + key }

// TOTPBinding returns the associated data for encrypting a user's TOTP secret.
func TOTPBinding(userID string) string { return userID + " totp" }

// WebhookBinding returns the associated data for encrypting a webhook's secrets.
func WebhookBinding(id string) string { return "webhook " + id }

// WebhookHeaderBinding returns the associated data for a header field, by its name in lower case.
func WebhookHeaderBinding(id, name string) string { return "webhook " + id + " header " + name }

// secretTables lists the tables whose records have sealed secrets.
var secretTables = untypedTables(Mailboxes, Credentials, DNSCredentials, Domains, Webhooks, Certificates, CertificateAccounts, Users, Idempotencies, Jobs, Settings)

func (m *Mailbox) visitSecrets(visit engine.SecretVisitor) {
	visit(MailboxBinding(m.ID), &m.PasswordSealed)
	visit(SCRAMBinding(m.ID), &m.SCRAM)
	if m.External == nil {
		return
	}
	external := *m.External
	m.External = &external
	visit(ServerBinding(m.ID, "imap"), &external.IMAP.PasswordSealed)
	if external.SMTP != nil {
		smtp := *external.SMTP
		external.SMTP = &smtp
		visit(ServerBinding(m.ID, "smtp"), &smtp.PasswordSealed)
	}
}

func (d *Domain) visitSecrets(visit engine.SecretVisitor) {
	visit(EdgeBinding(d.ID), &d.EdgeToken)
	d.DKIM = slices.Clone(d.DKIM)
	for i := range d.DKIM {
		visit(DKIMBinding(d.ID), &d.DKIM[i].Sealed)
	}
	if d.DNSSEC != nil {
		key := *d.DNSSEC
		d.DNSSEC = &key
		visit(DNSSECBinding(d.ID), &key.Sealed)
	}
}

func (w *Webhook) visitSecrets(visit engine.SecretVisitor) {
	visit(WebhookBinding(w.ID), &w.Secret)
	visit(WebhookBinding(w.ID), &w.OldSecret)
	w.Headers = slices.Clone(w.Headers)
	for i := range w.Headers {
		visit(WebhookHeaderBinding(w.ID, strings.ToLower(w.Headers[i].Name)), &w.Headers[i].Sealed)
	}
}

func (c *Certificate) visitSecrets(visit engine.SecretVisitor) {
	visit(CertificateBinding(c.ID), &c.Key)
	visit(CertificateBinding(c.ID), &c.NextKey)
	visit(CertificateBinding(c.ID), &c.Order.Key)
}

func (a *CertificateAccount) visitSecrets(visit engine.SecretVisitor) {
	visit(CertificateAccountBinding(a.Directory), &a.Key)
}

func (u *User) visitSecrets(visit engine.SecretVisitor) {
	if u.TOTP != nil {
		totp := *u.TOTP
		u.TOTP = &totp
		visit(TOTPBinding(u.ID), &totp.Sealed)
	}
}

func (i *Idempotency) visitSecrets(visit engine.SecretVisitor) { visit(ReplayBinding(i.ID), &i.Sealed) }

func (s *Setting) visitSecrets(visit engine.SecretVisitor) { visit(SettingBinding(s.Key), &s.Sealed) }

// visitSecrets calls visit with the secrets in a job's arguments. The setup of a domain has the
// token of the edge provider and the passwords of the new mailboxes. An import of mail has the
// password at the other server.
func (j *Job) visitSecrets(visit engine.SecretVisitor) {
	if !bytes.Contains(j.Args, []byte(`"edge_token"`)) && !bytes.Contains(j.Args, []byte(`"mailboxes"`)) && !bytes.Contains(j.Args, []byte(`"import_server"`)) {
		return
	}
	var args struct {
		MailboxID string     `json:"mailbox_id"`
		Server    *Server    `json:"import_server"`
		DomainID  string     `json:"domain_id"`
		Mailboxes []*Mailbox `json:"mailboxes"`
		EdgeToken []byte     `json:"edge_token"`
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(j.Args, &args) != nil || json.Unmarshal(j.Args, &all) != nil {
		return // a job of another kind
	}
	changed := map[string]any{}
	watch := func(name string, value any) engine.SecretVisitor {
		return func(binding string, secret *[]byte) {
			before := *secret
			if visit(binding, secret); !bytes.Equal(before, *secret) {
				changed[name] = value
			}
		}
	}
	watch("edge_token", &args.EdgeToken)(EdgeBinding(args.DomainID), &args.EdgeToken)
	if args.Server != nil {
		watch("import_server", &args.Server)(ServerBinding(args.MailboxID, "imap"), &args.Server.PasswordSealed)
	}
	for _, m := range args.Mailboxes {
		m.visitSecrets(watch("mailboxes", &args.Mailboxes))
	}
	for name, value := range changed {
		text, err := json.Marshal(value)
		if err != nil {
			return
		}
		all[name] = text
	}
	if len(changed) == 0 {
		return
	}
	if text, err := json.Marshal(all); err == nil {
		j.Args = text
	}
}

// Secrets returns secrets of the first records of each table. It stops in a table after the record
// with which it has at least `enough` secrets of that table.
func (tx *Tx) Secrets(enough int) (list []Secret) {
	for _, t := range secretTables {
		list = append(list, t.SomeSecrets(tx, enough)...)
	}
	return list
}

// resealBatch is the largest number of records that one transaction examines.
const resealBatch = 200

// Reseal passes the secrets of some records to reseal, in the order of tables and ids, and writes
// the records that have changed. No Change is published for them. It continues after the position
// `after`, which is "" in the first call. It returns the number of changed records and the next
// position, which is "" after the last record.
func (tx *Tx) Reseal(after string, reseal Reseal) (records int, next string, err error) {
	table, id, _ := strings.Cut(after, "\x00")
	left := resealBatch
	for _, t := range secretTables {
		if table != "" && table != t.Name() {
			continue
		}
		found, err := t.ResealRows(tx, id, left, reseal)
		records += found.Changed
		if err != nil || found.More {
			return records, t.Name() + "\x00" + found.Last, err
		}
		table, id, left = "", "", left-found.Examined
	}
	return records, "", nil
}

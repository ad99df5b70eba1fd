package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store/engine"
)

// Some fields of records are secrets that the service has sealed. The store knows in which fields
// they are, and the place that each is sealed for: a text that binds it to its record. It knows
// neither the key nor the secret.

// AccountPlace is the place of the key of an account at a certificate authority.
func AccountPlace(directory string) string { return "acme account " + directory }

// CertificatePlace is the place of the keys of a certificate.
func CertificatePlace(set string) string { return "certificate " + set }

// DNSSECPlace is the place of a domain's zone signing key.
func DNSSECPlace(domainID string) string { return "dnssec " + domainID }

// DKIMPlace is the place of a domain's DKIM keys.
func DKIMPlace(domainID string) string { return "dkim " + domainID }

// EdgePlace is the place of a domain's API token for the edge provider.
func EdgePlace(domainID string) string { return "edge " + domainID }

// MailboxPlace is the place of a mailbox's password.
func MailboxPlace(id string) string { return "mailbox " + id }

// SCRAMPlace is the place of the SCRAM keys of a mailbox's password.
func SCRAMPlace(id string) string { return "mailbox " + id + " scram" }

// ServerPlace is the place of the password for an external mailbox's server; field is imap or smtp.
func ServerPlace(id, field string) string { return "mailbox " + id + " " + field }

// ReplayPlace is the place of a stored response to a request with an Idempotency-Key.
func ReplayPlace(id string) string { return "replay " + id }

// TOTPPlace is the place of a user's TOTP secret.
func TOTPPlace(userID string) string { return userID + " totp" }

// WebhookPlace is the place of a webhook's secrets.
func WebhookPlace(id string) string { return "webhook " + id }

// secretTables are the tables that have records with secrets.
var secretTables = untypedTables(Mailboxes, Credentials, Domains, Webhooks, Certificates, CertificateAccounts, Users, Idempotencies, Jobs)

func (m *Mailbox) secrets(each engine.EachSecret) {
	each(MailboxPlace(m.ID), &m.PasswordSealed)
	each(SCRAMPlace(m.ID), &m.SCRAM)
	if m.External == nil {
		return
	}
	external := *m.External
	m.External = &external
	each(ServerPlace(m.ID, "imap"), &external.IMAP.PasswordSealed)
	if external.SMTP != nil {
		smtp := *external.SMTP
		external.SMTP = &smtp
		each(ServerPlace(m.ID, "smtp"), &smtp.PasswordSealed)
	}
}

func (d *Domain) secrets(each engine.EachSecret) {
	each(EdgePlace(d.ID), &d.EdgeToken)
	d.DKIM = slices.Clone(d.DKIM)
	for i := range d.DKIM {
		each(DKIMPlace(d.ID), &d.DKIM[i].Sealed)
	}
	if d.DNSSEC != nil {
		key := *d.DNSSEC
		d.DNSSEC = &key
		each(DNSSECPlace(d.ID), &key.Sealed)
	}
}

func (w *Webhook) secrets(each engine.EachSecret) {
	each(WebhookPlace(w.ID), &w.Secret)
	each(WebhookPlace(w.ID), &w.OldSecret)
}

func (c *Certificate) secrets(each engine.EachSecret) {
	each(CertificatePlace(c.ID), &c.Key)
	each(CertificatePlace(c.ID), &c.NextKey)
	each(CertificatePlace(c.ID), &c.Order.Key)
}

func (a *CertificateAccount) secrets(each engine.EachSecret) { each(AccountPlace(a.Directory), &a.Key) }

func (u *User) secrets(each engine.EachSecret) {
	if u.TOTP != nil {
		totp := *u.TOTP
		u.TOTP = &totp
		each(TOTPPlace(u.ID), &totp.Sealed)
	}
}

func (i *Idempotency) secrets(each engine.EachSecret) { each(ReplayPlace(i.ID), &i.Sealed) }

// secrets finds the secrets in a job's arguments: for the setup of a domain, the token of the edge
// provider and the passwords of the new mailboxes; for an import of mail, the password at the other
// server.
func (j *Job) secrets(each engine.EachSecret) {
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
	watch := func(name string, value any) engine.EachSecret {
		return func(place string, secret *[]byte) {
			before := *secret
			if each(place, secret); !bytes.Equal(before, *secret) {
				changed[name] = value
			}
		}
	}
	watch("edge_token", &args.EdgeToken)(EdgePlace(args.DomainID), &args.EdgeToken)
	if args.Server != nil {
		watch("import_server", &args.Server)(ServerPlace(args.MailboxID, "imap"), &args.Server.PasswordSealed)
	}
	for _, m := range args.Mailboxes {
		m.secrets(watch("mailboxes", &args.Mailboxes))
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

// Secrets returns some secrets of each table: at least `most` if the table has that many, and all
// of the last record.
func (tx *Tx) Secrets(most int) (list []Secret) {
	for _, t := range secretTables {
		list = append(list, t.SomeSecrets(tx, most)...)
	}
	return list
}

// resealAtATime is the most records that one transaction examines.
const resealAtATime = 200

// Reseal passes the secrets of some records through reseal, in the order of tables and ids, and
// writes the records that this changes. No Change is published for them. It continues after
// `after`, which is "" at first. It returns how many records it has changed and where to continue;
// next is "" after the last record.
func (tx *Tx) Reseal(after string, reseal Reseal) (records int, next string, err error) {
	table, id, _ := strings.Cut(after, "\x00")
	left := resealAtATime
	for _, t := range secretTables {
		if table != "" && table != t.Name() {
			continue
		}
		found, err := t.ResealRows(tx, id, left, reseal)
		records += found.Changed
		if err != nil || found.More {
			return records, t.Name() + "\x00" + found.Last, err
		}
		table, id, left = "", "", left-found.Looked
	}
	return records, "", nil
}

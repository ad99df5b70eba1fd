package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store/engine"
)

// Some fields of records are secrets that the service has sealed. The store knows where they are
// and what each is sealed for, its place; it knows neither the key nor what is in them.

// AccountPlace is what the key of an account at a certificate authority is sealed for.
func AccountPlace(directory string) string { return "acme account " + directory }

// CertificatePlace is what the keys of a set's certificates are sealed for.
func CertificatePlace(set string) string { return "certificate " + set }

// DNSSECPlace is what the zone's key of a domain is sealed for.
func DNSSECPlace(domainID string) string { return "dnssec " + domainID }

// DKIMPlace is what the DKIM keys of a domain are sealed for.
func DKIMPlace(domainID string) string { return "dkim " + domainID }

// EdgePlace is what the edge provider's token of a domain is sealed for.
func EdgePlace(domainID string) string { return "edge " + domainID }

// MailboxPlace is what the password of a mailbox is sealed for.
func MailboxPlace(id string) string { return "mailbox " + id }

// SCRAMPlace is what the SCRAM keys of a mailbox's password are sealed for.
func SCRAMPlace(id string) string { return "mailbox " + id + " scram" }

// ServerPlace is what the password of an external mailbox's server, imap or smtp, is sealed for.
func ServerPlace(id, field string) string { return "mailbox " + id + " " + field }

// ReplayPlace is what the kept answer to a request is sealed for.
func ReplayPlace(id string) string { return "replay " + id }

// TOTPPlace is what the second factor of a user is sealed for.
func TOTPPlace(userID string) string { return userID + " totp" }

// WebhookPlace is what the secrets of a webhook are sealed for.
func WebhookPlace(id string) string { return "webhook " + id }

// secretTables are those whose records have secrets.
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

// secrets are those in the arguments of a job that sets a domain up, the token of the edge provider
// and the passwords of the mailboxes that it is to make, and of one that imports mail, the password
// at the server that it comes from.
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
		return // of another kind
	}
	changed := map[string]any{}
	told := func(name string, value any) engine.EachSecret {
		return func(place string, secret *[]byte) {
			before := *secret
			if each(place, secret); !bytes.Equal(before, *secret) {
				changed[name] = value
			}
		}
	}
	told("edge_token", &args.EdgeToken)(EdgePlace(args.DomainID), &args.EdgeToken)
	if args.Server != nil {
		told("import_server", &args.Server)(ServerPlace(args.MailboxID, "imap"), &args.Server.PasswordSealed)
	}
	for _, m := range args.Mailboxes {
		m.secrets(told("mailboxes", &args.Mailboxes))
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

// Secrets gives some secrets of each table: as many as `most`, or a record more, where there are so
// many.
func (tx *Tx) Secrets(most int) (list []Secret) {
	for _, t := range secretTables {
		list = append(list, t.SomeSecrets(tx, most)...)
	}
	return list
}

// resealAtATime bounds how many records one transaction looks at.
const resealAtATime = 200

// Reseal has the secrets of some records go through reseal, in the order of tables and ids, and
// writes the records that this changes. Nobody is told of these changes. It goes on behind `after`,
// which is "" at first, and gives how many records it has changed, and where to go on: "" behind
// the last one.
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

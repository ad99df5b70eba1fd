package mailboxes

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/store"
)

const (
	inboxTTL      = time.Hour // how long an inbox exists by default
	inboxNameSize = 10        // characters of a generated username
)

// CreateInboxIn is the body of create_inbox. All fields are optional.
type CreateInboxIn struct {
	Domain   string `json:"domain" alias:"domain_id" log:"true"`       // The name or id of the domain; by default the only one that is set up.
	Username string `json:"username" example:"signup-test" log:"true"` // The part before the @; by default ten random letters and digits.
	Name     string `json:"name" max:"200"`
	// Seconds until it is deleted: from a minute to 30 days; an hour by default.
	TTLSeconds *int `json:"ttl_seconds" min:"60" max:"2592000" example:"3600" log:"true"`
	// What may be sent from it, with the token and with the password, and whether reading mail
	// taints these two. By default everything may be sent, and reading does not taint.
	Policy *agents.Policy `json:"policy"`
}

// InboxCreated is a mailbox that expires, with what a program needs to use it. The password and
// token are shown only this once.
type InboxCreated struct {
	Inbox      EmailUser  `json:"inbox"`
	Credential Credential `json:"credential"`
	// The credential's password, for IMAP and submission with the inbox's address. Shown only this
	// once.
	Password string `json:"password" words:"ours" example:"abcd-efgh-jkmn-pqrs-tuvw-xyz2"`
	// An API token that is limited to the inbox, with `read` and `write`. Shown only this once.
	Token     string       `json:"token" words:"ours"`
	MCPURL    string       `json:"mcp_url" words:"ours" example:"https://mail.example.com/mcp" format:"uri"` // The URL that assistants connect to, with the token.
	SMTP      ClientServer `json:"smtp"`
	IMAP      ClientServer `json:"imap"`
	ExpiresAt core.Time    `json:"expires_at"`
}

// A ClientServer is a server that a mail client connects to.
type ClientServer struct {
	Host     string `json:"host" words:"ours" example:"mail.example.com"`
	Port     int    `json:"port"`
	Security string `json:"security" enum:"tls|starttls|none"`
}

// CreateInbox creates a mailbox that expires, with a password and a token that are valid only for
// it. If one of them cannot be created, nothing is.
func (s *Service) CreateInbox(ctx context.Context, who core.Actor, in CreateInboxIn) (*InboxCreated, error) {
	ttl := inboxTTL
	if in.TTLSeconds != nil {
		ttl = time.Duration(*in.TTLSeconds) * time.Second
	}
	var policy store.Policy
	if in.Policy != nil {
		var err error
		policy, err = in.Policy.StoredForm("policy")
		if err != nil {
			return nil, err
		}
	}
	if in.Username == "" {
		in.Username = core.RandomText(inboxNameSize, "abcdefghijklmnopqrstuvwxyz0123456789")
	}
	var b *NewMailbox
	check := func(tx *store.Tx) error {
		d, err := inboxDomain(tx, who, in.Domain)
		if err != nil {
			return err
		}
		if b == nil {
			b, err = s.DraftMailbox(CreateEmailUserIn{Username: in.Username, Domain: d.ID, Name: in.Name})
			if err != nil {
				return err
			}
		}
		if err := b.resolve(tx, who); err != nil {
			return err
		}
		return s.checkRoomForMailbox(tx, b.Domain)
	}
	if err := s.Store.View(check); err != nil {
		return nil, err // checked before the password is hashed, which is slow
	}
	b.HashPassword(s)
	b.Mb.SendPolicy = store.Policy{Send: policy.Send, AllowedRecipients: policy.AllowedRecipients}
	c := &store.Credential{Name: "inbox " + b.Username, Protocols: []string{store.ProtocolIMAP, store.ProtocolSMTP}, MailboxID: b.Mb.ID, CreatedBy: who.UserID, Policy: policy}
	out := &InboxCreated{Password: NewCredentialPassword(), Token: core.NewToken(), MCPURL: s.Config.BaseURL + "/mcp"}
	s.hashCredential(c, out.Password, b.Mb.Salt)
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		if err := check(tx); err != nil {
			return err
		}
		mb, err := s.CreateMailbox(tx, b)
		if err != nil {
			return err
		}
		if err := s.setExpiry(tx, mb, tx.Now().Add(ttl)); err != nil {
			return err
		}
		c.AccountID, c.CreatedAt = mb.AccountID, tx.Now()
		t := &store.Token{
			ID: tx.NewID("tok"), AccountID: mb.AccountID, UserID: who.UserID, Name: c.Name, Hash: core.TokenHash(out.Token), Prefix: out.Token[:12],
			Permissions: []string{"read", "write"}, Kind: store.TokenKindAPI, CreatedAt: tx.Now(), Mailboxes: []string{mb.ID}, Policy: policy,
		}
		if err := errors.Join(store.Mailboxes.Put(tx, mb), store.Credentials.Put(tx, c), store.Tokens.Put(tx, t), core.Audit(tx, who, core.MailboxTarget(mb))); err != nil {
			return err
		}
		out.Inbox, err = s.mailboxOut(tx, mb)
		if err != nil {
			return err
		}
		out.Credential, out.ExpiresAt = credentialOut(c, tx.Now()), out.Inbox.ExpiresAt
		out.SMTP = ClientServer{out.Inbox.SMTPHost, out.Inbox.SMTPPort, out.Inbox.SMTPSecurity}
		out.IMAP = ClientServer{out.Inbox.IMAPHost, out.Inbox.IMAPPort, out.Inbox.IMAPSecurity}
		return once.KeepAnswer(ctx, s.Core, tx, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// inboxDomain returns the domain with this name or id. It must be complete and hosted here. For ""
// it returns the only such domain of the account.
func inboxDomain(tx *store.Tx, who core.Actor, nameOrID string) (*store.Domain, error) {
	if nameOrID == "" {
		var only *store.Domain
		for _, d := range store.DomainsByAccount.Asc(tx, who.AccountID, "") {
			if d.Status != store.DomainComplete || d.DNSProvider == store.DomainProviderExternal {
				continue
			}
			if only != nil {
				return nil, core.Errorf("domain_required", "Several domains of this account are set up. Name one of them.").With("domain", "required", "is required")
			}
			only = d
		}
		if only == nil {
			return nil, core.Errorf("domain_required", "No domain of this account is set up yet. Set one up, or name one.").With("domain", "required", "is required")
		}
		return only, nil
	}
	d, err := core.FindDomain(tx, who, nameOrID)
	switch {
	case core.IsGone(err):
		return nil, core.Invalid("domain", "not_found", "%.80q is not a domain of this account; connect it first", nameOrID)
	case err != nil:
		return nil, err
	case d.DNSProvider == store.DomainProviderExternal:
		return nil, core.Invalid("domain", "not_allowed", "the mail of %s is hosted elsewhere, so it can have no inboxes here", d.Name)
	case d.Status != store.DomainComplete && !d.Gone(): // resolve refuses a domain that is being deleted
		return nil, core.Errorf("domain_not_ready", "%s is not set up yet, so an inbox there would get no mail. See its dns-status for what is missing.", d.Name)
	}
	return d, nil
}

const kindExpire = "email_user_expire"

// expireArgs are the arguments of the job that deletes an expired mailbox.
type expireArgs struct {
	UserID string `json:"user_id"`
}

// setExpiry sets when a mailbox is deleted, and queues the job that deletes it; a zero time means
// never. The caller writes the mailbox.
func (s *Service) setExpiry(tx *store.Tx, mb *store.Mailbox, at time.Time) error {
	mb.ExpiresAt = at
	if err := s.Queue.CancelKey(tx, kindExpire, mb.ID); err != nil || at.IsZero() { // Queue.Add would keep an earlier time
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: mb.AccountID, Kind: kindExpire, Key: mb.ID, Lane: "expire " + mb.AccountID, Args: expireArgs{mb.ID}, Due: at})
	return err
}

func (s *Service) expireKind() jobs.Kind {
	return jobs.Kind{Name: kindExpire, Work: s.expireMailbox}
}

// expireMailbox starts the deletion of an expired mailbox. It does nothing if the expiry was
// changed while the job was starting, because then another job is queued.
func (s *Service) expireMailbox(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[expireArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	return func(tx *store.Tx, _ *store.Job) error {
		mb, err := core.LiveMailbox(tx, args.UserID)
		if mb == nil || err != nil || mb.ExpiresAt.IsZero() || tx.Now().Before(mb.ExpiresAt) {
			return err
		}
		_, err = s.deleteByJob(tx, mb, "")
		return err
	}, nil
}

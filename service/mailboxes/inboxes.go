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
	inboxTTL      = time.Hour // unless given
	inboxNameSize = 10        // characters of a username that is made here
)

// CreateInboxIn is the body of create_inbox; all of it may be absent.
type CreateInboxIn struct {
	Domain   string `json:"domain" alias:"domain_id"`       // Its name or id; the only one that is set up, unless given.
	Username string `json:"username" example:"signup-test"` // What is before the @; ten random letters and digits, unless given.
	Name     string `json:"name" max:"200"`
	// After how many seconds it is deleted: from a minute to 30 days, an hour unless given.
	TTLSeconds *int `json:"ttl_seconds" min:"60" max:"2592000" example:"3600"`
	// What may be sent from it, with the token and with the password, and whether reading mail
	// taints these two; everything and no, unless given.
	Policy *agents.Policy `json:"policy"`
}

// InboxCreated is a mailbox that is deleted at a time, with what a program needs to use it.
// Password and token are shown this once.
type InboxCreated struct {
	Inbox      EmailUser  `json:"inbox"`
	Credential Credential `json:"credential"`
	// Of the credential, for IMAP and submission with the inbox's address. Shown this once.
	Password string `json:"password" words:"ours" example:"abcd-efgh-jkmn-pqrs-tuvw-xyz2"`
	// An API token that is limited to the inbox, with `read` and `write`. Shown this once.
	Token     string       `json:"token" words:"ours"`
	MCPURL    string       `json:"mcp_url" words:"ours" example:"https://mail.example.com/mcp" format:"uri"` // Where assistants connect to, with the token.
	SMTP      ClientServer `json:"smtp"`
	IMAP      ClientServer `json:"imap"`
	ExpiresAt core.Time    `json:"expires_at"`
}

// A ClientServer is where a mail client connects to.
type ClientServer struct {
	Host     string `json:"host" words:"ours" example:"mail.example.com"`
	Port     int    `json:"port"`
	Security string `json:"security" enum:"tls|starttls|none"`
}

// CreateInbox makes a mailbox that is deleted at a time, and a password and a token that are good
// for it alone, all of it or nothing.
func (s *Service) CreateInbox(ctx context.Context, who core.Actor, in CreateInboxIn) (*InboxCreated, error) {
	ttl := inboxTTL
	if in.TTLSeconds != nil {
		ttl = time.Duration(*in.TTLSeconds) * time.Second
	}
	var policy store.Policy
	if in.Policy != nil {
		var err error
		policy, err = in.Policy.Record("policy")
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
		if left, full := s.RoomForMailboxes(tx, b.Domain); left == 0 {
			return full
		}
		return nil
	}
	if err := s.Store.View(check); err != nil {
		return nil, err // before the hash, which takes its time
	}
	b.Hash(s)
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

// inboxDomain gives the domain of the name or id, which must be ready for mail here; for "" the
// only one that is.
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
	case d.Status != store.DomainComplete && !d.Gone(): // resolve tells of one that is going
		return nil, core.Errorf("domain_not_ready", "%s is not set up yet, so an inbox there would get no mail. See its dns-status for what is missing.", d.Name)
	}
	return d, nil
}

const kindExpire = "email_user_expire"

// expireArgs is the job of deleting a mailbox at its time.
type expireArgs struct {
	UserID string `json:"user_id"`
}

// setExpiry says when a mailbox is deleted, never if that is zero, in its record, which the caller
// writes.
func (s *Service) setExpiry(tx *store.Tx, mb *store.Mailbox, at time.Time) error {
	mb.ExpiresAt = at
	if err := s.Queue.CancelKey(tx, kindExpire, mb.ID); err != nil || at.IsZero() { // Add would keep an earlier time
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: mb.AccountID, Kind: kindExpire, Key: mb.ID, Lane: "expire " + mb.AccountID, Args: expireArgs{mb.ID}, Due: at})
	return err
}

func (s *Service) expireKind() jobs.Kind {
	return jobs.Kind{Name: kindExpire, Work: s.expireMailbox}
}

// expireMailbox begins the deletion of a mailbox whose time has come. Its time may have been moved
// while the job was on its way; then there is another job.
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

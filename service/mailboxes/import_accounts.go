package mailboxes

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/password"
	"github.com/mailstead/mailstead/store"
)

// ImportAccountsIn is a list of mailboxes of another mail server, with their password hashes.
type ImportAccountsIn struct {
	Lines []AccountLine `json:"lines"`
}

// An AccountLine is one mailbox to import.
type AccountLine struct {
	Line         int      `json:"line"` // line number in the file, for errors
	Email        string   `json:"email"`
	PasswordHash string   `json:"password_hash"`
	Name         string   `json:"name"`
	Aliases      []string `json:"aliases,omitempty"` // addresses
}

// AccountsImported is the result of an import.
type AccountsImported struct {
	Accounts int            `json:"accounts"`
	Imported int            `json:"imported"`
	Skipped  int            `json:"skipped"` // a mailbox with the address existed already
	Failed   int            `json:"failed"`
	Errors   []AccountError `json:"errors"`
}

// An AccountError says why a line was not imported.
type AccountError struct {
	Line    int    `json:"line"`
	Email   string `json:"email"`
	Message string `json:"message"`
}

// ImportAccounts creates mailboxes with a password hash of another mail server, each in the account
// that has its domain. The first login replaces the hash. Existing mailboxes are not changed.
func (s *Service) ImportAccounts(ctx context.Context, in ImportAccountsIn) (*AccountsImported, error) {
	out := &AccountsImported{Accounts: len(in.Lines), Errors: []AccountError{}}
	for _, line := range in.Lines {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := s.importAccount(line)
		e, ours := core.AsError(err)
		switch {
		case err == nil:
			out.Imported++
		case errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrClosed):
			return nil, err
		case errors.Is(err, errMailboxExists):
			out.Skipped++
		default:
			out.Failed++
			message := err.Error()
			if ours {
				message = e.Message
				if e.Code == "validation_error" && len(e.Details) > 0 {
					message = e.Details[0].Field + " " + e.Details[0].Message
				}
			}
			out.Errors = append(out.Errors, AccountError{line.Line, line.Email, message})
		}
	}
	return out, nil
}

// errMailboxExists is returned for a line if a mailbox with its address exists already.
var errMailboxExists = errors.New("a mailbox with this address exists already")

// importAccount creates the mailbox of one line.
func (s *Service) importAccount(line AccountLine) error {
	hash, err := password.CleanHash(line.PasswordHash)
	if err != nil {
		return err
	}
	b, err := s.DraftMailbox(CreateEmailUserIn{Email: line.Email, Name: line.Name, Aliases: line.Aliases})
	if err != nil {
		return err
	}
	b.Mb.PasswordHash = hash
	return s.Store.Update(func(tx *store.Tx) error {
		d, err := domainToImport(tx, b.domainName)
		if err != nil {
			return err
		}
		err = b.resolve(tx, core.Actor{AccountID: d.AccountID})
		if e, ours := core.AsError(err); ours && e.Code == "email_user_exists" {
			if _, none := store.MailboxByAddress.Get(tx, store.AddressKey(b.Domain.ID, b.Mb.Email)); none == nil {
				return errMailboxExists
			}
			return core.Errorf("email_user_exists", "%s exists already: it is an alias or a group.", b.Mb.Email)
		}
		if err != nil {
			return err
		}
		if err := s.checkRoomForMailbox(tx, b.Domain); err != nil {
			return err
		}
		mb, err := s.CreateMailbox(tx, b)
		if err != nil {
			return err
		}
		return core.AuditCommand(tx, "import accounts", mb.AccountID, core.MailboxTarget(mb))
	})
}

// domainToImport finds the domain with this name in any account: the one whose claim is proven, or
// else the only one that claims the name.
func domainToImport(tx *store.Tx, name string) (*store.Domain, error) {
	name, bad := msg.NormalizeDomain(name)
	if bad != nil {
		return nil, core.Invalid("email", "invalid", "has no valid domain")
	}
	d, err := store.DomainByName.Get(tx, name)
	if !errors.Is(err, store.ErrNotFound) {
		return d, err
	}
	var claims []*store.Domain
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		claims = append(claims, d)
	}
	claims = slices.DeleteFunc(claims, func(d *store.Domain) bool { return d.Gone() || d.ClaimEnded() })
	switch len(claims) {
	case 0:
		return nil, core.Errorf("not_found", "%.80q is no domain of this installation; connect it first.", name)
	case 1:
		return claims[0], nil
	}
	return nil, core.Errorf("not_found", "Several accounts claim %.80q; decide with `mailstead domain claim` which has it.", name)
}

package mailboxes

import (
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const maxAliases = 50

// cleanAliases normalizes a list of aliases and drops duplicates. It does not check whether
// something else already has them.
func cleanAliases(list []string) ([]string, error) {
	out := []string{}
	for _, text := range list {
		email, err := cleanAddress("aliases", text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, email) {
			out = append(out, email)
		}
	}
	if len(out) > maxAliases {
		return nil, core.Invalid("aliases", "too_many_items", "a mailbox can have at most %d, not %d", maxAliases, len(out))
	}
	return out, nil
}

// cleanAddress normalizes the address of an alias or a group. Its local part may be postmaster or
// abuse, which a mailbox may not have.
func cleanAddress(field, text string) (string, error) {
	email, err := core.NormalizeEmail(field, text)
	if err != nil {
		return "", err
	}
	local, domain, _ := msg.SplitEmail(email)
	local = strings.ToLower(local)
	if local == "postmaster" || local == "abuse" {
		return local + "@" + domain, nil
	}
	if _, err := cleanUsername(local); err != nil {
		e, _ := core.AsError(err)
		return "", core.Invalid(field, e.Details[0].Code, "%.80q: %s", text, e.Details[0].Message)
	}
	return local + "@" + domain, nil
}

// checkFreeAddress returns the domain of a new alias or group. It returns an error unless the
// domain is the account's, complete and hosted here, and the address is free.
func checkFreeAddress(tx *store.Tx, accountID, field, email string) (*store.Domain, error) {
	name := core.DomainOfAddress(email)
	d, err := store.DomainOfAccount.Read(tx, store.AccountDomainKey(accountID, name))
	switch {
	case core.IsGone(err) || err == nil && d.Gone():
		return nil, core.Invalid(field, "not_found", "%s is not a domain of this account; connect it first", name)
	case err != nil:
		return nil, err
	case d.DNSProvider == store.DomainProviderExternal:
		return nil, core.Invalid(field, "not_allowed", "the mail of %s is hosted elsewhere, so no address of it can be made here", name)
	case d.Status != store.DomainComplete:
		return nil, core.Errorf("domain_not_ready", "%s is not set up yet, so %s cannot be used. See its dns-status for what is missing.", name, email)
	case store.AddressTaken(tx, d.ID, email):
		return nil, core.Errorf("email_user_exists", "%s exists already: it is a mailbox, an alias or a group.", email).With(field, "email_user_exists", "is taken")
	}
	return d, nil
}

// setAliases replaces the aliases of a mailbox.
func setAliases(tx *store.Tx, mb *store.Mailbox, wanted []string) error {
	if len(wanted) > 0 && mb.Type == store.MailboxTypeExternal {
		return core.Invalid("aliases", "not_allowed", "the mail of %s is hosted elsewhere, so it can have no aliases here", mb.Email)
	}
	for _, a := range aliasesOf(tx, mb.ID) {
		if i := slices.Index(wanted, a.Email); i >= 0 {
			wanted = slices.Delete(slices.Clone(wanted), i, i+1)
			continue
		}
		if err := store.Addresses.Delete(tx, store.AddressKey(a.DomainID, a.Email)); err != nil {
			return err
		}
	}
	for _, email := range wanted {
		d, err := checkFreeAddress(tx, mb.AccountID, "aliases", email)
		if err != nil {
			return err
		}
		a := &store.Address{DomainID: d.ID, Email: email, AccountID: mb.AccountID, MailboxID: mb.ID}
		if err := errors.Join(store.Addresses.Put(tx, a), core.LiftSuppression(tx, mb.AccountID, email)); err != nil {
			return err
		}
	}
	return nil
}

func aliasesOf(tx *store.Tx, mailboxID string) (list []*store.Address) {
	for _, a := range store.AddressesByMailbox.Asc(tx, mailboxID, "") {
		list = append(list, a)
	}
	return list
}

// dropAddresses deletes the aliases of a mailbox and removes it from its groups.
func dropAddresses(tx *store.Tx, mb *store.Mailbox) error {
	if err := setAliases(tx, mb, nil); err != nil {
		return err
	}
	return dropMembers(tx, store.MembersByMailbox, mb.ID)
}

// dropMembers deletes the group memberships that index has for id, which is the id of a mailbox or
// a group.
func dropMembers(tx *store.Tx, index *store.Index[store.GroupMember], id string) error {
	var list []*store.GroupMember
	for _, m := range index.Asc(tx, id, "") {
		list = append(list, m)
	}
	for _, m := range list {
		if err := store.GroupMembers.Delete(tx, store.GroupMemberID(m.GroupID, m.Place)); err != nil {
			return err
		}
	}
	return nil
}

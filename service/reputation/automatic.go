package reputation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Automatic is a kind of mail that this server sends automatically.
type Automatic int

// Kinds of automatic mail. AutomaticReport is the default. AutomaticNotice is a delivery status
// notification (RFC 3464). AutomaticRequired is mail to postmaster@ and abuse@ that is forwarded to
// a person.
const (
	AutomaticReport Automatic = iota
	AutomaticReply
	AutomaticForward
	AutomaticHostMail
	AutomaticNotice
	AutomaticAlert
	AutomaticRequired
)

// automatics holds, for each kind, its name and its limits for a day (UTC), or for an hour if
// hourly is set. maxToAddress is how many messages one address gets from all accounts together.
// maxForAccount is how many are sent for one account; 0 means that the sender's own limits apply.
var automatics = [...]struct {
	name          string
	maxToAddress  int
	maxForAccount int
	hourly        bool
}{
	AutomaticReply: {"reply", 100, 0, false}, AutomaticForward: {"forward", 5000, 0, false},
	AutomaticRequired: {"required", 1000, 5000, false}, AutomaticNotice: {"notice", 500, 10_000, false}, AutomaticReport: {"report", 1000, 50_000, false},
	AutomaticHostMail: {"letter", 30, 200, false}, AutomaticAlert: {"alert", 6, 60, true},
}

// maxWaitingForwards is the maximum number of forwards of each kind that one account may postpone
// to the next day, in one day.
const maxWaitingForwards = 2000

func (k Automatic) String() string { return automatics[k].name }

// NextReset returns when the counts for the limits of a kind start from zero: at the next day or
// hour (UTC).
func (k Automatic) NextReset(tx *store.Tx) time.Time {
	window := 24 * time.Hour
	if automatics[k].hourly {
		window = time.Hour
	}
	return tx.Now().UTC().Truncate(window).Add(window)
}

// canonicalAddress returns an address in one form: lower case, normalized, and without its +tag.
func canonicalAddress(address string) string {
	local, domain, _ := msg.SplitEmail(address)
	local = norm.NFC.String(strings.ToLower(strings.NewReplacer(`"`, "", `\`, "").Replace(local)))
	if base, _, tagged := strings.Cut(local, "+"); tagged && base != "" {
		local = base
	}
	one, err := msg.NormalizeDomain(strings.TrimSuffix(domain, "."))
	if err != nil {
		one = strings.ToLower(domain)
	}
	return local + "@" + one
}

// An allowance is how many automatic messages of a kind may be sent in a day or hour: to one
// address, or for one account.
type allowance struct {
	accountID, subject, what string
	maxMessages              int
}

// AdmitAutomatic checks whether this server may send an automatic message to an address, which is
// in lower case, and counts the message if so. Replies and forwards count against the limits of
// their sender, as in Admit. The other kinds count against the limit of their kind for the account
// that they are about. Every kind also counts against the limit of the address (without its +tag)
// over all accounts; for forwards and notices that limit does not apply to addresses hosted here.
// Errors are SMTPErrors. After an error nothing is counted.
func (s *Service) AdmitAutomatic(tx *store.Tx, kind Automatic, mb *store.Mailbox, from *store.Domain, account, recipient string) error {
	is := automatics[kind]
	here, err := core.IsHosted(tx, recipient)
	if err != nil {
		return err
	}
	var list []allowance
	if !here || kind != AutomaticForward && kind != AutomaticNotice {
		sum := sha256.Sum256([]byte(canonicalAddress(recipient)))
		list = append(list, allowance{"", "to " + is.name + " " + hex.EncodeToString(sum[:16]), "an address gets mail of the kind " + is.name, is.maxToAddress})
	}
	if is.maxForAccount > 0 {
		list = append(list, allowance{account, is.name + "s", "an account has mail of the kind " + is.name, is.maxForAccount})
	}
	days, err := countAllowances(tx, kind, list)
	if err != nil {
		return err
	}
	if is.maxForAccount == 0 {
		// Check all limits before anything is counted: Admit counts for the mailbox before it
		// checks the limits of the domain and the account.
		if err := s.MayAdd(tx, mb, from, &Envelope{}, recipient); err != nil {
			return err
		}
		if err := s.Admit(tx, mb, from, []string{recipient}); err != nil {
			return err
		}
	}
	return putDays(tx, days)
}

// MayWait reports whether one more message of a kind may wait until the next day, and counts it if
// it may.
func (s *Service) MayWait(tx *store.Tx, kind Automatic, accountID string) (bool, error) {
	days, err := countAllowances(tx, kind, []allowance{{accountID, "waiting " + automatics[kind].name + "s", "there wait of an account", maxWaitingForwards}})
	if refused := new(core.SMTPError); errors.As(err, &refused) {
		return false, nil
	}
	return err == nil, errors.Join(err, putDays(tx, days))
}

// countAllowances counts one message in each allowance. It returns the changed rows, which the
// caller writes with putDays. It returns an error if one allowance is used up.
func countAllowances(tx *store.Tx, kind Automatic, list []allowance) (days []*store.SendDay, err error) {
	for _, a := range list {
		if automatics[kind].hourly {
			a.subject += tx.Now().UTC().Format(" 15")
		}
		d, err := store.SendDays.Find(tx, store.SendDayID(a.accountID, today(tx), a.subject))
		if err != nil {
			return nil, err
		}
		if d == nil {
			d = &store.SendDay{AccountID: a.accountID, Day: today(tx), Subject: a.subject}
		}
		if d.Recipients >= a.maxMessages {
			return nil, core.SMTPErrorf(452, "4.5.3", "%s at most %d until %s", a.what, a.maxMessages, kind.NextReset(tx).Format(time.RFC3339))
		}
		d.Recipients++
		days = append(days, d)
	}
	return days, nil
}

func putDays(tx *store.Tx, days []*store.SendDay) error {
	for _, d := range days {
		if err := store.SendDays.Put(tx, d); err != nil {
			return err
		}
	}
	return nil
}

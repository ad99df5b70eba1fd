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

// An Automatic is a kind of mail that programs of ours start.
type Automatic int

// The kinds; what does not say otherwise is a report. An AutomaticNotice tells of what became of a
// message (RFC 3464). AutomaticRequired is mail to postmaster@ and abuse@ that goes on to a person.
const (
	AutomaticReport Automatic = iota
	AutomaticReply
	AutomaticForward
	AutomaticLetter
	AutomaticNotice
	AutomaticAlert
	AutomaticRequired
)

// automatics are the kinds' names, how many messages of the kind one address gets in a day (UTC) or
// hour, whatever accounts they are from, and how many there are of an account, or about it: 0 where
// the limits of who sends hold instead.
var automatics = [...]struct {
	name      string
	most      int
	ofAccount int
	hourly    bool
}{
	AutomaticReply: {"reply", 100, 0, false}, AutomaticForward: {"forward", 5000, 0, false},
	AutomaticRequired: {"required", 1000, 5000, false}, AutomaticNotice: {"notice", 500, 10_000, false}, AutomaticReport: {"report", 1000, 50_000, false},
	AutomaticLetter: {"letter", 30, 200, false}, AutomaticAlert: {"alert", 6, 60, true},
}

// waitAtMost is how many forwards of an account begin to wait in a day for the next one, of each
// kind.
const waitAtMost = 2000

func (k Automatic) String() string { return automatics[k].name }

// Again is when the limits of a kind begin again.
func (k Automatic) Again(tx *store.Tx) time.Time {
	window := 24 * time.Hour
	if automatics[k].hourly {
		window = time.Hour
	}
	return tx.Now().UTC().Truncate(window).Add(window)
}

// targetOf is one form for all that an address without its +tag can be written as.
func targetOf(address string) string {
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

// An allowance is what may be used of one day or hour.
type allowance struct {
	accountID, subject, what string
	most                     int
}

// AdmitAutomatic says whether a program of ours may start a message to an address in lower case,
// and counts it if so: a reply or a forward against the limits of who sends it, as Admit has it;
// the others against what their kind has for an account, which letters and alerts are about; each
// against what the address, without its +tag, gets over all accounts, which for forwards and
// notices does not bound addresses here. Errors are SMTPErrors; nothing is counted then.
func (s *Service) AdmitAutomatic(tx *store.Tx, kind Automatic, mb *store.Mailbox, from *store.Domain, account, recipient string) error {
	is := automatics[kind]
	here, err := core.IsHosted(tx, recipient)
	if err != nil {
		return err
	}
	var list []allowance
	if !here || kind != AutomaticForward && kind != AutomaticNotice {
		sum := sha256.Sum256([]byte(targetOf(recipient)))
		list = append(list, allowance{"", "to " + is.name + " " + hex.EncodeToString(sum[:16]), "an address gets mail of the kind " + is.name, is.most})
	}
	if is.ofAccount > 0 {
		list = append(list, allowance{account, is.name + "s", "an account has mail of the kind " + is.name, is.ofAccount})
	}
	days, err := allowed(tx, kind, list)
	if err != nil {
		return err
	}
	if is.ofAccount == 0 {
		// Admit alone would leave the narrower scopes counted where a wider one refuses.
		if err := s.MayAdd(tx, mb, from, &Envelope{}, recipient); err != nil {
			return err
		}
		if err := s.Admit(tx, mb, from, []string{recipient}); err != nil {
			return err
		}
	}
	return putDays(tx, days)
}

// MayWait says whether one more message of a kind may wait for the next day, and counts it if so.
func (s *Service) MayWait(tx *store.Tx, kind Automatic, accountID string) (bool, error) {
	days, err := allowed(tx, kind, []allowance{{accountID, "waiting " + automatics[kind].name + "s", "there wait of an account", waitAtMost}})
	if refused := new(core.SMTPError); errors.As(err, &refused) {
		return false, nil
	}
	return err == nil, errors.Join(err, putDays(tx, days))
}

// allowed adds one to each of the allowances, for putDays; none if one of them is used up.
func allowed(tx *store.Tx, kind Automatic, list []allowance) (days []*store.SendDay, err error) {
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
		if d.Recipients >= a.most {
			return nil, core.SMTPErrorf(452, "4.5.3", "%s at most %d until %s", a.what, a.most, kind.Again(tx).Format(time.RFC3339))
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

package reputation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Automatic is a kind of mail that programs of ours start.
type Automatic int

// The kinds; what does not say otherwise is a report. An AutomaticNotice tells of what became of a
// message (RFC 3464).
const (
	AutomaticReport Automatic = iota
	AutomaticReply
	AutomaticForward
	AutomaticLetter
	AutomaticNotice
)

// automatics are the kinds' names, and how many messages of the kind one address gets in a day
// (UTC), whatever accounts they are from.
var automatics = [...]struct {
	name string
	most int
}{
	AutomaticReply: {"reply", 100}, AutomaticForward: {"forward", 5000}, AutomaticLetter: {"letter", 30}, AutomaticReport: {"report", 1000}, AutomaticNotice: {"notice", 500},
}

// lettersOfAccount is how many letters about an account the host writes in a day.
const lettersOfAccount = 200

func (k Automatic) String() string { return automatics[k].name }

// AdmitAutomatic says whether a program of ours may start a message to an address in lower case,
// and counts it if so: a reply or a forward against the limits of who sends it, as Admit has it; a
// letter against those of the account that it is about, "" for none; each against what the address
// gets over all accounts, which for forwards and notices does not bound addresses here. Errors are
// SMTPErrors; nothing is counted then.
func (s *Service) AdmitAutomatic(tx *store.Tx, kind Automatic, mb *store.Mailbox, from *store.Domain, about, recipient string) error {
	var counts []*store.SendDay
	admit := func(accountID, subject, what string, most int) error {
		d, err := store.SendDays.Find(tx, store.SendDayID(accountID, today(tx), subject))
		if err != nil {
			return err
		}
		if d == nil {
			d = &store.SendDay{AccountID: accountID, Day: today(tx), Subject: subject}
		}
		if d.Recipients >= most {
			again := tx.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			return core.SMTPErrorf(452, "4.5.3", "%s", fmt.Sprintf("%s at most %d a day until %s", what, most, again.Format(time.RFC3339)))
		}
		d.Recipients++
		counts = append(counts, d)
		return nil
	}
	here, err := isHere(tx, recipient)
	if err != nil {
		return err
	}
	if !here || kind != AutomaticForward && kind != AutomaticNotice {
		sum := sha256.Sum256([]byte(recipient))
		subject := "to " + kind.String() + " " + hex.EncodeToString(sum[:16])
		if err := admit("", subject, "an address gets mail of the kind "+kind.String(), automatics[kind].most); err != nil {
			return err
		}
	}
	if kind == AutomaticLetter && about != "" {
		if err := admit(about, "letters", "the host writes letters about an account", lettersOfAccount); err != nil {
			return err
		}
	}
	if kind == AutomaticReply || kind == AutomaticForward {
		// Admit alone would leave the narrower scopes counted where a wider one refuses.
		if err := s.MayAdd(tx, mb, from, &Envelope{}, recipient); err != nil {
			return err
		}
		if err := s.Admit(tx, mb, from, []string{recipient}); err != nil {
			return err
		}
	}
	for _, d := range counts {
		if err := store.SendDays.Put(tx, d); err != nil {
			return err
		}
	}
	return nil
}

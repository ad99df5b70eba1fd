package mailboxes

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// KindRecoveryConfirm is the kind of job that mails the link which confirms a recovery address.
// Package signin runs it.
const KindRecoveryConfirm = "recovery_confirm"

const (
	recoveryMailsADay = 3  // links that set a password, for one mailbox
	confirmationsADay = 10 // links that confirm a recovery address, for one mailbox
)

// A RecoveryMail has the arguments of a job that sends one message about a mailbox's recovery
// address.
type RecoveryMail struct {
	UserID string `json:"user_id"`
	IP     string `json:"ip,omitempty"`
}

// setRecovery sets the recovery address of a mailbox; "" removes it. A new address is valid once
// its holder has opened the link that is mailed to it. The caller writes the mailbox.
func (s *Service) setRecovery(tx *store.Tx, mb *store.Mailbox, email string) error {
	switch {
	case email == "":
		mb.Recovery = nil
		return nil
	case mb.External != nil:
		return core.Invalid("recovery_email", "not_allowed", "the password of a mailbox on another server is reset there")
	case mb.Recovery != nil && mb.Recovery.Email == email && mb.Recovery.Confirmed:
		return nil
	}
	senders, err := core.SendersOf(tx, mb)
	if err != nil {
		return err
	}
	if senders.Allows(email) {
		return core.Invalid("recovery_email", "not_allowed", "must be an address of another mailbox, which can be read without this password")
	}
	next := &store.Recovery{Email: email}
	if mb.Recovery != nil {
		next.Asked, next.Mailed = mb.Recovery.Asked, mb.Recovery.Mailed
	}
	if !mayMail(&next.Asked, confirmationsADay, tx.Now()) {
		return core.Errorf("rate_limited", "The recovery address was changed too often today. Try again tomorrow.")
	}
	mb.Recovery = next
	_, err = s.Queue.Add(tx, jobs.New{Kind: KindRecoveryConfirm, Lane: "password_mail", Args: RecoveryMail{UserID: mb.ID}})
	return err
}

// MayMailRecovery reports whether one more link that sets a password may be sent within 24 hours,
// and if so counts it. The caller writes the record.
func MayMailRecovery(r *store.Recovery, now time.Time) bool {
	return mayMail(&r.Mailed, recoveryMailsADay, now)
}

// mayMail reports whether fewer than maxADay messages were sent in the last 24 hours. If so, it
// adds now to the times in sent.
func mayMail(sent *[]time.Time, maxADay int, now time.Time) bool {
	*sent = slices.DeleteFunc(slices.Clone(*sent), func(at time.Time) bool { return now.Sub(at) >= 24*time.Hour })
	if len(*sent) >= maxADay {
		return false
	}
	*sent = append(*sent, now)
	return true
}

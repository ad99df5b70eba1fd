package mailboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// UpdateEmailUserIn is the body of update_email_user. Null removes a footer, a limit, a forward, a
// relay or a quota.
type UpdateEmailUserIn struct {
	UserID         string           `path:"user_id"`
	Name           *string          `json:"name" max:"200"`
	Password       *string          `json:"password"`
	Footer         core.Opt[string] `json:"footer" max:"10000"`
	DailySendLimit core.Opt[int]    `json:"daily_send_limit" min:"0" max:"10000000" log:"true"` // Recipients per UTC day; null is unlimited.
	ForwardTo      core.Opt[string] `json:"forward_to" example:"anna@example.net"`              // Incoming mail is also sent here.
	ForwardKeep    *bool            `json:"forward_keep_copy" log:"true"`                       // Whether forwarded mail is kept in the mailbox too.
	// More addresses of the mailbox, which it may send as; at most 50.
	Aliases       *[]string        `json:"aliases" log:"true"`
	Signature     core.Opt[string] `json:"signature" max:"10000"`    // A text that the dashboard adds to new messages.
	RecoveryEmail core.Opt[string] `json:"recovery_email" max:"254"` // The address that gets a link if the password is forgotten.
	// The name of the relay for this mail; null for the default route.
	Relay         core.Opt[string]            `json:"relay" max:"100" log:"true"`
	QuotaBytes    core.Opt[int64]             `json:"quota_bytes" min:"0" max:"1000000000000000" log:"true"`
	Status        *string                     `json:"status" enum:"active|suspended" log:"true"`
	SendingPaused core.Opt[core.SendingPause] `json:"sending_paused" rare:"true"` // Accepts only null, which resumes sending.
	// With a new password, or with `status` suspended: queued mail is held until
	// release_held_messages.
	Hold *bool `json:"hold" example:"true" log:"true"`

	SendPolicy core.Opt[agents.SendPolicy] `json:"send_policy"`           // What may be sent from it; null: everything.
	ExpiresAt  core.Opt[time.Time]         `json:"expires_at" log:"true"` // When it is deleted with all its mail; null means never.
}

func (in *UpdateEmailUserIn) wantsHold() bool { return in.Hold != nil && *in.Hold }

// check validates the fields without the store, and normalizes addresses.
func (in *UpdateEmailUserIn) check() error {
	if in.Name != nil {
		if err := checkName(*in.Name); err != nil {
			return err
		}
	}
	if in.SendingPaused.Set && !in.SendingPaused.Null {
		return core.Invalid("sending_paused", "invalid", "can only be set to null, which resumes sending")
	}
	if in.wantsHold() && in.Password == nil && (in.Status == nil || *in.Status != store.MailboxSuspended) {
		return core.Invalid("hold", "conflict", "goes with a new password, or with the status suspended")
	}
	var err error
	if in.Aliases != nil {
		*in.Aliases, err = cleanAliases(*in.Aliases)
		if err != nil {
			return err
		}
	}
	if in.RecoveryEmail.Value != "" {
		in.RecoveryEmail.Value, err = core.NormalizeEmail("recovery_email", in.RecoveryEmail.Value)
		if err != nil {
			return err
		}
	}
	if in.ForwardTo.Value == "" {
		return nil
	}
	in.ForwardTo.Value, err = core.NormalizeEmail("forward_to", in.ForwardTo.Value)
	return err
}

// UpdateEmailUser changes a mailbox. After a new password or a suspension, earlier logins are no
// longer valid.
func (s *Service) UpdateEmailUser(_ context.Context, who core.Actor, in UpdateEmailUserIn) (*EmailUser, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if err := s.CheckRelay(in.Relay.Value); err != nil {
		return nil, err
	}
	policy, err := in.SendPolicy.Value.StoredForm("send_policy")
	if err != nil {
		return nil, err
	}
	expires, err := s.Expiry(in.ExpiresAt, core.Opt[int]{})
	if err != nil {
		return nil, err
	}
	setPassword, err := s.draftPassword(who, in)
	if err != nil {
		return nil, err
	}
	var out EmailUser
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if mb.Gone() {
			return core.Errorf("not_found", "%s is being deleted, so it cannot be changed.", mb.Email)
		}
		if err := in.apply(mb); err != nil {
			return err
		}
		if in.Aliases != nil {
			if err := setAliases(tx, mb, *in.Aliases); err != nil {
				return err
			}
		}
		if in.RecoveryEmail.Set {
			if err := s.setRecovery(tx, mb, in.RecoveryEmail.Value); err != nil {
				return err
			}
		}
		if in.SendPolicy.Set {
			mb.SendPolicy = policy
		}
		if in.ExpiresAt.Set {
			if err := s.setExpiry(tx, mb, expires); err != nil {
				return err
			}
		}
		setPassword(mb)
		mb.UpdatedAt = tx.Now()
		if in.Password != nil {
			if _, err := endUserSessions(tx, mb.ID, "", false); err != nil {
				return err
			}
		}
		if mb.External != nil && (in.Password != nil || in.Status != nil) {
			if err := s.servers.ResumeExternal(tx, mb); err != nil {
				return err
			}
		}
		if in.SendingPaused.Set && mb.SendingPaused != nil {
			if err := s.reputation.Resume(tx, mb); err != nil {
				return err
			}
		}
		if in.wantsHold() {
			if err := s.mail.Hold(tx, mb); err != nil {
				return err
			}
		}
		if err := store.Mailboxes.Put(tx, mb); err != nil {
			return err
		}
		if in.Status != nil && mb.Status == store.MailboxActive {
			if err := core.LiftSuppression(tx, mb.AccountID, mb.Email); err != nil {
				return err
			}
		}
		if err := core.Audit(tx, who, core.MailboxTarget(mb)); err != nil {
			return err
		}
		tx.After(func() { s.RecheckLogins(mb.Num) }) // connections check whether their login is still valid
		out, err = s.mailboxOut(tx, mb)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// draftPassword validates and hashes the new password, if there is one. It returns a function that
// sets the password in the mailbox's record.
func (s *Service) draftPassword(who core.Actor, in UpdateEmailUserIn) (func(*store.Mailbox), error) {
	var before store.Mailbox
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err == nil {
			before = *mb
		}
		return err
	})
	if err != nil || in.Password == nil {
		return func(*store.Mailbox) {}, err
	}
	password := *in.Password
	if before.External != nil {
		if !isLoginText(password) {
			return nil, core.Invalid("password", "invalid", "must have 1 to 1024 characters and no control characters")
		}
		return func(mb *store.Mailbox) { s.replacePassword(mb, password) }, nil
	}
	if err := core.CheckPassword("password", password, core.LeastPassword); err != nil {
		return nil, err
	}
	put := s.hashPassword(before, password, false)
	return func(mb *store.Mailbox) {
		put(mb)
		mb.PasswordAt = s.Now()
	}, nil
}

func (in *UpdateEmailUserIn) apply(mb *store.Mailbox) error {
	_, domain, _ := msg.SplitEmail(mb.Email)
	if err := checkForward(in.ForwardTo.Value, domain); err != nil {
		return err
	}
	if in.Name != nil {
		mb.Name = *in.Name
	}
	if in.Footer.Set {
		mb.Footer = in.Footer.Value
	}
	if in.ForwardTo.Set {
		mb.ForwardTo = in.ForwardTo.Value
	}
	if in.ForwardKeep != nil {
		mb.ForwardOnly = !*in.ForwardKeep
	}
	if in.Signature.Set {
		mb.Signature = in.Signature.Value
	}
	if in.Relay.Set {
		mb.Relay = in.Relay.Value
	}
	if in.DailySendLimit.Set {
		mb.DailySendLimit = in.DailySendLimit.OrNil()
	}
	if in.QuotaBytes.Set {
		mb.QuotaBytes = in.QuotaBytes.OrNil()
	}
	if in.Status != nil {
		return setStatus(mb, *in.Status)
	}
	return nil
}

// setStatus suspends a mailbox or activates it again. A mailbox whose domain is not complete
// becomes pending instead of active.
func setStatus(mb *store.Mailbox, status string) error {
	switch {
	case status == "suspended":
		mb.Status = store.MailboxSuspended
	case mb.Ready:
		mb.Status = store.MailboxActive
		mb.ErrorCode, mb.ErrorText = "", ""
	case mb.Status == store.MailboxSuspended:
		mb.Status = store.MailboxPending
	default:
		return core.Errorf("domain_not_ready", "%s becomes active automatically as soon as its domain is set up.", mb.Email)
	}
	return nil
}

// eraseChunk is how many messages one transaction of a deletion deletes, so that other transactions
// wait only for milliseconds.
const eraseChunk = 200

// eraseArgs are the arguments of the job that deletes marked mailboxes.
type eraseArgs struct {
	UserIDs []string `json:"user_ids"`
}

func (s *Service) eraseKind(name string) jobs.Kind {
	return jobs.Kind{Name: name, Work: s.eraseMailboxes, Timeout: time.Hour, PerLane: 2, Visible: true}
}

// EmailUserDeleted names the job that deletes a mailbox.
type EmailUserDeleted struct {
	Message string `json:"message" words:"ours" example:"The mailbox is being deleted."` // For people; the text may change.
	UserID  string `json:"user_id" words:"ours"`
	JobID   string `json:"job_id" words:"ours"`
}

// DeleteEmailUserIn is the request of delete_email_user. With hold, queued mail is held and not
// cancelled.
type DeleteEmailUserIn struct {
	UserID string `path:"user_id"`
	Hold   bool   `query:"hold" example:"true"` // Queued mail is held for 14 days, until release_held_messages, instead of cancelled.
}

// DeleteEmailUser marks a mailbox as deleted at once; a job deletes its mail and then its record. A
// second request returns the same job.
func (s *Service) DeleteEmailUser(ctx context.Context, who core.Actor, in DeleteEmailUserIn) (*EmailUserDeleted, error) {
	out := &EmailUserDeleted{UserID: in.UserID}
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		out.Message = fmt.Sprintf("%s no longer receives mail or accepts log-ins. Its mail is deleted in the background.", mb.Email)
		if mb.Gone() {
			out.JobID = mb.JobID
			return nil
		}
		if in.Hold {
			if err := s.mail.Hold(tx, mb); err != nil {
				return err
			}
		}
		out.JobID, err = s.deleteByJob(tx, mb, who.UserID)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, core.MailboxTarget(mb))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// deleteByJob marks a mailbox as deleted and returns the job that deletes its mail and record.
func (s *Service) deleteByJob(tx *store.Tx, mb *store.Mailbox, deletedBy string) (jobID string, err error) {
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: "email_user_delete", Lane: "erase " + mb.AccountID, CreatedBy: deletedBy,
		Args: eraseArgs{[]string{mb.ID}}, Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email}, Total: 1,
	})
	if err != nil {
		return "", err
	}
	return j.ID, s.DeleteMailbox(tx, mb, j.ID)
}

// DeleteMailbox marks a mailbox as deleted and frees its address. The job with the id jobID must
// call EraseMailbox, which deletes the rest.
func (s *Service) DeleteMailbox(tx *store.Tx, mb *store.Mailbox, jobID string) error {
	tx.MayUseReserve() // the job frees the space later
	mb.Status, mb.JobID, mb.UpdatedAt = store.MailboxDeleting, jobID, tx.Now()
	tx.After(func() {
		s.RecheckLogins(mb.Num)
		s.servers.EndIdle(mb.ID)
	})
	if _, err := endUserSessions(tx, mb.ID, "", true); err != nil {
		return err
	}
	if err := dropRules(tx, mb.ID); err != nil {
		return err
	}
	if err := removeFromTokens(tx, mb); err != nil {
		return err
	}
	if err := s.Queue.CancelKey(tx, kindExpire, mb.ID); err != nil {
		return err
	}
	return errors.Join(dropAddresses(tx, mb), dropCredentials(tx, store.CredentialsByMailbox, mb.ID), store.Mailboxes.Put(tx, mb))
}

// removeFromTokens removes a mailbox from the tokens that are limited to some mailboxes. A token
// that is limited to this mailbox alone is revoked instead: with an empty list it could act for all
// mailboxes.
func removeFromTokens(tx *store.Tx, mb *store.Mailbox) error {
	for _, t := range store.TokensOfMailbox(tx, mb.AccountID, mb.ID) {
		left := slices.DeleteFunc(slices.Clone(t.Mailboxes), func(id string) bool { return id == mb.ID })
		if len(left) > 0 {
			t.Mailboxes = left
		} else {
			t.RevokedAt = tx.Now()
		}
		if err := store.Tokens.Put(tx, t); err != nil {
			return err
		}
	}
	return nil
}

// dropRules deletes the rules and the vacation reply of a mailbox.
func dropRules(tx *store.Tx, mailboxID string) error {
	var ids []string
	for _, r := range store.RulesByMailbox.Asc(tx, mailboxID, "") {
		ids = append(ids, r.ID)
	}
	return errors.Join(core.DeleteAll(tx, store.Rules, ids), store.Vacations.Delete(tx, mailboxID))
}

// eraseMailboxes deletes the marked mailboxes of a job. After a crash it continues where it
// stopped.
func (s *Service) eraseMailboxes(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[eraseArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for i, id := range args.UserIDs {
		if err := s.EraseMailbox(ctx, id); err != nil {
			return nil, fmt.Errorf("delete mailbox %s: %w", id, err)
		}
		jobs.Progress(ctx, i+1, len(args.UserIDs), "")
	}
	return nil, nil
}

// EraseMailbox deletes the mail of a marked mailbox, up to eraseChunk messages per transaction.
// Then it deletes the record and emits the event. It does nothing if the mailbox does not exist.
func (s *Service) EraseMailbox(ctx context.Context, id string) error {
	var marked *store.Mailbox
	err := s.Store.View(func(tx *store.Tx) (err error) {
		marked, err = store.Mailboxes.Find(tx, id)
		return err
	})
	if err == nil && marked != nil {
		err = s.mail.CancelMailOfMailbox(ctx, marked)
	}
	if err != nil {
		return err
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		killpoint.At("deletion.page")
		err := s.Store.Update(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Find(tx, id)
			if err != nil {
				return err
			}
			if mb == nil {
				done = true
				return nil
			}
			done, err = tx.DropMailbox(mb.AccountNum, mb.Num, eraseChunk)
			if err != nil || !done {
				return err
			}
			tx.After(func() { s.Hub.Changed(mb.Num) })
			if err := errors.Join(store.RemoteBoxes.Delete(tx, id), store.Mailboxes.Delete(tx, id)); err != nil {
				return err
			}
			if err := s.emitMailbox(tx, events.EventEmailUserDeleted, mb); err != nil {
				return err
			}
			return s.events.DropFromFilters(tx, mb.AccountID, mb.ID)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

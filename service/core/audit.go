package core

import (
	"errors"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

// A Request is what the audit log records about an actor's request.
type Request struct {
	Action string   // the name of the operation
	Via    string   // one of the Audit… constants
	ID     string   // the server's own id of the request
	Fields []string // names of the body fields that were given
}

// How a request came: the values of Via in the audit log.
const (
	AuditAPI       = "api"
	AuditMCP       = "mcp"
	AuditDashboard = "dashboard"
	AuditCommands  = "command"
)

// maxAuditName is the longest name in the audit log, in characters; longer ones are cut.
const maxAuditName = 300

// Audit adds the actor's request to the audit log, in the transaction that carries it out. The
// target may be empty. An actor without a request is the server itself, which is not audited. The
// operator's requests, also those in a session that began with a link to sign in, are added to the
// first account's log too.
func Audit(tx *store.Tx, who Actor, target store.AuditTarget) error {
	return AuditMany(tx, who, target, 1)
}

// AuditMany is like Audit, for a request that has changed several objects.
func AuditMany(tx *store.Tx, who Actor, target store.AuditTarget, count int) error {
	if who.Request == nil {
		return nil
	}
	row := store.Audit{
		AccountID: who.AccountID, Action: who.Request.Action, Via: who.Request.Via, RequestID: who.Request.ID, Fields: who.Request.Fields,
		IP: who.IP, Target: target, Count: count,
	}
	switch {
	case who.TokenID == LocalToken:
		return putOperatorAudit(tx, row, nil)
	case who.LinkedBy != "":
		u, err := store.Users.Find(tx, who.LinkedBy)
		if u == nil || err != nil {
			return errors.Join(err, putOperatorAudit(tx, row, nil))
		}
		by := UserActor(u)
		return putOperatorAudit(tx, row, &by)
	case who.TokenKind == SessionKind && who.MailboxID != "":
		row.Actor = store.AuditActor{Type: store.AuditActorMailbox, ID: who.MailboxID, Name: who.Email}
	case who.TokenKind == SessionKind:
		row.Actor = store.AuditActor{Type: store.AuditActorUser, ID: who.UserID, Name: who.Email}
	default:
		row.Actor = store.AuditActor{Type: store.AuditActorToken, ID: who.TokenID, Name: who.TokenName}
	}
	return PutAudit(tx, row)
}

// AuditCommand adds a command of the operator to the audit log of the account that it concerns, and
// to the first account's log. accountID is "" if it concerns no account.
func AuditCommand(tx *store.Tx, command, accountID string, target store.AuditTarget) error {
	return putOperatorAudit(tx, store.Audit{AccountID: accountID, Action: command, Via: AuditCommands, Target: target, Count: 1}, nil)
}

// AuditHosted adds a request of the operator about another account to the audit log of that account
// and to that of the first account. Only the latter says which user of the first account it was.
func AuditHosted(tx *store.Tx, who Actor, accountID string, target store.AuditTarget) error {
	if who.Request == nil {
		return nil
	}
	row := store.Audit{
		AccountID: accountID, Action: who.Request.Action, Via: who.Request.Via, RequestID: who.Request.ID, Fields: who.Request.Fields,
		IP: who.IP, Target: target, Count: 1,
	}
	if who.TokenID == LocalToken {
		return putOperatorAudit(tx, row, nil)
	}
	return putOperatorAudit(tx, row, &store.AuditActor{Type: store.AuditActorUser, ID: who.UserID, Name: who.Email})
}

// putOperatorAudit writes an action of the operator to the audit log of the row's account, and to
// the first account's log. Only the latter says who of the first account it was: by, or nil if that
// is not known.
func putOperatorAudit(tx *store.Tx, row store.Audit, by *store.AuditActor) error {
	ip := row.IP
	row.Actor, row.IP = store.AuditActor{Type: store.AuditActorOperator, Name: "operator"}, ""
	for first := range store.Accounts.All(tx) {
		if row.AccountID != "" && row.AccountID != first.ID {
			if err := PutAudit(tx, row); err != nil {
				return err
			}
		}
		row.AccountID = first.ID
		if by != nil {
			row.Actor, row.IP = *by, ip
		}
		return PutAudit(tx, row)
	}
	return nil // there is no account yet
}

// PutAudit writes a new row of the audit log.
func PutAudit(tx *store.Tx, row store.Audit) error {
	row.ID = tx.NewID("aud")
	row.CreatedAt, _ = recordid.Time(row.ID)
	row.Actor.Name, row.Target.Name = clipName(row.Actor.Name), clipName(row.Target.Name)
	return store.Audits.Put(tx, &row)
}

func clipName(text string) string {
	if runes := []rune(text); len(runes) > maxAuditName {
		return string(runes[:maxAuditName])
	}
	return text
}

// AccountTarget returns an account as the target of an audit row.
func AccountTarget(a *store.Account) store.AuditTarget {
	return store.AuditTarget{Type: "account", ID: a.ID, Name: a.Name}
}

// DomainTarget returns a domain as the target of an audit row.
func DomainTarget(d *store.Domain) store.AuditTarget {
	return store.AuditTarget{Type: "domain", ID: d.ID, Name: d.Name}
}

// UserActor returns a team user or a mailbox's user as the actor of an audit row.
func UserActor(u *store.User) store.AuditActor {
	if u.MailboxID != "" {
		return store.AuditActor{Type: store.AuditActorMailbox, ID: u.MailboxID, Name: u.Email}
	}
	return store.AuditActor{Type: store.AuditActorUser, ID: u.ID, Name: u.Email}
}

// UserTarget returns a team user or a mailbox's user as the target of an audit row.
func UserTarget(u *store.User) store.AuditTarget { return ActorTarget(UserActor(u)) }

// ActorTarget converts the actor of an audit row to a target.
func ActorTarget(a store.AuditActor) store.AuditTarget {
	if a.Type == store.AuditActorMailbox {
		return store.AuditTarget{Type: "email_user", ID: a.ID, Name: a.Name}
	}
	return store.AuditTarget(a)
}

// TokenTarget returns a token or session as the target of an audit row.
func TokenTarget(t *store.Token) store.AuditTarget {
	kind := "token"
	if t.Kind == SessionKind {
		kind = "session"
	}
	return store.AuditTarget{Type: kind, ID: t.ID, Name: t.Name}
}

// MailboxTarget returns a mailbox as the target of an audit row.
func MailboxTarget(mb *store.Mailbox) store.AuditTarget {
	return store.AuditTarget{Type: "email_user", ID: mb.ID, Name: mb.Email}
}

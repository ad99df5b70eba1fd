// Package operator answers the operator's own commands: over the Unix socket in the data directory
// of a running server, or in the process of a command where no server runs. It has what both sides
// share too: paths, requests and answers, and what is where in the data directory.
//
// It does not know the command line, nor what people are shown.
package operator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
)

// The paths of the operator's own commands. A command goes through the socket, or is answered
// in-process if no server runs.
const (
	AccountPath  = "/local/account"
	TokenPath    = "/local/token"
	PasswordPath = "/local/password"
	AccountsPath = "/local/accounts"
	StatusPath   = "/local/account-status"
	ClaimPath    = "/local/claim"
	BackupPath   = "/local/backup"
	DeletePath   = "/local/account-delete"
	RotatePath   = "/local/rotate-key"

	ParkedPath = "/local/parked-jobs"
	ResumePath = "/local/resume-jobs"

	RestoreMailboxPath = "/local/restore-mailbox"
	DoctorPath         = "/local/doctor"
	CopyPath           = "/local/copy"
	StopPath           = "/local/stop"
	AdvancePath        = "/local/advance-clock" // of the sandbox
	ProfilePath        = "/local/profile"

	ImportPath         = "/local/import" // messages come in batches, since the command may read the operator's files
	ImportKnownPath    = "/local/import-known"
	ImportAccountsPath = "/local/import-accounts"
	ExportPath         = "/local/export" // messages go in pages
)

// An Operator answers the operator's own commands, over the socket of a running server or in the
// process of the command.
type Operator struct {
	Store    *store.Store
	Service  *service.Service
	Settings *config.Settings
	Log      *slog.Logger
	Schedule *backup.Schedule // of backups; nil: the settings ask for none
	Version  string           // of the program
	Stop     func()           // ends the server; nil where none runs

	backingUp sync.Mutex // held by a backup that the operator asks for
}

// Handler answers the command line: the API as the owner, and the operator's commands.
func (o *Operator) Handler(api *handlers.Server) http.Handler {
	svc := o.Service
	mux := http.NewServeMux()
	mux.Handle("/v1/", api.Local())
	mux.Handle(AccountPath, localCommand(svc.Accounts.CreateAccount))
	mux.Handle(TokenPath, localCommand(svc.Accounts.CreateTokenFor))
	mux.Handle(PasswordPath, localCommand(svc.Accounts.ResetPassword))
	mux.Handle(AccountsPath, localCommand(svc.Accounts.ListAccounts))
	mux.Handle(StatusPath, localCommand(svc.Accounts.SetAccountStatus))
	mux.Handle(DeletePath, localCommand(svc.Accounts.DeleteAccount))
	mux.Handle(ClaimPath, localCommand(svc.Domains.DecideClaim))
	mux.Handle(DoctorPath, localCommand(svc.Health.Doctor))
	mux.Handle(ParkedPath, localCommand(svc.Health.ListParkedJobs))
	mux.Handle(ResumePath, localCommand(svc.Health.ResumeJobs))
	mux.Handle(RotatePath, longCommand(o.rotateKey))
	mux.Handle(BackupPath, longCommand(o.backUp))
	mux.Handle(RestoreMailboxPath, longCommand(o.restoreMailbox))
	mux.Handle(CopyPath, longCommand(o.copyStore))
	mux.Handle(StopPath, longCommand(o.stopServer))
	if o.Settings.Sandbox() {
		mux.Handle(AdvancePath, localCommand(svc.AdvanceClock))
	}
	mux.HandleFunc(ProfilePath, serveProfile)
	mux.HandleFunc(ImportPath, o.importMessages)
	mux.Handle(ImportKnownPath, longCommand(o.knownImports))
	mux.Handle(ImportAccountsPath, localCommand(svc.Mailboxes.ImportAccounts))
	mux.HandleFunc(ExportPath, o.exportMessages)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return mux
}

// audit writes a command of the operator that has no transaction of its own into the audit log,
// with the mailbox that it is about, if it is about one.
func (o *Operator) audit(command string, about core.MailboxUser) error {
	var target store.AuditTarget
	if about.MailboxID != "" {
		target = store.AuditTarget{Type: "email_user", ID: about.MailboxID, Name: about.Email}
	}
	return o.Store.Update(func(tx *store.Tx) error { return core.AuditCommand(tx, command, about.AccountID, target) })
}

// stopServer tells a running server to stop.
func (o *Operator) stopServer(context.Context, struct{}) (struct{}, error) {
	if o.Stop == nil {
		return struct{}{}, errors.New("no server runs")
	}
	o.Stop()
	return struct{}{}, nil
}

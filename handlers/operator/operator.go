// Package operator answers the commands of the operator: over the Unix socket in the data directory
// of a running server, or within the process of a command if no server runs. It also has what the
// server and the command line share: paths, requests and responses, and the files of the data
// directory.
//
// It does not know the options of commands, nor what they print.
package operator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
)

// Paths of the operator's commands. A command sends a request to the path over the socket. If no
// server runs, it handles the request in its own process.
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
	AdvancePath        = "/local/advance-clock" // only in a sandbox
	ProfilePath        = "/local/profile"
	RunningPath        = "/local/running" // a Running

	// Messages to import are sent in batches, because the server may not read the operator's files.
	ImportPath         = "/local/import"
	ImportKnownPath    = "/local/import-known"
	ImportAccountsPath = "/local/import-accounts"
	ExportPath         = "/local/export" // messages are sent in pages
)

// An Operator answers the operator's commands, in a running server or within the process of a
// command.
type Operator struct {
	Store    *store.Store
	Service  *service.Service
	Settings *config.Settings
	Log      *slog.Logger
	Schedule *backup.Schedule // scheduled backups; nil if the settings ask for none
	Version  string           // of the program
	Stop     func()           // stops the server; nil in the process of a command

	backingUp sync.Mutex // held during a backup that a command requested
}

// Handler returns the handler for requests of the command line: the API as the owner of an account,
// and the operator's commands.
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
	began := time.Now()
	mux.Handle(RunningPath, localCommand(func(context.Context, struct{}) (Running, error) { return o.running(began), nil }))
	mux.HandleFunc(ImportPath, o.importMessages)
	mux.Handle(ImportKnownPath, longCommand(o.knownImports))
	mux.Handle(ImportAccountsPath, localCommand(svc.Mailboxes.ImportAccounts))
	mux.HandleFunc(ExportPath, o.exportMessages)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return mux
}

// Running describes the running server.
type Running struct {
	PID           int        `json:"pid"`
	UptimeSeconds int64      `json:"uptime_seconds"`
	Listeners     []Listener `json:"listeners"` // sorted by name
}

// A Listener is an open port of the server.
type Listener struct {
	Name    string `json:"name"` // of the setting, such as smtp
	Port    int    `json:"port"`
	Address string `json:"address,omitempty"` // the only address that it listens at; "": all public ones
}

func (o *Operator) running(began time.Time) Running {
	out := Running{PID: os.Getpid(), UptimeSeconds: int64(time.Since(began) / time.Second), Listeners: []Listener{}}
	if o.Service.Health.Host != nil {
		for _, p := range o.Service.Health.Host.Ports {
			out.Listeners = append(out.Listeners, Listener{p.Name, p.Number, p.Inner})
		}
	}
	return out
}

// recordAudit records in the audit log a command that has no transaction of its own. about is the
// mailbox that the command is about, or the zero value.
func (o *Operator) recordAudit(command string, about core.MailboxUser) error {
	var target store.AuditTarget
	if about.MailboxID != "" {
		target = store.AuditTarget{Type: "email_user", ID: about.MailboxID, Name: about.Email}
	}
	return o.Store.Update(func(tx *store.Tx) error { return core.AuditCommand(tx, command, about.AccountID, target) })
}

// stopServer stops the running server.
func (o *Operator) stopServer(context.Context, struct{}) (struct{}, error) {
	if o.Stop == nil {
		return struct{}{}, errors.New("there is no running server to stop")
	}
	o.Stop()
	return struct{}{}, nil
}

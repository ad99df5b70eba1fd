package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
)

// socketName is the socket of a running server, in the data directory.
const socketName = "mailstead.sock"

// The paths of the operator's own commands. A command goes through the socket, or is answered
// in-process if no server runs.
const (
	accountPath  = "/local/account"
	tokenPath    = "/local/token"
	passwordPath = "/local/password"
	accountsPath = "/local/accounts"
	statusPath   = "/local/account-status"
	claimPath    = "/local/claim"
	backupPath   = "/local/backup"
	deletePath   = "/local/account-delete"
	rotatePath   = "/local/rotate-key"

	parkedPath = "/local/parked-jobs"
	resumePath = "/local/resume-jobs"

	restoreMailboxPath = "/local/restore-mailbox"
	doctorPath         = "/local/doctor"
	copyPath           = "/local/copy"
	stopPath           = "/local/stop"
	advancePath        = "/local/advance-clock" // of the sandbox
	profilePath        = "/local/profile"
)

// localHandler answers the command line: the API as the owner, and the operator's commands.
func localHandler(in *installation, api *handlers.Server) http.Handler {
	svc := in.svc
	mux := http.NewServeMux()
	mux.Handle("/v1/", api.Local())
	mux.Handle(accountPath, localCommand(svc.Accounts.CreateAccount))
	mux.Handle(tokenPath, localCommand(svc.Accounts.CreateTokenFor))
	mux.Handle(passwordPath, localCommand(svc.Accounts.ResetPassword))
	mux.Handle(accountsPath, localCommand(svc.Accounts.ListAccounts))
	mux.Handle(statusPath, localCommand(svc.Accounts.SetAccountStatus))
	mux.Handle(deletePath, localCommand(svc.Accounts.DeleteAccount))
	mux.Handle(claimPath, localCommand(svc.Domains.DecideClaim))
	mux.Handle(doctorPath, localCommand(svc.Health.Doctor))
	mux.Handle(parkedPath, localCommand(svc.Health.ListParkedJobs))
	mux.Handle(resumePath, localCommand(svc.Health.ResumeJobs))
	mux.Handle(rotatePath, longCommand(in.rotateKey))
	mux.Handle(backupPath, longCommand(in.backUp))
	mux.Handle(restoreMailboxPath, longCommand(in.restoreMailbox))
	mux.Handle(copyPath, longCommand(in.copyStore))
	mux.Handle(stopPath, longCommand(in.stopServer))
	if in.settings.Sandbox() {
		mux.Handle(advancePath, localCommand(svc.AdvanceClock))
	}
	mux.HandleFunc(profilePath, serveProfile)
	mux.HandleFunc(importPath, in.importMessages)
	mux.Handle(importKnownPath, longCommand(in.knownImports))
	mux.Handle(importAccountsPath, localCommand(svc.Mailboxes.ImportAccounts))
	mux.HandleFunc(exportPath, in.exportMessages)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return mux
}

// audit writes a command of the operator that has no transaction of its own into the audit log,
// with the mailbox that it is about, if it is about one.
func (in *installation) audit(command string, about core.MailboxUser) error {
	var target store.AuditTarget
	if about.MailboxID != "" {
		target = store.AuditTarget{Type: "email_user", ID: about.MailboxID, Name: about.Email}
	}
	return in.store.Update(func(tx *store.Tx) error { return core.AuditCommand(tx, command, about.AccountID, target) })
}

// localCommand makes a handler of a service method.
func localCommand[In, Out any](method func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := method(r.Context(), in)
		if err != nil {
			e := core.Explain(err)
			http.Error(w, e.Message, code.Status(e.Code))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
}

// local sends a request to the running server, or to an installation opened just for it.
func local(c *cli.Context, r *http.Request) (*http.Response, error) {
	dir := c.String("data")
	resp, err := overSocket(filepath.Join(dir, socketName), r)
	if err == nil {
		return resp, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !isRefused(err) {
		return nil, err
	}
	s, err := offlineSettings(c)
	if err != nil {
		return nil, err
	}
	err = withInstallation(dir, s, false, func(in *installation) error {
		in.svc.Health.Host = new(health.Host)
		resp = handlers.Do(localHandler(in, handlers.New(in.svc)), r)
		return nil
	})
	if errors.Is(err, store.ErrInUse) {
		return nil, fmt.Errorf("a server uses %s, but its socket does not answer: %w", dir, err)
	}
	return resp, err
}

// offlineSettings are the settings for commands that open the store themselves.
func offlineSettings(c *cli.Context) (*config.Settings, error) {
	s, err := config.Load(c)
	if err != nil {
		return nil, err
	}
	if len(s.PublicIP) == 0 && !s.Sandbox() {
		s.PublicIP = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} // nothing listens, so nothing is published
	}
	return s, nil
}

func overSocket(path string, r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // so that it can be sent again
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", "mailstead"
	t := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true,
	}
	resp, err := t.RoundTrip(out)
	if err != nil && r.Context().Err() == nil {
		return nil, fmt.Errorf("the server on %s ended before it answered. What was asked for may have been done: %w", filepath.Dir(path), err)
	}
	return resp, err
}

// runLocal sends a command with its arguments as JSON and decodes what comes back.
func runLocal(c *cli.Context, path string, in, out any) error {
	answer, err := askThrough(c, path, in, local)
	return decodeAnswer(answer, err, out)
}

// errNoServer is returned by askServer where none runs.
var errNoServer = errors.New("no server runs")

// runOverSocket is runLocal for what only a running server does.
func runOverSocket(c *cli.Context, path string, in, out any) error {
	answer, err := askServer(c, path, in)
	return decodeAnswer(answer, err, out)
}

func decodeAnswer(answer io.ReadCloser, err error, out any) error {
	if err != nil {
		return err
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// askServer sends a command to the running server and gives its answer.
func askServer(c *cli.Context, path string, in any) (io.ReadCloser, error) {
	return askThrough(c, path, in, func(c *cli.Context, r *http.Request) (*http.Response, error) {
		resp, err := overSocket(filepath.Join(c.String("data"), socketName), r)
		if errors.Is(err, os.ErrNotExist) || isRefused(err) {
			return nil, fmt.Errorf("%w on %s: start it first", errNoServer, c.String("data"))
		}
		return resp, err
	})
}

func askThrough(c *cli.Context, path string, in any, send func(*cli.Context, *http.Request) (*http.Response, error)) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(c.Context, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := send(c, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return nil, errors.New(strings.TrimSpace(string(text)))
}

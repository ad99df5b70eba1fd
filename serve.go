package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/dnsd"
	"github.com/mailstead/mailstead/handlers/imapd"
	"github.com/mailstead/mailstead/handlers/listen"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/web"
)

// stopGrace is how long running work may take to finish after the server is told to stop.
const stopGrace = 20 * time.Second

// serve runs the server on the data directory dir until ctx ends. It calls load to read the
// settings, and calls it again on SIGHUP.
func serve(ctx context.Context, dir string, load func() (*config.Settings, error), stdout, stderr io.Writer) error {
	s, err := load()
	if err != nil {
		return err
	}
	srv := &server{settings: s, loadSettings: load, level: new(slog.LevelVar), failed: make(chan error, 1)}
	return srv.serve(ctx, dir, stdout, stderr)
}

// A server has the parts of the running server, in the order in which they start.
type server struct {
	settings     *config.Settings
	loadSettings func() (*config.Settings, error) // reads the settings again
	log          *slog.Logger
	level        *slog.LevelVar
	certs        *listen.Certificates
	listeners    *listen.Listeners
	inst         *installation
	api          *handlers.Server
	failed       chan error // receives the error of the first part that fails
}

// serve opens the sockets and the store, and runs all parts until ctx ends. Then it accepts nothing
// new, lets running work finish for up to stopGrace, and closes the store last.
func (s *server) serve(ctx context.Context, dir string, stdout, stderr io.Writer) (err error) {
	defer runtime.KeepAlive(heapBallast())
	s.level.Set(s.settings.LogLevel.Level())
	now := clock.New(nil, s.settings.ClockOffset())
	s.log = newLogger(stderr, s.settings.LogFormat.String(), s.level, s.settings.Sandbox(), now)
	s.listeners, err = listen.Open(s.settings, s.log)
	if err != nil {
		return err
	}
	defer s.listeners.Close()
	if err := operator.BecomeServiceUser(dir); err != nil {
		return err
	}
	s.listeners.ReadProxyHeaders(s.settings.ProxyHeader.Prefixes(), s.log)
	s.inst, err = openInstallation(dir, s.settings, s.listeners, s.settings.Sandbox(), now, s.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.inst.close()) }()
	s.applySettings()
	s.inst.svc.Core.OnSettings(s.applySettings)
	if err := s.loadCertificates(); err != nil {
		return err
	}
	s.inst.svc.Health.Host = &health.Host{Running: true, Ports: s.listeners.Ports(s.inst.svc.Core.Config.PublicIPs)}
	ctx, s.inst.operator.Stop = context.WithCancel(ctx)
	defer s.inst.operator.Stop()
	s.inst.svc.Inbound.FileUnfiled()
	s.inst.svc.Backups.RemoveLeftover()
	created, err := s.inst.createFirstAccount(ctx, s.settings)
	if err != nil {
		return err
	}
	s.listeners.CountConnections(&s.inst.svc.Core.Metrics.Registry)
	s.api = handlers.New(s.inst.svc)
	s.api.Log, s.api.Web, s.api.Build = s.log, web.Handler(), web.Build()
	s.api.Metrics = handlers.MetricsReaders{Token: s.settings.Metrics.Token, From: s.settings.Metrics.Allowed.Prefixes()}
	if len(s.settings.Proxies) > 0 {
		s.api.Proxies = handlers.NewProxies(s.settings.Proxies.Prefixes(), s.log)
	}
	return s.run(ctx, dir, created, stdout)
}

// applySettings applies the settings that can change while the server runs, as far as the service
// does not do it.
func (s *server) applySettings() {
	now := s.inst.svc.Core.Settings()
	s.level.Set(now.LogLevel)
	if backups := s.inst.operator.Schedule; backups != nil {
		backups.SetIntervals(now.BackupEvery, now.FullBackupEvery)
	}
}

// heapBallast returns 16 MiB that are never used, so they take no physical memory. They make the
// heap look larger to the garbage collector, which would otherwise collect this program's small
// heap many times a second. heapBallast returns nil if GOGC or GOMEMLIMIT is set.
func heapBallast() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, 16<<20)
}

// loadCertificates loads the certificates for TLS handshakes from files, or from the store if they
// come by ACME.
func (s *server) loadCertificates() (err error) {
	svc := s.inst.svc
	s.certs, err = listen.NewCertificates(s.settings, svc.Core.Config.Hostname)
	if err != nil {
		return config.Mistake(err)
	}
	if s.certs == nil {
		return nil
	}
	svc.Health.Certificates = health.Certificates{Other: svc.Certs.FirstExpiry, Host: func() *tls.Certificate {
		cert, _ := s.certs.Pick(&tls.ClientHelloInfo{})
		return cert
	}}
	if svc.Core.Config.ACME == nil {
		return nil
	}
	if err := svc.Certs.LoadCertificates(); err != nil {
		return fmt.Errorf("read the certificates in the store: %w", err)
	}
	s.certs.Issued = svc.Certs.CertificateFor
	if svc.Core.Config.ACME.Host && svc.Certs.HostCertificate() == nil {
		s.log.Info("this host has no certificate yet: it uses a self-signed one until the certificate authority issues one",
			"host", svc.Core.Config.Hostname, "directory", svc.Core.Config.ACME.Directory)
	}
	return nil
}

// run starts all parts, reports that the server is ready, and waits until ctx ends or a part fails.
// Then it stops the parts in two steps.
func (s *server) run(ctx context.Context, dir string, created *accounts.AccountCreated, stdout io.Writer) error {
	// After stopAccepting, the listeners and the queue start nothing new, and running work may
	// finish. After stopServing, the service ends. It ends last because it stores the results of
	// that work.
	accepting, stopAccepting := context.WithCancel(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	defer stopAccepting()
	var last, work sync.WaitGroup
	s.start(&last, "service", func() error { return s.inst.svc.Run(serving) })
	s.start(&last, "traces", func() error { return s.inst.svc.Core.Tracer.Run(serving) })
	s.start(&work, "queue", func() error { return s.inst.queue.Run(accepting) })
	s.start(&work, "database", func() error { return s.inst.store.WatchPages(accepting) })
	s.start(&work, "master key", func() error {
		if err := s.inst.svc.Core.FinishKeyChange(accepting); err != nil && accepting.Err() == nil {
			s.log.Error("finish the change of the master key", "error", err)
		}
		return nil
	})
	s.start(&work, "previous stores", func() error {
		now := s.inst.store.Clock()
		daily, stop := now.Every(24 * time.Hour)
		defer stop()
		for {
			operator.RemovePrevious(dir, now.Now(), s.log)
			select {
			case <-accepting.Done():
				return nil
			case <-daily:
			}
		}
	})
	if s.inst.operator.Schedule != nil {
		s.start(&last, "backup", func() error { return s.inst.operator.Schedule.Run(serving) })
	}
	s.listenAll(accepting, &work)
	socket, err := s.serveSocket(accepting, dir, &work)
	if err != nil {
		s.log.Warn("the command line cannot reach this server while it runs", "error", err)
	} else {
		defer os.Remove(socket)
	}
	err = s.reportReady(dir, created, stdout)
	// Return memory that only the start needs to the system, and once more after the first full
	// scans of background jobs.
	work.Go(debug.FreeOSMemory)
	defer time.AfterFunc(15*time.Second, debug.FreeOSMemory).Stop()
	if err == nil {
		s.notifyManager("READY=1")
		err = s.wait(ctx)
	}
	s.log.Info("stopping")
	s.notifyManager("STOPPING=1")
	stopAccepting()
	waits := time.AfterFunc(stopGrace, s.inst.store.EndWaitsForStored)
	work.Wait()
	stopServing()
	last.Wait()
	waits.Stop()
	s.inst.store.EndWaitsForStored() // nobody waits for responses any more
	return err
}

// notifyManager reports a state, such as "READY=1", to the service manager (systemd). It only logs
// errors, because they must not stop the server.
func (s *server) notifyManager(state string) {
	if err := listen.NotifyServiceManager(state); err != nil {
		s.log.Warn("report the state to the service manager", "state", state, "error", err)
	}
}

// start runs one part in a goroutine of the group. If the part fails, the server stops. But if the
// error is that the store accepts no writes, the other parts continue, because the store can still
// be read.
func (s *server) start(group *sync.WaitGroup, name string, run func() error) {
	group.Go(func() {
		if err := run(); errors.Is(err, store.ErrFailed) {
			s.log.Error("a part of the server has ended because the store accepts no writes; restart the server", "part", name, "error", err)
		} else if err != nil {
			select {
			case s.failed <- fmt.Errorf("run %s: %w", name, err):
			default:
			}
		}
	})
}

// wait waits until ctx ends, and returns nil, or until a part fails, and returns its error. On
// SIGHUP it reloads the settings and the certificates.
func (s *server) wait(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case <-hup:
			s.reload()
		}
	}
}

// listenAll starts a server on every open socket.
func (s *server) listenAll(ctx context.Context, group *sync.WaitGroup) {
	l, tlsConfig := s.listeners, s.certs.MailConfig()
	exempt := s.settings.Limits.Exempt.Prefixes()
	// Limits per address do not apply to proxies, because they forward connections of many clients.
	exemptHTTP := slices.Concat(exempt, s.settings.Proxies.Prefixes())
	if l.HTTP != nil {
		s.start(group, "http", func() error {
			return s.serveHTTP(ctx, listen.LimitHTTP(l.HTTP, "http", true, exemptHTTP, s.log), s.api)
		})
	}
	if l.HTTPTLS != nil {
		s.start(group, "https", func() error {
			return s.serveHTTP(ctx, tls.NewListener(listen.LimitHTTP(l.HTTPTLS, "https", false, exemptHTTP, s.log), s.certs.HTTPSConfig()), s.api)
		})
	}
	most := func() core.ConnectionLimits { return s.inst.svc.Core.Settings().Connections }
	logins := connlimit.NewChangingLogins(func() int { return most().PerAccount })
	smtpServer := smtpd.New(s.inst.svc)
	smtpServer.Log, smtpServer.TLS, smtpServer.Logins, smtpServer.Limits.Exempt = s.log, tlsConfig, logins, exempt
	smtpServer.Limits.Changing = func() (perAddress, perMailbox int) { return most().PerAddress, most().PerMailboxSMTP }
	for mode, ln := range map[smtpd.Mode]net.Listener{smtpd.MX: l.SMTP, smtpd.Submission: l.Submission, smtpd.Submissions: l.Submissions} {
		if ln != nil {
			s.start(group, "smtp", func() error { return smtpServer.Run(ctx, ln, mode) })
		}
	}
	imapServer := imapd.New(s.inst.svc)
	imapServer.Log, imapServer.TLS, imapServer.Logins, imapServer.Exempt = s.log, tlsConfig, logins, exempt
	imapServer.Changing = func() (perAddress, perMailbox int) { return most().PerAddress, most().PerMailboxIMAP }
	if l.IMAP != nil {
		s.start(group, "imap", func() error { return imapServer.Run(ctx, l.IMAP, false) })
	}
	if l.IMAPS != nil {
		s.start(group, "imaps", func() error { return imapServer.Run(ctx, l.IMAPS, true) })
	}
	if l.DNSUDP != nil {
		dnsServer := &dnsd.Server{Zones: hostedZones{s.inst.svc}, Log: s.log, Secondaries: s.inst.svc.Core.Config.Secondaries, Exempt: exempt}
		dnsServer.Own = s.settings.IsOwn(s.inst.svc.Core.Config.PublicIPs)
		dnsServer.Answered = func(rcode string) { s.inst.svc.Core.Metrics.DNSQueries.Add(rcode) }
		s.start(group, "dns", func() error { return dnsServer.Run(ctx, l.DNSUDP, l.DNSTCP) })
	}
}

// hostedZones gives dnsd access to the zones of the service. It implements dnsd.Zones.
type hostedZones struct{ svc *service.Service }

func (z hostedZones) Zone(name string) (dnsd.Answerer, bool) {
	if catalog, ok := z.svc.Zones.Catalog(); ok && (name == catalog.Origin() || strings.HasSuffix(name, "."+catalog.Origin())) {
		return catalog, true
	}
	zone, ok := z.svc.Zones.Zone(name)
	if !ok {
		return nil, false
	}
	return zone, true
}

// serveHTTP serves HTTP on a listener until ctx ends. Then it waits for running requests, for up to
// stopGrace.
func (s *server) serveHTTP(ctx context.Context, ln net.Listener, h http.Handler) error {
	hs := listen.NewHTTPServer(h, s.log)
	hs.RegisterOnShutdown(s.api.EndStreams)
	done := make(chan error, 1)
	go func() { done <- hs.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := hs.Shutdown(limited); err != nil {
		hs.Close()
	}
	<-done
	return nil
}

// reportReady logs that the server is ready, prints the URL of the dashboard, and writes the ready
// file.
func (s *server) reportReady(dir string, created *accounts.AccountCreated, stdout io.Writer) error {
	r := s.listeners.Ready(os.Getpid())
	s.log.Info("ready", "version", version, "data", dir, "http", r.HTTP, "https", r.HTTPTLS, "smtp", r.SMTP,
		"submission", r.Submission, "submissions", r.Submissions, "imap", r.IMAP, "imaps", r.IMAPS, "dns", r.DNS)
	if _, err := io.WriteString(stdout, startText(s.inst.svc.Core, r, created)); err != nil {
		return err
	}
	if s.settings.ReadyFile == "" {
		return nil
	}
	return writeReady(s.settings.ReadyFile, r)
}

// writeReady writes the ready file, which has the addresses of all listeners as JSON. It replaces
// the file atomically.
func writeReady(path string, r listen.Ready) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := path + ".tmp" + strconv.Itoa(r.PID)
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write ready file: %w", err)
	}
	return os.Rename(tmp, path)
}

// startText returns the text that the server prints at the start. If a is not nil, the text has the
// welcome link, password and token of that new account, which are shown only once.
func startText(svc *core.Core, r listen.Ready, a *accounts.AccountCreated) string {
	c := svc.Config
	var w strings.Builder
	fmt.Fprint(&w, "Mailstead is running.\n\n")
	if a != nil && a.WelcomeLink != "" {
		fmt.Fprintf(&w, `Open this link in a browser to choose your email address and password. It works once, within 72 hours:

  welcome     %s

`, a.WelcomeLink)
	}
	if r.HTTP != "" || r.HTTPTLS != "" {
		fmt.Fprintf(&w, "  dashboard   %s/\n\n", c.BaseURL)
	}
	if a == nil {
		return w.String()
	}
	fmt.Fprintf(&w, `Shown once:

  owner       %s
  password    %s

  export TOKEN=%s
  curl -H "Authorization: Bearer $TOKEN" %s/v1/account

`, a.OwnerEmail, a.OwnerPassword, a.Token, c.BaseURL)
	if c.Sandbox {
		others := map[string]string{"capture": "captured and shown in the sending log", "relay": "sent through the relay", "direct": "sent"}
		fmt.Fprintf(&w, `This is the sandbox: mail to domains that are connected here is delivered, mail to anyone else is
%s.  SMTP %s  submission %s  IMAP %s  DNS %s

`, others[svc.Settings().Outbound], r.SMTP, r.Submission, r.IMAP, r.DNS)
	}
	return w.String()
}

// newLogger returns a logger. form is "json" or "text". In the sandbox, the times in the log are
// those of the clock now, which may be shifted.
func newLogger(w io.Writer, form string, level slog.Leveler, sandbox bool, now *clock.Clock) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if sandbox {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				a.Value = slog.TimeValue(now.Now())
			}
			return a
		}
	}
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// serveSocket serves the commands of the command line on a Unix socket in the data directory. Only
// the owner of the directory can open it. serveSocket returns the path of the socket.
func (s *server) serveSocket(ctx context.Context, dir string, group *sync.WaitGroup) (string, error) {
	path := filepath.Join(dir, operator.SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	// The umask is that of the whole process, so it is changed only for this call.
	old := syscall.Umask(0o177)
	ln, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", path, err)
	}
	s.start(group, "socket", func() error {
		return s.serveHTTP(ctx, netutil.LimitListener(ln, listen.MaxHTTPConns), s.inst.operator.Handler(s.api))
	})
	return path, nil
}

// reload reads the settings file and the certificates again. It applies the settings that can
// change while the server runs, and logs which others need a restart. If the settings are invalid,
// nothing changes.
func (s *server) reload() {
	fresh, err := s.loadSettings()
	if err == nil {
		err = s.inst.svc.Settings.UseFile(s.inst.file.refreshed(fresh))
	}
	if err != nil {
		s.log.Error("SIGHUP: the settings stay as they were", "error", err)
		return
	}
	if err := s.reloadCertificates(fresh); err != nil {
		s.log.Error("SIGHUP: the previous certificates stay in use", "error", err)
	}
	if changed := s.settings.NeedRestart(fresh); len(changed) > 0 {
		s.log.Warn("SIGHUP: some changed settings need a restart", "settings", changed)
	}
	s.log.Info("SIGHUP: read the settings again", "log_level", s.inst.svc.Core.Settings().LogLevel)
}

// reloadCertificates reads the certificate files again, and lets failed requests to the certificate
// authority run again at once.
func (s *server) reloadCertificates(fresh *config.Settings) error {
	if s.certs == nil {
		return nil
	}
	if fresh.TLSCert != "" && s.certs.FromFile() {
		if err := s.certs.Read(fresh.TLSCert, fresh.TLSKey); err != nil {
			return err
		}
	}
	return s.inst.svc.Certs.RetryCertificate()
}

// maxBytesCheckedAtStart is the maximum size in bytes of a database whose pages are verified at
// every start, which takes a fraction of a second. Larger databases are verified only if the
// previous server did not stop properly.
const maxBytesCheckedAtStart = 256 << 20

// mustCheckPages reports whether the pages of the database must be verified before the store is
// opened, because damaged pages might make the server hang or crash at every start. A server that
// stopped properly has removed its socket.
func mustCheckPages(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, store.DatabaseFile))
	if err != nil {
		return false // store.Open reports the error
	}
	_, err = os.Lstat(filepath.Join(dir, operator.SocketName))
	return err == nil || info.Size() <= maxBytesCheckedAtStart
}

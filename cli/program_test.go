package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// testProgram is a program whose commands can be run in this process. It opens a data directory as
// the real one does, but for what talks to others: DNS, registrars and edge providers.
func testProgram() *Program {
	p := &Program{Version: "test"}
	p.Serve = func(_ context.Context, _ string, load func() (*config.Settings, error), _, _ io.Writer) error {
		_, err := load()
		return err
	}
	p.Open = func(dir string, s *config.Settings, mayCreate bool, do func(*operator.Operator) error) error {
		if err := operator.RequireStore(dir, s, mayCreate); err != nil {
			return err
		}
		log := slog.New(slog.DiscardHandler)
		st, err := store.Open(dir, store.Options{Log: log, Program: p.Version, MayMigrate: operator.MigrationGuard(dir, s, p.Version)})
		if err != nil {
			return err
		}
		defer st.Close()
		keys, err := core.OpenKeys(st)
		if err != nil {
			return err
		}
		c := s.Service()
		c.Version, c.Log, c.PublicIPs, c.Metrics = p.Version, log, s.PublicIP, core.NewMetrics()
		if s.Resolver.On() {
			c.Resolver = lookup.New(lookup.Options{Servers: []string{s.Resolver.String()}})
		}
		svc := service.New(st, jobs.NewQueue(st), keys, c)
		defer svc.Close()
		o := &operator.Operator{Store: st, Service: svc, Settings: s, Log: log, Version: p.Version}
		o.Schedule, err = o.NewSchedule()
		if err != nil {
			return err
		}
		svc.Health.Backups = o.Schedule
		return do(o)
	}
	return p
}

// mailsteadCommand runs the program in this process.
func mailsteadCommand(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, said bytes.Buffer
	err = runCommand(t.Context(), testProgram().app(&out, &said), append([]string{"mailstead"}, args...))
	return out.String(), err
}

// isWrongUse reports whether a command ends with the code 2.
func isWrongUse(err error) bool {
	var u config.Error
	return errors.As(err, &u)
}

// inStore does something in the store of a stopped server.
func inStore(t *testing.T, dir string, do func(tx *store.Tx) error) {
	t.Helper()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Update(do); err != nil {
		t.Fatal(err)
	}
}

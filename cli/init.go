package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/store"
)

func (p *Program) initCommand() *cli.Command {
	return p.command("init", "create the store, an account, its owner and an admin token", "", func(c *cli.Context, e *env) error {
		if err := requireFlag(c, "owner-email"); err != nil {
			return err
		}
		in := newAccountRequest(c)
		in.First = true
		return runInit(c.Context, e, initOptions{account: in, hostname: c.String("hostname")})
	}, append(newAccountFlags(), &cli.StringFlag{Name: "hostname", Usage: "the host's public name, for the link that is printed", EnvVars: []string{"MAILSTEAD_HOSTNAME"}})...)
}

type initOptions struct {
	account  accounts.NewAccount
	hostname string
}

// runInit creates the store, an account and its owner. It never asks a running server, because that
// already has a store.
func runInit(ctx context.Context, e *env, o initOptions) error {
	s, err := e.offlineSettings()
	if err != nil {
		return err
	}
	if err := operator.RequireStore(e.dir, s, true); err != nil {
		return err
	}
	place, err := openDataDir(e.dir)
	if err != nil {
		return err
	}
	var out *accounts.AccountCreated
	err = e.open(e.dir, s, true, func(at *operator.Operator) error {
		if o.hostname != "" && !place.filesBefore[store.DatabaseFile] {
			text, err := os.ReadFile(filepath.Join(e.dir, settingsFile))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := place.writeSettings(config.AddSendingLimits(string(text))); err != nil {
				return err
			}
		}
		if !s.Sandbox() {
			if _, err := place.giveToServer(); err != nil {
				return err
			}
		}
		made, err := at.Service.Accounts.CreateAccount(ctx, o.account)
		if err != nil {
			return flagError(err, accountFlagNames)
		}
		out = made
		killpoint.At("key.account")
		return nil
	})
	if out == nil {
		return errors.Join(err, place.undo())
	}
	return errors.Join(e.printAccount(out), err)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/domains"
)

func (p *Program) claimCommand() *cli.Command {
	return p.command("claim", "assign a disputed domain to an account", "DOMAIN", func(c *cli.Context, _ *env) error {
		domain, err := parseDomain(c)
		if err != nil {
			return config.Mistake(err)
		}
		if c.String("account") == "" {
			return config.Mistake(errors.New("--account is required"))
		}
		// Flags after the domain are set only now, so the env is made again.
		return runClaim(c.Context, p.env(c), domains.ClaimDecision{Account: c.String("account"), Domain: domain})
	},
		&cli.StringFlag{Name: "account", Usage: "the account that gets the domain, by id or owner's address"},
		jsonFlag())
}

// runClaim assigns a domain that several accounts claim to one of them.
func runClaim(ctx context.Context, e *env, in domains.ClaimDecision) error {
	out := new(domains.ClaimDecided)
	if err := e.ask(ctx, operator.ClaimPath, in, out); err != nil {
		return err
	}
	return e.print(out, fmt.Sprintf("domain   %s (%s)\naccount  %s\nstatus   %s\n", out.Domain, out.DomainID, out.AccountID, out.Status))
}

// parseDomain returns the domain, which is the only argument of the command, and sets the flags
// that follow it.
func parseDomain(c *cli.Context) (domain string, err error) {
	for rest := c.Args().Slice(); len(rest) > 0; rest = rest[1:] {
		name, flag := strings.CutPrefix(rest[0], "-")
		name, value, given := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch {
		case !flag && domain == "":
			domain = rest[0]
			continue
		case !flag:
			return "", errors.New("name one domain: mailstead domain claim --account ID DOMAIN")
		case name == "json" && !given:
			value = "true"
		case !given && len(rest) > 1:
			value, rest = rest[1], rest[1:]
		}
		if err := c.Set(name, value); err != nil {
			return "", err
		}
	}
	if domain == "" {
		return "", errors.New("name the domain: mailstead domain claim --account ID DOMAIN")
	}
	return domain, nil
}

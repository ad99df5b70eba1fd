package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/service/domains"
)

func claimFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "account", Usage: "the account that is to have the domain, by id or owner's address"},
		jsonFlag(),
	}
}

// claimCommand decides which account a domain belongs to. Flags may also follow the domain.
func claimCommand(c *cli.Context) error {
	domain, err := takeDomain(c)
	if err != nil {
		return usageError{err}
	}
	if c.String("account") == "" {
		return usageError{errors.New("--account is required")}
	}
	out := new(domains.ClaimDecided)
	if err := runLocal(c, claimPath, domains.ClaimDecision{Account: c.String("account"), Domain: domain}, out); err != nil {
		return err
	}
	return printResult(c, out, fmt.Sprintf("domain   %s (%s)\naccount  %s\nstatus   %s\n", out.Domain, out.DomainID, out.AccountID, out.Status))
}

// takeDomain gives the one argument of the command, and sets the flags that follow it.
func takeDomain(c *cli.Context) (domain string, err error) {
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

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/inbox"
)

func importIMAPCommand() *cli.Command {
	return command("imap", "import a mailbox of another IMAP server", "", importIMAP,
		&cli.StringFlag{Name: "host", Usage: "the server"},
		&cli.IntFlag{Name: "port", Usage: "its port; 993, and 143 without TLS from the start"},
		&cli.StringFlag{Name: "security", Usage: "tls, starttls or none", Value: "tls"},
		&cli.StringFlag{Name: "ca-file", Usage: "additional certificate authorities, a PEM file"},
		&cli.StringFlag{Name: "user", Usage: "the name to log in with"},
		&cli.StringFlag{Name: "password-file", Usage: "a file with the password"},
		&cli.StringFlag{Name: "to", Usage: "the address of the mailbox"},
		&cli.StringFlag{Name: "list", Usage: "a CSV file with the header host,port,security,user,password,to and a line for each mailbox"},
		&cli.StringFlag{Name: "progress", Usage: "json: a line of JSON a second on standard error"}, jsonFlag())
}

// imapSources gives the mailboxes that the flags name.
func imapSources(c *cli.Context) ([]importSource, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	list := c.String("list")
	if list == "" {
		for _, flag := range []string{"host", "user", "password-file", "to"} {
			if c.String(flag) == "" {
				return nil, config.Mistake(fmt.Errorf("--%s is required, or --list", flag))
			}
		}
		password, err := os.ReadFile(c.String("password-file"))
		if err != nil {
			return nil, config.Mistake(err)
		}
		s, err := newIMAPSource(c.String("host"), strconv.Itoa(c.Int("port")), c.String("security"), c.String("user"), strings.TrimRight(string(password), "\r\n"), c.String("to"))
		return []importSource{s}, err
	}
	if c.String("host") != "" || c.String("to") != "" {
		return nil, config.Mistake(errors.New("--list stands in the place of --host and --to: give one or the other"))
	}
	var out []importSource
	err := readCSV(list, "host,port,security,user,password,to", "", func(line int, fields []string, bad error) {
		var s importSource
		if bad == nil {
			s, bad = newIMAPSource(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])
		}
		if bad != nil {
			s = importSource{from: lineOf(list, line), bad: bad}
		}
		out = append(out, s)
	})
	return out, err
}

func newIMAPSource(host, port, security, user, password, to string) (s importSource, err error) {
	usual := map[string]int{"tls": 993, "starttls": 143, "none": 143, "": 993}
	if _, ok := usual[security]; !ok {
		return s, config.Mistake(fmt.Errorf("security %q: it is tls, starttls or none", security))
	}
	n := 0
	if port != "" {
		n, err = strconv.Atoi(port)
		if err != nil || n < 0 || n > 65535 {
			return s, config.Mistake(fmt.Errorf("port %q: it is a number up to 65535", port))
		}
	}
	server := pull.Server{Host: host, Port: cmp.Or(n, usual[security]), Security: cmp.Or(security, "tls"), Username: user, Password: password}
	return importSource{from: user + "@" + host, to: to, server: server}, nil
}

func importIMAP(c *cli.Context) error {
	sources, err := imapSources(c)
	if err != nil {
		return err
	}
	roots, err := config.RootCAs(c.String("ca-file"))
	if err != nil {
		return err
	}
	client := &pull.Client{Dial: new(net.Dialer).DialContext, RootCAs: roots}
	return runImport(c, sources, func(im *inbox.Importer, s importSource) error { return im.ReadIMAP(c.Context, client, s.server) })
}

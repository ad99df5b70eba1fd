package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/transfer"
)

func (p *Program) importIMAPCommand() *cli.Command {
	return p.command("imap", "import a mailbox of another IMAP server", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runImportIMAP(c.Context, e, imapOptions{
			importOptions: importOptions{to: c.String("to"), list: c.String("list"), progress: c.String("progress")}, host: c.String("host"), port: c.Int("port"),
			security: c.String("security"), caFile: c.String("ca-file"), user: c.String("user"), passwordFile: c.String("password-file"),
		})
	},
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

// imapOptions say which mailboxes of which IMAP servers to import: one, or those of a CSV file.
type imapOptions struct {
	importOptions
	host, security, caFile, user, passwordFile string
	port                                       int // 0 means the default port for the security
}

// imapSources returns the IMAP mailbox of the flags, or those in the CSV file of --list.
func imapSources(o imapOptions) ([]importSource, error) {
	if o.list == "" {
		for _, needed := range []struct{ flag, value string }{{"host", o.host}, {"user", o.user}, {"password-file", o.passwordFile}, {"to", o.to}} {
			if needed.value == "" {
				return nil, config.Mistake(fmt.Errorf("--%s is required, or --list", needed.flag))
			}
		}
		password, err := os.ReadFile(o.passwordFile)
		if err != nil {
			return nil, config.Mistake(err)
		}
		s, err := newIMAPSource(o.host, strconv.Itoa(o.port), o.security, o.user, strings.TrimRight(string(password), "\r\n"), o.to)
		return []importSource{s}, err
	}
	if o.host != "" || o.to != "" {
		return nil, config.Mistake(errors.New("--list replaces --host and --to: give one or the other"))
	}
	var out []importSource
	err := readCSV(o.list, "host,port,security,user,password,to", "", func(line int, fields []string, bad error) {
		var s importSource
		if bad == nil {
			s, bad = newIMAPSource(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])
		}
		if bad != nil {
			s = importSource{from: lineName(o.list, line), invalid: bad}
		}
		out = append(out, s)
	})
	return out, err
}

func newIMAPSource(host, port, security, user, password, to string) (s importSource, err error) {
	defaultPorts := map[string]int{"tls": 993, "starttls": 143, "none": 143, "": 993}
	if _, ok := defaultPorts[security]; !ok {
		return s, config.Mistake(fmt.Errorf("unknown security %q; use tls, starttls or none", security))
	}
	n := 0
	if port != "" {
		n, err = strconv.Atoi(port)
		if err != nil || n < 0 || n > 65535 {
			return s, config.Mistake(fmt.Errorf("invalid port %q; use a number up to 65535", port))
		}
	}
	server := pull.Server{Host: host, Port: cmp.Or(n, defaultPorts[security]), Security: cmp.Or(security, "tls"), Username: user, Password: password}
	return importSource{from: user + "@" + host, to: to, server: server}, nil
}

func runImportIMAP(ctx context.Context, e *env, o imapOptions) error {
	sources, err := imapSources(o)
	if err != nil {
		return err
	}
	roots, err := config.RootCAs(o.caFile)
	if err != nil {
		return err
	}
	client := &pull.Client{Dial: new(net.Dialer).DialContext, RootCAs: roots}
	return runImport(ctx, e, o.importOptions, sources, func(im *transfer.Importer, s importSource) error { return im.ReadIMAP(ctx, client, s.server) })
}

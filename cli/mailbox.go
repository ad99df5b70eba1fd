package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/internal/nearest"
	"github.com/mailstead/mailstead/service/core"
)

func (p *Program) mailboxCommands() []*cli.Command {
	password := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "password-file", Usage: "a file with the password, or - for standard input; generated if left out"},
			accountFlag(), jsonFlag(),
		}
	}
	return []*cli.Command{
		p.command("create", "create a mailbox, and print its password once", "ADDRESS", func(c *cli.Context, e *env) error {
			address, given, err := addressAndPassword(c)
			if err != nil {
				return err
			}
			return runMailboxCreate(c.Context, e, c.String("account"), address, c.String("name"), given)
		}, append(password(), &cli.StringFlag{Name: "name", Usage: "the name of its person"})...),
		p.command("list", "list the mailboxes", "", func(c *cli.Context, e *env) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return runMailboxList(c.Context, e, c.String("account"), c.String("domain"))
		}, append(listFlags(), &cli.StringFlag{Name: "domain", Usage: "only those of this domain"}, accountFlag())...),
		p.command("password", "give a mailbox a new password, and print it once", "ADDRESS", func(c *cli.Context, e *env) error {
			address, given, err := addressAndPassword(c)
			if err != nil {
				return err
			}
			return runMailboxPassword(c.Context, e, c.String("account"), address, given)
		}, password()...),
		p.command("delete", "delete a mailbox with all its mail", "ADDRESS", func(c *cli.Context, e *env) error {
			address, err := requireArgument(c, "ADDRESS")
			if err != nil {
				return err
			}
			return runMailboxDelete(c.Context, e, c.String("account"), address, c.Bool("yes"))
		}, &cli.BoolFlag{Name: "yes", Usage: "do not ask"}, accountFlag(), jsonFlag()),
	}
}

// addressAndPassword returns the only argument of a command, an address, and the password of
// --password-file.
func addressAndPassword(c *cli.Context) (address, password string, err error) {
	address, err = requireArgument(c, "ADDRESS")
	if err != nil {
		return "", "", err
	}
	password, err = readPassword(c.String("password-file"), os.Stdin)
	return address, password, err
}

// readPassword reads a password from a file, or from stdin if the path is "-". It returns "" for no
// path. A line end after the password does not belong to it.
func readPassword(path string, stdin io.Reader) (string, error) {
	var text []byte
	var err error
	switch path {
	case "":
		return "", nil
	case "-":
		text, err = io.ReadAll(io.LimitReader(stdin, 1<<16))
	default:
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return "", config.Mistake(fmt.Errorf("read the password: %w", err))
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", config.Mistake(fmt.Errorf("there is no password in %s", path))
	}
	return password, nil
}

// runMailboxList prints the mailboxes of an account.
func runMailboxList(ctx context.Context, e *env, account, domain string) error {
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		args := jsonObject{"limit": "100"}
		if domain != "" {
			d, err := a.findDomain(domain)
			if err != nil {
				return err
			}
			args["domain"] = d["domain_id"]
		}
		list, err := a.list("list_email_users", args)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"Address", "Status", "Name", "Used", "Unread", "Last login"}, wide: []int{2, 0}, empty: "No mailboxes. `mailstead mailbox create NAME@DOMAIN` creates one."}
		for _, m := range list {
			used, _ := m["used_bytes"].(float64)
			size := bytesText(int64(used))
			if e.csv {
				size = fmt.Sprintf("%.0f", used)
			}
			t.add(m.stringField("email"), m.stringField("status"), m.stringField("name"), size, fmt.Sprint(m["unread_count"]), timeText(m["last_login_at"]))
		}
		return e.printTable(listOf(list), t)
	})
}

// findMailbox returns the account's mailbox with an address or an id.
func (a *apiCaller) findMailbox(address string) (jsonObject, error) {
	if strings.HasPrefix(address, "eu_") {
		return a.get("get_email_user", jsonObject{"user_id": address})
	}
	wanted := strings.ToLower(address)
	name, domain, ok := strings.Cut(wanted, "@")
	if !ok {
		return nil, config.Mistake(fmt.Errorf("%q is not an address; write NAME@DOMAIN", address))
	}
	list, err := a.list("list_email_users", jsonObject{"q": wanted})
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.stringField("email") == wanted {
			return m, nil
		}
	}
	list, _, err = a.page("list_email_users", jsonObject{"domain": domain, "limit": "100"})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range list {
		names = append(names, m.stringField("username"))
	}
	if near := nearest.Name(name, names); near != "" {
		return nil, fmt.Errorf("there is no mailbox %s: did you mean %s@%s?", address, near, domain)
	}
	return nil, fmt.Errorf("there is no mailbox %s; `mailstead mailbox list` lists them", address)
}

// runMailboxCreate creates a mailbox and prints how a mail program reaches it.
func runMailboxCreate(ctx context.Context, e *env, account, address, name, password string) error {
	if !strings.Contains(address, "@") {
		return config.Mistake(fmt.Errorf("%q is not an address; write NAME@DOMAIN", address))
	}
	args := jsonObject{"email": address}
	if name != "" {
		args["name"] = name
	}
	if password != "" {
		args["password"] = password
	}
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		made, err := a.get("create_email_user", args)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("mailbox   %s\n", made.stringField("email"))
		if made["password_generated"] == true {
			text += fmt.Sprintf("password  %s\n", made.stringField("password"))
		}
		security := map[string]string{"tls": "TLS", "starttls": "STARTTLS", "none": "not encrypted"}
		for _, protocol := range []string{"imap", "smtp"} {
			if port, _ := made[protocol+"_port"].(float64); port > 0 {
				text += fmt.Sprintf("%s      %s port %.0f, %s\n", protocol, made.stringField(protocol+"_host"), port, security[made.stringField(protocol+"_security")])
			}
		}
		if made.stringField("status") == "pending" {
			text += "It can be used once its domain is complete.\n"
		}
		return e.print(made, text)
	})
}

// runMailboxPassword replaces the password of a mailbox. Without a given one, it generates one and
// prints it.
func runMailboxPassword(ctx context.Context, e *env, account, address, given string) error {
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		m, err := a.findMailbox(address)
		if err != nil {
			return err
		}
		password := given
		if password == "" {
			password = core.NewPassword()
		}
		if _, err := a.get("update_email_user", jsonObject{"user_id": m["user_id"], "password": password}); err != nil {
			return err
		}
		out, text := jsonObject{"email": m["email"], "user_id": m["user_id"]}, fmt.Sprintf("mailbox   %s\n", m.stringField("email"))
		if given == "" {
			out["password"] = password
			text += fmt.Sprintf("password  %s\n", password)
		}
		return e.print(out, text)
	})
}

// runMailboxDelete deletes a mailbox. It asks first, and deletes nothing without an answer.
func runMailboxDelete(ctx context.Context, e *env, account, address string, yes bool) error {
	return e.withAPI(ctx, account, func(a *apiCaller) error {
		m, err := a.findMailbox(address)
		if err != nil {
			return err
		}
		used, _ := m["used_bytes"].(float64)
		what := fmt.Sprintf("the mailbox %s with all its mail (%s)", m.stringField("email"), bytesText(int64(used)))
		if !yes {
			if err := e.confirm("This deletes "+what+" and cannot be undone.", os.Stdin); err != nil {
				return err
			}
		}
		out, err := a.get("delete_email_user", jsonObject{"user_id": m["user_id"]})
		if err != nil {
			return err
		}
		return e.print(out, fmt.Sprintf("%s is deleted.\n", m.stringField("email")))
	})
}

// confirm asks on the terminal whether to go on. Without a terminal it returns an error of wrong
// use, which names --yes.
func (e *env) confirm(warning string, stdin *os.File) error {
	if !term.IsTerminal(int(stdin.Fd())) {
		return config.Mistake(fmt.Errorf("%s Add --yes to do it", warning))
	}
	fmt.Fprintf(e.stderr, "%s\nGo on? [y/N] ", warning)
	answer, err := bufio.NewReader(stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed")
}

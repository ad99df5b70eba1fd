package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// accountFile is the name of the file in an export that has the settings of the account.
const accountFile = "account.json"

func (p *Program) exportCommands() []*cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "the directory that is written to; it is made if it is missing"},
		&cli.StringSliceFlag{Name: "from", Usage: "the address of a mailbox; may be repeated"},
		&cli.BoolFlag{Name: "all", Usage: "every mailbox of the account"},
		&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address, if there are several"},
		&cli.BoolFlag{Name: "secrets", Usage: "write the secrets of webhooks and the password hashes of mailboxes too"},
		jsonFlag(),
	}
	run := func(newWriter func(dir string, folder []string) (folderWriter, error)) func(c *cli.Context, e *env) error {
		return func(c *cli.Context, e *env) error {
			if err := argumentAsFlag(c, "to"); err != nil {
				return err
			}
			if c.String("to") == "" {
				return config.Mistake(fmt.Errorf("name the directory: %s DIR --all", c.Command.HelpName))
			}
			if c.Bool("all") && len(c.StringSlice("from")) > 0 {
				return config.Mistake(errors.New("give --from or --all, not both"))
			}
			if !c.Bool("all") && len(c.StringSlice("from")) == 0 {
				return config.Mistake(errors.New("say which mailboxes: --from ADDRESS, or --all"))
			}
			return runExport(c.Context, e, exportOptions{
				to: c.String("to"), from: c.StringSlice("from"), all: c.Bool("all"), account: c.String("account"), secrets: c.Bool("secrets"), newWriter: newWriter,
			})
		}
	}
	return []*cli.Command{
		p.command("maildir", "export mailboxes as Maildirs", "[DIR]", run(newMaildirWriter), flags...),
		p.command("mbox", "export mailboxes as mbox files, one for each folder", "[DIR]", run(newMboxWriter), flags...),
	}
}

type exportOptions struct {
	to      string   // the directory to write to
	from    []string // addresses of mailboxes; empty if all is set
	all     bool     // export every mailbox of the account
	account string   // account ID or owner's address; "" means the only account
	secrets bool     // also write webhook secrets and password hashes

	// newWriter creates the files of one folder in the directory dir of a mailbox.
	newWriter func(dir string, folder []string) (folderWriter, error)
}

// exportResult counts what was exported, and lists the messages that could not be read.
type exportResult struct {
	Mailboxes  int                    `json:"mailboxes"`
	Messages   int64                  `json:"messages"`
	Folders    int                    `json:"folders"`
	Bytes      int64                  `json:"bytes"`
	DurationMS int64                  `json:"duration_ms"`
	Errors     []transfer.ImportError `json:"errors"`
}

// A folderWriter writes the messages of one folder. The caller closes it after the last message.
type folderWriter interface {
	write(h operator.ExportHeader, text []byte) error
	close() error
}

// An exporter exports mailboxes from the server.
type exporter struct {
	apiCaller
	o         exportOptions
	format    string // maildir or mbox
	accountID string // needed because two accounts can have a mailbox with the same address
	out       exportResult
	line      *progressLine
}

// runExport exports mailboxes and the settings of their account.
func runExport(ctx context.Context, e *env, o exportOptions) error {
	began := time.Now()
	x := &exporter{apiCaller: apiCaller{ctx: ctx, account: o.account}, o: o, format: e.name, line: e.newProgressLine(), out: exportResult{Errors: []transfer.ImportError{}}}
	err := e.withServer(ctx, func(send sender) error {
		x.send = send
		return x.run()
	})
	x.line.end()
	if err != nil {
		return err
	}
	x.out.DurationMS = time.Since(began).Milliseconds()
	text := fmt.Sprintf("mailboxes  %d\nmessages   %d\nfolders    %d\nbytes      %d\n", x.out.Mailboxes, x.out.Messages, x.out.Folders, x.out.Bytes)
	for _, wrong := range x.out.Errors {
		text += fmt.Sprintf("%s: %s\n", wrong.Source, wrong.Message)
	}
	if err := e.print(x.out, text); err != nil {
		return err
	}
	if n := len(x.out.Errors); n > 0 {
		return fmt.Errorf("%d messages could not be read and were not exported", n)
	}
	return nil
}

func (x *exporter) run() error {
	account, err := x.readAccount()
	if err != nil {
		return err
	}
	addresses := x.o.from
	if x.o.all {
		for _, m := range account.Mailboxes {
			addresses = append(addresses, m.stringField("email"))
		}
	}
	if err := os.MkdirAll(x.o.to, 0o700); err != nil {
		return err
	}
	for _, address := range addresses {
		if err := x.exportMailbox(address); err != nil {
			return fmt.Errorf("export mailbox %s: %w", address, err)
		}
	}
	text, err := json.MarshalIndent(account, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(x.o.to, accountFile), append(text, '\n'), 0o600)
}

// exportMailbox writes all folders of a mailbox to a new directory, which has the address as its
// name.
func (x *exporter) exportMailbox(address string) error {
	dir := filepath.Join(x.o.to, strings.ReplaceAll(strings.ToLower(address), "/", "_"))
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("the directory %s is not empty: export to another directory", dir)
	}
	var folders []transfer.ExportFolder
	page, err := x.queryMailbox(url.Values{"mailbox": {address}, "begins": {x.format}})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(page, &folders); err != nil {
		return err
	}
	var total, done int64
	for _, f := range folders {
		total += f.Messages
	}
	for _, f := range folders {
		w, err := x.o.newWriter(dir, f.Name)
		if err != nil {
			return err
		}
		for from, more := uint32(1), true; more; {
			page, err := x.queryMailbox(url.Values{"mailbox": {address}, "folder": {strconv.Itoa(int(f.ID))}, "from": {strconv.Itoa(int(from))}})
			if err != nil {
				return errors.Join(err, w.close())
			}
			for r := bufio.NewReader(bytes.NewReader(page)); ; {
				line, err := r.ReadBytes('\n')
				var h operator.ExportHeader
				if err == nil {
					err = json.Unmarshal(line, &h)
				}
				text := make([]byte, h.Size)
				if err == nil {
					_, err = io.ReadFull(r, text)
				}
				if err != nil {
					return errors.Join(fmt.Errorf("read a page of messages: %w", err), w.close())
				}
				if h.UID == 0 {
					more = h.More
					break
				}
				from = h.UID + 1
				if h.Error != "" {
					x.out.Errors = append(x.out.Errors, transfer.ImportError{Source: fmt.Sprintf("%s %s UID %d", address, strings.Join(f.Name, "/"), h.UID), Message: h.Error})
					continue
				}
				if err := w.write(h, text); err != nil {
					return errors.Join(err, w.close())
				}
				x.out.Messages++
				x.out.Bytes += int64(h.Size)
				done++
				x.line.show("messages of "+address, done, total)
			}
		}
		if err := w.close(); err != nil {
			return err
		}
		x.out.Folders++
	}
	x.out.Mailboxes++
	return nil
}

// queryMailbox asks the server for what the query names: the folders, a page of messages, or the
// password hash of a mailbox.
func (x *exporter) queryMailbox(query url.Values) ([]byte, error) {
	query.Set("account", x.accountID)
	r, err := http.NewRequestWithContext(x.ctx, http.MethodGet, operator.ExportPath+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	return x.roundTrip(r)
}

// accountExport is the content of account.json: objects of the API with the settings of an account.
type accountExport struct {
	Domains   []jsonObject            `json:"domains"`
	Records   map[string][]jsonObject `json:"records"`     // by domain; empty if others manage its DNS
	Sets      map[string][]jsonObject `json:"record_sets"` // the record sets of other types than Records has, by domain
	Mailboxes []jsonObject            `json:"mailboxes"`
	Webhooks  []jsonObject            `json:"webhooks"`
	Settings  json.RawMessage         `json:"settings"`
	Groups    []jsonObject            `json:"groups"`
	Rules     map[string][]jsonObject `json:"rules"` // by address of the mailbox
	// Automatic replies by address of the mailbox, for mailboxes that have one.
	Vacations        map[string]jsonObject `json:"vacations"`
	Templates        []jsonObject          `json:"templates"`
	MessageTemplates []jsonObject          `json:"message_templates"`
	Suppressions     []jsonObject          `json:"suppressions"`

	// The following objects are not imported: the server stores only hashes of their secrets, so
	// they must be created again by hand.
	Team            []jsonObject            `json:"team"`
	Tokens          []jsonObject            `json:"tokens"`
	Credentials     map[string][]jsonObject `json:"credentials"`      // by address
	SMTPCredentials map[string][]jsonObject `json:"smtp_credentials"` // by domain
}

// readAccount reads all objects of the account through the API, and sets x.accountID.
func (x *exporter) readAccount() (*accountExport, error) {
	a := &accountExport{
		Records: map[string][]jsonObject{}, Sets: map[string][]jsonObject{}, Rules: map[string][]jsonObject{}, Vacations: map[string]jsonObject{},
		Credentials: map[string][]jsonObject{}, SMTPCredentials: map[string][]jsonObject{},
	}
	var err error
	a.Settings, err = x.call("get_account", nil)
	if err != nil {
		return nil, err
	}
	var own jsonObject
	if err := json.Unmarshal(a.Settings, &own); err != nil {
		return nil, err
	}
	x.accountID = own.stringField("id")
	for _, l := range []struct {
		operation string
		to        *[]jsonObject
	}{
		{"list_domains", &a.Domains}, {"list_email_users", &a.Mailboxes}, {"list_webhooks", &a.Webhooks}, {"list_groups", &a.Groups},
		{"list_templates", &a.Templates}, {"list_message_templates", &a.MessageTemplates}, {"list_suppressions", &a.Suppressions},
		{"list_team_users", &a.Team}, {"list_tokens", &a.Tokens},
	} {
		*l.to, err = x.list(l.operation, nil)
		if err != nil {
			return nil, err
		}
	}
	for _, d := range a.Domains {
		name, of := d.stringField("domain"), jsonObject{"domain_id": d["domain_id"]}
		a.Records[name], a.Sets[name] = []jsonObject{}, []jsonObject{}
		if managesDNS(d) {
			a.Records[name], err = x.list("list_custom_dns_records", of)
			if err != nil {
				return nil, err
			}
			a.Sets[name], err = x.customSets(of)
			if err != nil {
				return nil, err
			}
		}
		a.SMTPCredentials[name], err = x.list("list_smtp_credentials", of)
		if err != nil {
			return nil, err
		}
	}
	for _, m := range a.Mailboxes {
		if err := x.readMailbox(a, m); err != nil {
			return nil, err
		}
	}
	for _, hook := range a.Webhooks {
		if !x.o.secrets {
			break
		}
		text, err := x.call("get_webhook_secret", jsonObject{"id": hook["id"]})
		if err != nil {
			return nil, err
		}
		var secret jsonObject
		if err := json.Unmarshal(text, &secret); err != nil {
			return nil, err
		}
		hook["secret"] = secret["secret"]
	}
	return a, nil
}

// customSets returns the record sets of a domain that its owner has added, other than those that
// list_custom_dns_records lists. Delegations come first, since DS records need them.
func (x *exporter) customSets(of jsonObject) ([]jsonObject, error) {
	all, err := x.list("get_zone", of)
	if err != nil {
		return nil, err
	}
	delegations, others := []jsonObject{}, []jsonObject{}
	for _, set := range all {
		switch typ := set.stringField("type"); {
		case set["source"] != "custom" || slices.Contains([]string{"TXT", "CNAME", "A", "AAAA"}, typ):
		case typ == "NS":
			delegations = append(delegations, set)
		default:
			others = append(others, set)
		}
	}
	return append(delegations, others...), nil
}

// managesDNS reports whether the server sets the DNS records of a domain, here or at a provider.
func managesDNS(d jsonObject) bool {
	return d.stringField("dns_provider") != store.DomainProviderManual && d.stringField("dns_provider") != store.DomainProviderExternal
}

// readMailbox reads the rules, credentials and automatic reply of a mailbox into a. If secrets are
// exported, it adds the password hash to m.
func (x *exporter) readMailbox(a *accountExport, m jsonObject) (err error) {
	email, of := m.stringField("email"), jsonObject{"user_id": m["user_id"]}
	a.Rules[email], err = x.list("list_rules", of)
	if err != nil {
		return err
	}
	a.Credentials[email], err = x.list("list_credentials", of)
	if err != nil {
		return err
	}
	text, err := x.call("get_vacation", of)
	if err != nil {
		return err
	}
	var vacation jsonObject
	if err := json.Unmarshal(text, &vacation); err != nil {
		return err
	}
	if vacation.stringField("text") != "" {
		a.Vacations[email] = vacation
	}
	if !x.o.secrets {
		return nil
	}
	text, err = x.queryMailbox(url.Values{"mailbox": {email}, "hash": {"true"}})
	if err != nil {
		return err
	}
	var hash string
	if err := json.Unmarshal(text, &hash); err != nil {
		return err
	}
	m["password_hash"] = hash
	return nil
}

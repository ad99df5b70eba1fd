package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Messages come from the server in pages, and the command writes the files, where the operator may.
const accountFile = "account.json"

func exportCommands() []*cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "the directory that is written to; it is made if it is missing"},
		&cli.StringSliceFlag{Name: "from", Usage: "the address of a mailbox; may be repeated"},
		&cli.BoolFlag{Name: "all", Usage: "every mailbox of the account"},
		&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address, if there are several"},
		&cli.BoolFlag{Name: "secrets", Usage: "write the secrets of webhooks and the password hashes of mailboxes too"},
		jsonFlag(),
	}
	return []*cli.Command{
		command("maildir", "export mailboxes as Maildirs", "", exportWith(writeMaildir), flags...),
		command("mbox", "export mailboxes as mbox files, one for each folder", "", exportWith(writeMbox), flags...),
	}
}

// exportResult is what an export came to.
type exportResult struct {
	Mailboxes  int                 `json:"mailboxes"`
	Messages   int64               `json:"messages"`
	Folders    int                 `json:"folders"`
	Bytes      int64               `json:"bytes"`
	DurationMS int64               `json:"duration_ms"`
	Errors     []inbox.ImportError `json:"errors"`
}

// A folderWriter writes the messages of a folder, and is closed behind the last one.
type folderWriter interface {
	write(h operator.ExportHeader, text []byte) error
	close() error
}

// An exporter takes mail out of the server.
type exporter struct {
	apiCaller
	account string // whose mailboxes are meant: several may claim a domain that nobody has proven
	out     exportResult
	line    *progressLine
}

func exportWith(begin func(dir string, name []string) (folderWriter, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := requireFlag(c, "to"); err != nil {
			return err
		}
		if c.Bool("all") == (len(c.StringSlice("from")) > 0) {
			return config.Mistake(errors.New("say which mailboxes: --from ADDRESS, or --all"))
		}
		began := time.Now()
		x := &exporter{apiCaller: apiCaller{c: c}, line: newProgress(c), out: exportResult{Errors: []inbox.ImportError{}}}
		err := throughout(c, func(send func(*http.Request) (*http.Response, error)) error {
			x.send = send
			return x.run(c.String("to"), begin)
		})
		x.line.end()
		if err != nil {
			return err
		}
		x.out.DurationMS = time.Since(began).Milliseconds()
		text := fmt.Sprintf("mailboxes  %d\nmessages   %d\nfolders    %d\nbytes      %d\n", x.out.Mailboxes, x.out.Messages, x.out.Folders, x.out.Bytes)
		for _, e := range x.out.Errors {
			text += fmt.Sprintf("%s: %s\n", e.Source, e.Message)
		}
		if err := printResult(c, x.out, text); err != nil {
			return err
		}
		if n := len(x.out.Errors); n > 0 {
			return fmt.Errorf("%d messages cannot be read and were left out", n)
		}
		return nil
	}
}

func (x *exporter) run(to string, begin func(string, []string) (folderWriter, error)) error {
	account, err := x.readAccount()
	if err != nil {
		return err
	}
	addresses := x.c.StringSlice("from")
	if x.c.Bool("all") {
		for _, m := range account.Mailboxes {
			addresses = append(addresses, m.text("email"))
		}
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, address := range addresses {
		if err := x.exportMailbox(to, address, begin); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
	}
	text, err := json.MarshalIndent(account, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, accountFile), append(text, '\n'), 0o600)
}

// exportMailbox writes all folders of a mailbox.
func (x *exporter) exportMailbox(to, address string, begin func(string, []string) (folderWriter, error)) error {
	dir := filepath.Join(to, strings.ReplaceAll(strings.ToLower(address), "/", "_"))
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: export to another directory", dir)
	}
	var folders []inbox.ExportFolder
	page, err := x.ask(url.Values{"mailbox": {address}, "begins": {x.c.Command.Name}})
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
		w, err := begin(dir, f.Name)
		if err != nil {
			return err
		}
		for from, more := uint32(1), true; more; {
			page, err := x.ask(url.Values{"mailbox": {address}, "folder": {strconv.Itoa(int(f.ID))}, "from": {strconv.Itoa(int(from))}})
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
					return errors.Join(fmt.Errorf("read a page: %w", err), w.close())
				}
				if h.UID == 0 {
					more = h.More
					break
				}
				from = h.UID + 1
				if h.Error != "" {
					x.out.Errors = append(x.out.Errors, inbox.ImportError{Source: fmt.Sprintf("%s %s UID %d", address, strings.Join(f.Name, "/"), h.UID), Message: h.Error})
					continue
				}
				if err := w.write(h, text); err != nil {
					return errors.Join(err, w.close())
				}
				x.out.Messages++
				x.out.Bytes += int64(h.Size)
				done++
				x.line.show(address, done, total)
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

// ask asks for folders, messages or the password hash of a mailbox.
func (x *exporter) ask(what url.Values) ([]byte, error) {
	what.Set("account", x.account)
	r, err := http.NewRequestWithContext(x.c.Context, http.MethodGet, operator.ExportPath+"?"+what.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	return x.answer(r)
}

// accountExport is the content of account.json: what the API says of everything in the account that
// somebody has set.
type accountExport struct {
	Domains          []object            `json:"domains"`
	Records          map[string][]object `json:"records"` // by domain; none where its DNS is elsewhere
	Mailboxes        []object            `json:"mailboxes"`
	Webhooks         []object            `json:"webhooks"`
	Settings         json.RawMessage     `json:"settings"`
	Groups           []object            `json:"groups"`
	Rules            map[string][]object `json:"rules"`     // by address, as Vacations
	Vacations        map[string]object   `json:"vacations"` // of who has one
	Templates        []object            `json:"templates"`
	MessageTemplates []object            `json:"message_templates"`
	Suppressions     []object            `json:"suppressions"`

	// These have to be made anew, since only hashes of them are kept.
	Team            []object            `json:"team"`
	Tokens          []object            `json:"tokens"`
	Credentials     map[string][]object `json:"credentials"`      // by address
	SMTPCredentials map[string][]object `json:"smtp_credentials"` // by domain
}

// readAccount asks the API for everything in the account.
func (x *exporter) readAccount() (*accountExport, error) {
	a := &accountExport{
		Records: map[string][]object{}, Rules: map[string][]object{}, Vacations: map[string]object{},
		Credentials: map[string][]object{}, SMTPCredentials: map[string][]object{},
	}
	var err error
	a.Settings, err = x.call("get_account", nil)
	if err != nil {
		return nil, err
	}
	var own object
	if err := json.Unmarshal(a.Settings, &own); err != nil {
		return nil, err
	}
	x.account = own.text("id")
	for _, l := range []struct {
		operation string
		to        *[]object
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
		name, of := d.text("domain"), object{"domain_id": d["domain_id"]}
		a.Records[name] = []object{}
		if managesDNS(d) {
			a.Records[name], err = x.list("list_custom_dns_records", of)
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
		if !x.c.Bool("secrets") {
			break
		}
		text, err := x.call("get_webhook_secret", object{"id": hook["id"]})
		if err != nil {
			return nil, err
		}
		var secret object
		if err := json.Unmarshal(text, &secret); err != nil {
			return nil, err
		}
		hook["secret"] = secret["secret"]
	}
	return a, nil
}

// managesDNS tells whether the records of a domain are changed here.
func managesDNS(d object) bool {
	return d.text("dns_provider") != store.DomainProviderManual && d.text("dns_provider") != store.DomainProviderExternal
}

// readMailbox asks for what belongs to a mailbox.
func (x *exporter) readMailbox(a *accountExport, m object) (err error) {
	email, of := m.text("email"), object{"user_id": m["user_id"]}
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
	var vacation object
	if err := json.Unmarshal(text, &vacation); err != nil {
		return err
	}
	if vacation.text("text") != "" {
		a.Vacations[email] = vacation
	}
	if !x.c.Bool("secrets") {
		return nil
	}
	text, err = x.ask(url.Values{"mailbox": {email}, "hash": {"true"}})
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

// A maildirWriter writes a folder of a Maildir.
type maildirWriter struct{ folder maildir.Folder }

func writeMaildir(dir string, name []string) (folderWriter, error) {
	if len(name) == 1 && name[0] == inbox.InboxName {
		name = nil
	}
	f, err := maildir.Make(dir, name)
	return maildirWriter{f}, err
}

func (w maildirWriter) write(h operator.ExportHeader, text []byte) error {
	path := filepath.Join(w.folder.Dir, "cur", maildir.FileName(h.Date, h.UID, h.Flags))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return os.Chtimes(path, h.Date, h.Date)
}

func (w maildirWriter) close() error { return nil }

// An mboxWriter writes an mbox file.
type mboxWriter struct {
	file *os.File
	w    *bufio.Writer
}

func writeMbox(dir string, name []string) (folderWriter, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, mbox.FileName(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &mboxWriter{f, bufio.NewWriterSize(f, 256<<10)}, nil
}

func (w *mboxWriter) write(h operator.ExportHeader, text []byte) error {
	return mbox.Write(w.w, h.Sender, h.Date, h.Flags, bytes.NewReader(text))
}

func (w *mboxWriter) close() error { return errors.Join(w.w.Flush(), w.file.Close()) }

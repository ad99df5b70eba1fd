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

	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/service/inbox"
)

// Messages come from the server in pages, and the command writes the files, where the operator may.
const (
	exportPath     = "/local/export"
	exportPageSize = 4 << 20 // bytes
	accountFile    = "account.json"
)

func exportCommands() []*cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "the directory that is written to; it is made if it is missing"},
		&cli.StringSliceFlag{Name: "from", Usage: "the address of a mailbox; may be repeated"},
		&cli.BoolFlag{Name: "all", Usage: "every mailbox of the account"},
		&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address, if there are several"},
		&cli.BoolFlag{Name: "secrets", Usage: "write the secrets of webhooks too"},
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

// exportHeader stands before each message of a page, as one line of JSON. One without a UID ends
// the page.
type exportHeader struct {
	UID    uint32    `json:"uid,omitempty"`
	Flags  string    `json:"flags,omitempty"`
	Date   time.Time `json:"date,omitzero"`
	Sender string    `json:"sender,omitempty"`
	Size   int       `json:"size,omitempty"`
	Error  string    `json:"error,omitempty"`
	More   bool      `json:"more,omitempty"`
}

// A folderWriter writes the messages of a folder, and is closed behind the last one.
type folderWriter interface {
	write(h exportHeader, text []byte) error
	close() error
}

// An exporter takes mail out of the server.
type exporter struct {
	c    *cli.Context
	send func(*http.Request) (*http.Response, error)
	out  exportResult
	line *progressLine
}

func exportWith(begin func(dir string, name []string) (folderWriter, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := requireFlag(c, "to"); err != nil {
			return err
		}
		if c.Bool("all") == (len(c.StringSlice("from")) > 0) {
			return usageError{errors.New("say which mailboxes: --from ADDRESS, or --all")}
		}
		began := time.Now()
		x := &exporter{c: c, line: newProgress(c), out: exportResult{Errors: []inbox.ImportError{}}}
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
			var box struct{ Email string }
			if err := json.Unmarshal(m, &box); err != nil {
				return err
			}
			addresses = append(addresses, box.Email)
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
	page, err := x.ask(exportPath + "?" + url.Values{"mailbox": {address}, "begins": {x.c.Command.Name}}.Encode())
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
			page, err := x.ask(exportPath + "?" + url.Values{"mailbox": {address}, "folder": {strconv.Itoa(int(f.ID))}, "from": {strconv.Itoa(int(from))}}.Encode())
			if err != nil {
				return errors.Join(err, w.close())
			}
			for r := bufio.NewReader(bytes.NewReader(page)); ; {
				line, err := r.ReadBytes('\n')
				var h exportHeader
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

// ask sends a GET and gives the body of its answer.
func (x *exporter) ask(path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(x.c.Context, http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return x.answer(r)
}

func (x *exporter) answer(r *http.Request) ([]byte, error) {
	r.Header.Set("X-Mailstead-Account", x.c.String("account"))
	resp, err := x.send(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return text, err
}

// accountExport is the content of account.json: what the API says of everything in the account.
type accountExport struct {
	Domains   []json.RawMessage            `json:"domains"`
	Records   map[string][]json.RawMessage `json:"records"` // by domain
	Mailboxes []json.RawMessage            `json:"mailboxes"`
	Webhooks  []json.RawMessage            `json:"webhooks"`
	Settings  json.RawMessage              `json:"settings"`
}

// readAccount asks the API for everything in the account.
func (x *exporter) readAccount() (*accountExport, error) {
	a := &accountExport{Domains: []json.RawMessage{}, Records: map[string][]json.RawMessage{}, Mailboxes: []json.RawMessage{}, Webhooks: []json.RawMessage{}}
	var err error
	if a.Settings, err = x.call("get_account", nil); err != nil {
		return nil, err
	}
	for operation, to := range map[string]*[]json.RawMessage{"list_domains": &a.Domains, "list_email_users": &a.Mailboxes, "list_webhooks": &a.Webhooks} {
		if err := x.list(operation, map[string]any{}, to); err != nil {
			return nil, err
		}
	}
	for _, d := range a.Domains {
		var domain struct {
			ID   string `json:"domain_id"`
			Name string `json:"domain"`
		}
		if err := json.Unmarshal(d, &domain); err != nil {
			return nil, err
		}
		records := []json.RawMessage{}
		if err := x.list("list_custom_dns_records", map[string]any{"domain_id": domain.ID}, &records); err != nil {
			return nil, err
		}
		a.Records[domain.Name] = records
	}
	for i, w := range a.Webhooks {
		if !x.c.Bool("secrets") {
			break
		}
		var hook map[string]any
		if err := json.Unmarshal(w, &hook); err != nil {
			return nil, err
		}
		text, err := x.call("get_webhook_secret", map[string]any{"id": hook["id"]})
		if err != nil {
			return nil, err
		}
		var secret struct{ Secret string }
		if err := json.Unmarshal(text, &secret); err != nil {
			return nil, err
		}
		hook["secret"] = secret.Secret
		if a.Webhooks[i], err = json.Marshal(hook); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// call calls an operation of the API as the owner of the account.
func (x *exporter) call(operation string, args map[string]any) (json.RawMessage, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	if args == nil {
		text = []byte("{}")
	}
	r, err := handlers.NewRequest(x.c.Context, operation, string(text))
	if err != nil {
		return nil, err
	}
	return x.answer(r)
}

// list reads all pages of a list.
func (x *exporter) list(operation string, args map[string]any, to *[]json.RawMessage) error {
	for {
		text, err := x.call(operation, args)
		if err != nil {
			return err
		}
		var page struct {
			Data       []json.RawMessage
			Pagination *struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return err
		}
		*to = append(*to, page.Data...)
		if page.Pagination == nil || !page.Pagination.HasMore || page.Pagination.Cursor == nil {
			return nil
		}
		args["cursor"] = *page.Pagination.Cursor
	}
}

// exportMessages answers with the folders of a mailbox, or with a page of messages of one.
func (in *installation) exportMessages(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	err := func() error {
		u, err := in.svc.FindMailbox(q.Get("mailbox"))
		if err != nil {
			return err
		}
		out := json.NewEncoder(w)
		if begins := q.Get("begins"); begins != "" {
			if err := in.audit("export "+begins, u); err != nil {
				return err
			}
		}
		if q.Get("folder") == "" {
			folders, err := in.svc.ExportFolders(r.Context(), u)
			if err != nil {
				return err
			}
			return out.Encode(folders)
		}
		folder, err := strconv.ParseUint(q.Get("folder"), 10, 32)
		if err != nil {
			return err
		}
		from, err := strconv.ParseUint(q.Get("from"), 10, 32)
		if err != nil {
			return err
		}
		list, more, err := in.svc.ExportMessages(r.Context(), u, uint32(folder), uint32(from), exportPageSize)
		if err != nil {
			return err
		}
		for _, m := range list {
			h := exportHeader{UID: m.UID, Flags: m.Flags, Date: m.Date, Sender: m.Sender, Size: len(m.Text)}
			if m.Err != nil {
				h.Size, h.Error, m.Text = 0, m.Err.Error(), nil
			}
			if err := out.Encode(h); err != nil {
				return err
			}
			if _, err := w.Write(m.Text); err != nil {
				return err
			}
		}
		return out.Encode(exportHeader{More: more})
	}()
	if err != nil {
		http.Error(w, withoutCode(err).Error(), http.StatusInternalServerError)
	}
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

func (w maildirWriter) write(h exportHeader, text []byte) error {
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

func (w *mboxWriter) write(h exportHeader, text []byte) error {
	return mbox.Write(w.w, h.Sender, h.Date, h.Flags, bytes.NewReader(text))
}

func (w *mboxWriter) close() error { return errors.Join(w.w.Flush(), w.file.Close()) }

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
)

func importCommands() []*cli.Command {
	to := &cli.StringFlag{Name: "to", Usage: "the address of the mailbox"}
	list := &cli.StringFlag{Name: "list", Usage: "a CSV file with the header from,to and a line for each mailbox, in the place of --from and --to"}
	progress := &cli.StringFlag{Name: "progress", Usage: "json: a line of JSON a second on standard error"}
	return []*cli.Command{
		command("accounts", "make mailboxes of a CSV file with the password hashes of another mail server", "", importAccounts,
			&cli.StringFlag{Name: "from", Usage: "a CSV file with the header email,password_hash,name or email,password_hash,name,aliases"}, jsonFlag()),
		command("maildir", "import a Maildir with its folders", "", importMaildir,
			&cli.StringFlag{Name: "from", Usage: "the directory that has cur and new"}, to, list, progress, jsonFlag()),
		importIMAPCommand(), importSettingsCommand(),
		command("mbox", "import an mbox file", "", importMbox,
			&cli.StringFlag{Name: "from", Usage: "the file"}, to, &cli.StringFlag{Name: "folder", Usage: "the folder that the messages come into", Value: inbox.InboxName}, list, progress, jsonFlag()),
	}
}

// An importSource is where messages come from, and the mailbox that they go to.
type importSource struct {
	from, to string
	server   pull.Server // of an IMAP mailbox
	bad      error       // it cannot be imported: the line of the list that should name it is wrong
}

// importEach imports every source that the flags name.
func importEach(c *cli.Context, read func(im *inbox.Importer, from string) error) error {
	sources, err := importSources(c)
	if err != nil {
		return err
	}
	return runImport(c, sources, func(im *inbox.Importer, s importSource) error { return read(im, s.from) })
}

// runImport imports each source into its mailbox. One of a list that cannot be imported is noted,
// and the others go on.
func runImport(c *cli.Context, sources []importSource, read func(im *inbox.Importer, s importSource) error) (err error) {
	if p := c.String("progress"); p != "" && p != "json" {
		return config.Mistake(fmt.Errorf("--progress %s: it is json or left out", p))
	}
	began := time.Now()
	line := newProgress(c)
	im := &inbox.Importer{Report: importProgress(c, line), Out: inbox.ImportOutcome{Errors: []inbox.ImportError{}}}
	refused := 0
	err = throughout(c, func(send func(*http.Request) (*http.Response, error)) error {
		im.Deliver = func(ctx context.Context, mailbox, folder string, batch []inbox.SourceMessage) ([]inbox.ImportResult, error) {
			return sendBatch(ctx, send, url.Values{"mailbox": {mailbox}, "folder": {folder}}, batch, c.Command.Name)
		}
		im.Known = func(_ context.Context, mailbox, folder string, keys []string) (known []bool, err error) {
			answer, err := askThrough(c, operator.ImportKnownPath, operator.ImportKnown{Mailbox: mailbox, Folder: folder, Keys: keys}, func(_ *cli.Context, r *http.Request) (*http.Response, error) { return send(r) })
			return known, decodeAnswer(answer, err, &known)
		}
		for _, s := range sources {
			err := s.bad
			if err == nil {
				err = im.Begin(c.Context, s.from, s.to)
			}
			if err == nil {
				err = read(im, s)
			}
			if err == nil {
				err = im.Flush(c.Context)
			}
			if err == nil {
				continue
			}
			if c.String("list") == "" || c.Context.Err() != nil {
				return err
			}
			im.GiveUp(s.from, err)
			refused++
		}
		return nil
	})
	line.end()
	if err != nil {
		return err
	}
	out := im.Out
	out.DurationMS = time.Since(began).Milliseconds()
	text := fmt.Sprintf("messages  %d\nimported  %d\nskipped   %d\nfailed    %d\nfolders   %d\nbytes     %d\n", out.Messages, out.Imported, out.Skipped, out.Failed, out.Folders, out.Bytes)
	for _, e := range out.Errors {
		text += fmt.Sprintf("%s: %s\n", e.Source, e.Message)
	}
	if err := printResult(c, out, text); err != nil {
		return err
	}
	switch {
	case refused > 0:
		return fmt.Errorf("%d of %d lines of the list could not be done, and %d messages were not imported", refused, len(sources), out.Failed)
	case out.Failed > 0:
		return fmt.Errorf("%d messages were not imported", out.Failed)
	}
	return nil
}

// importSources gives the sources, each with the mailbox that it goes to.
func importSources(c *cli.Context) (sources []importSource, err error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	from, to, list := c.String("from"), c.String("to"), c.String("list")
	if list == "" {
		if from == "" || to == "" {
			return nil, config.Mistake(errors.New("--from and --to are required, or --list"))
		}
		return []importSource{{from: from, to: to}}, nil
	}
	if from != "" || to != "" {
		return nil, config.Mistake(errors.New("--list stands in the place of --from and --to: give one or the other"))
	}
	err = readCSV(list, "from,to", "", func(line int, fields []string, bad error) {
		if bad != nil {
			sources = append(sources, importSource{from: lineOf(list, line), bad: bad})
			return
		}
		sources = append(sources, importSource{from: strings.TrimSpace(fields[0]), to: strings.TrimSpace(fields[1])})
	})
	return sources, err
}

// lineOf names a line of a list.
func lineOf(list string, line int) string { return fmt.Sprintf("%s line %d", list, line) }

// readCSV reads a CSV file whose first line is the header, or the header with the columns of more
// (",name" or ""), and shows `row` each further line with its number: its fields, or as bad what is
// wrong with it. Each line is read by itself, so that a quote which is never closed
// spoils no other one. An error is one for whoever wrote the file.
func readCSV(path, header, more string, row func(line int, fields []string, bad error)) error {
	f, err := os.Open(path)
	if err != nil {
		return config.Mistake(err)
	}
	defer f.Close()
	if isDir(path) {
		return config.Mistake(fmt.Errorf("%s is a directory: name a CSV file", path))
	}
	lines := bufio.NewReader(f)
	columns := strings.Count(header, ",") + 1
	for line, goesOn := 1, true; goesOn; line++ {
		text, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return config.Mistake(fmt.Errorf("%s: %w", path, err))
		}
		goesOn = err == nil
		if line == 1 {
			switch strings.Map(withoutSpace, strings.TrimPrefix(text, "\ufeff")) {
			case header:
			case header + more:
				columns += strings.Count(more, ",")
			default:
				return config.Mistake(fmt.Errorf("%s: the first line must be %s", path, strings.Join(slices.Compact([]string{header, header + more}), " or ")))
			}
			continue
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		fields, err := csv.NewReader(strings.NewReader(text)).Read()
		if err == nil && len(fields) != columns {
			err = fmt.Errorf("it has %d columns, and the header %d", len(fields), columns)
		}
		if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
			err = fmt.Errorf("it is no line of a CSV file: %w", parse.Err)
		}
		row(line, fields, err)
	}
	return nil
}

// withoutSpace drops blanks and the ends of lines, and the quotes that some programs put around
// every field.
func withoutSpace(c rune) rune {
	if strings.ContainsRune(" \t\r\n\"", c) {
		return -1
	}
	return c
}

// importProgress tells how far an import is: on a terminal, or as lines of JSON.
func importProgress(c *cli.Context, line *progressLine) func(source, folder string, done, total, bytes int64) {
	var told time.Time
	if c.String("progress") != "json" {
		return func(source, _ string, done, total, _ int64) { line.show(source, done, total) }
	}
	lines := json.NewEncoder(c.App.ErrWriter)
	return func(source, folder string, done, total, bytes int64) {
		if time.Since(told) < time.Second {
			return
		}
		told = time.Now()
		p := struct {
			Source string `json:"source"`
			Folder string `json:"folder"`
			Done   int64  `json:"done"`
			Total  *int64 `json:"total"`
			Bytes  int64  `json:"bytes"`
		}{source, folder, done, nil, bytes}
		if total > 0 {
			p.Total = &total
		}
		_ = lines.Encode(p)
	}
}

// sendBatch sends messages for a folder to the server, which writes `command` into the audit log
// for the one without messages.
func sendBatch(ctx context.Context, send func(*http.Request) (*http.Response, error), into url.Values, batch []inbox.SourceMessage, command string) (results []inbox.ImportResult, err error) {
	if len(batch) == 0 {
		into.Set("begins", command)
	}
	var body bytes.Buffer
	headers := json.NewEncoder(&body)
	for _, m := range batch {
		if err := headers.Encode(operator.ImportHeader{ImportHeader: m.ImportHeader, Size: len(m.Text)}); err != nil {
			return nil, err
		}
		body.Write(m.Text)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, operator.ImportPath+"?"+into.Encode(), &body)
	if err != nil {
		return nil, err
	}
	resp, err := send(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", into.Get("mailbox"), strings.TrimSpace(string(text)))
	}
	return results, json.Unmarshal(text, &results)
}

// throughout gives do a way to the server: the socket of a running one, or an installation that is
// opened for all of it.
func throughout(c *cli.Context, do func(send func(*http.Request) (*http.Response, error)) error) error {
	dir := c.String("data")
	socket := filepath.Join(dir, operator.SocketName)
	probe, err := http.NewRequestWithContext(c.Context, http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := overSocket(socket, probe)
	if err == nil {
		resp.Body.Close()
		return do(func(r *http.Request) (*http.Response, error) { return overSocket(socket, r) })
	}
	if !errors.Is(err, os.ErrNotExist) && !isRefused(err) {
		return err
	}
	s, err := offlineSettings(c)
	if err != nil {
		return err
	}
	return withInstallation(dir, s, false, func(o *operator.Operator) error {
		h := o.Handler(handlers.New(o.Service))
		return do(func(r *http.Request) (*http.Response, error) { return handlers.Do(h, r), nil })
	})
}

func importMaildir(c *cli.Context) error {
	return importEach(c, func(im *inbox.Importer, from string) error {
		if _, err := os.Stat(from); err == nil && !isDir(from) {
			return config.Mistake(fmt.Errorf("%s is a file: name the directory of a Maildir; `mailstead import mbox` reads mbox files", from))
		}
		folders, err := maildir.Folders(from)
		if err != nil {
			return err
		}
		for _, f := range folders {
			list, err := maildir.Messages(f)
			if err != nil {
				return err
			}
			im.Expect(int64(len(list)))
			folder := inbox.ImportFolder(f.Name)
			for _, m := range list {
				text, err := readMaildirMessage(f, m)
				key := fmt.Sprintf("maildir %s %x", m.Name, sha256.Sum256(text)) // names of two Maildirs can be the same
				one := inbox.SourceMessage{ImportHeader: inbox.ImportHeader{Key: key, Flags: m.Flags, Date: m.Date}, Source: m.Path, Text: text, Err: err}
				if err := im.Add(c.Context, folder, one); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// readMaildirMessage reads a message, whose lines end with CRLF then.
func readMaildirMessage(f maildir.Folder, m maildir.Message) ([]byte, error) {
	if m.Size > core.MaxMessage {
		return nil, inbox.ErrImportTooLarge
	}
	file, err := maildir.Open(f, m)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, core.MaxMessage+1))
	return withCRLF(text), err
}

// withCRLF has every line end with CRLF.
func withCRLF(text []byte) []byte {
	bare := bytes.Count(text, []byte("\n")) - bytes.Count(text, []byte("\r\n"))
	if bare == 0 {
		return text
	}
	out := make([]byte, 0, len(text)+bare)
	for i, c := range text {
		if c == '\n' && (i == 0 || text[i-1] != '\r') {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}

func importMbox(c *cli.Context) error {
	folder := inbox.ImportFolder(strings.Split(c.String("folder"), "/"))
	return importEach(c, func(im *inbox.Importer, from string) error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		if isDir(from) {
			return config.Mistake(fmt.Errorf("%s is a directory: name one mbox file; `mailstead import maildir` reads the directory of a Maildir", from))
		}
		return im.ReadMbox(c.Context, f, folder)
	})
}

// accountsAtATime is how many lines go to the server at a time.
const accountsAtATime = 500

// importAccounts makes mailboxes of a CSV file with password hashes.
func importAccounts(c *cli.Context) error {
	if err := requireFlag(c, "from"); err != nil {
		return err
	}
	var lines []mailboxes.AccountLine
	out := mailboxes.AccountsImported{Errors: []mailboxes.AccountError{}}
	err := readCSV(c.String("from"), "email,password_hash,name", ",aliases", func(line int, fields []string, bad error) {
		if bad == nil {
			one := mailboxes.AccountLine{Line: line, Email: fields[0], PasswordHash: fields[1], Name: fields[2]}
			if len(fields) > 3 {
				one.Aliases = strings.FieldsFunc(fields[3], func(c rune) bool { return strings.ContainsRune(" \t,;|", c) })
			}
			lines = append(lines, one)
			return
		}
		wrong := mailboxes.AccountError{Line: line, Message: bad.Error()}
		if len(fields) > 0 {
			wrong.Email = fields[0]
		}
		out.Accounts, out.Failed, out.Errors = out.Accounts+1, out.Failed+1, append(out.Errors, wrong)
	})
	if err != nil {
		return err
	}
	err = throughout(c, func(send func(*http.Request) (*http.Response, error)) error {
		for some := range slices.Chunk(lines, accountsAtATime) {
			var part mailboxes.AccountsImported
			answer, err := askThrough(c, operator.ImportAccountsPath, mailboxes.ImportAccountsIn{Lines: some}, func(_ *cli.Context, r *http.Request) (*http.Response, error) { return send(r) })
			if err := decodeAnswer(answer, err, &part); err != nil {
				return err
			}
			out.Accounts, out.Imported, out.Skipped, out.Failed = out.Accounts+part.Accounts, out.Imported+part.Imported, out.Skipped+part.Skipped, out.Failed+part.Failed
			out.Errors = append(out.Errors, part.Errors...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(out.Errors, func(a, b mailboxes.AccountError) int { return a.Line - b.Line })
	text := fmt.Sprintf("accounts  %d\nimported  %d\nskipped   %d\nfailed    %d\n", out.Accounts, out.Imported, out.Skipped, out.Failed)
	for _, e := range out.Errors {
		text += fmt.Sprintf("line %d: ", e.Line)
		if e.Email != "" {
			text += e.Email + ": "
		}
		text += e.Message + "\n"
	}
	if err := printResult(c, out, text); err != nil {
		return err
	}
	if out.Failed > 0 {
		return fmt.Errorf("%d accounts were not imported", out.Failed)
	}
	return nil
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
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

	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// Messages are read by the command, which may read the operator's files, and go to the server in
// batches.
const (
	importPath      = "/local/import"
	importBatch     = 200     // messages
	importBatchSize = 4 << 20 // bytes
	importErrors    = 1000    // that are named
)

func importCommands() []*cli.Command {
	to := &cli.StringFlag{Name: "to", Usage: "the address of the mailbox"}
	list := &cli.StringFlag{Name: "list", Usage: "a CSV file with the header from,to and a line for each mailbox, in the place of --from and --to"}
	progress := &cli.StringFlag{Name: "progress", Usage: "json: a line of JSON a second on standard error"}
	return []*cli.Command{
		command("accounts", "make mailboxes of a CSV file with the password hashes of another mail server", "", importAccounts,
			&cli.StringFlag{Name: "from", Usage: "a CSV file with the header email,password_hash,name"}, jsonFlag()),
		command("maildir", "import a Maildir with its folders", "", importMaildir,
			&cli.StringFlag{Name: "from", Usage: "the directory that has cur and new"}, to, list, progress, jsonFlag()),
		importIMAPCommand(),
		command("mbox", "import an mbox file", "", importMbox,
			&cli.StringFlag{Name: "from", Usage: "the file"}, to, &cli.StringFlag{Name: "folder", Usage: "the folder that the messages come into", Value: inbox.InboxName}, list, progress, jsonFlag()),
	}
}

// importResult is what an import came to.
type importResult struct {
	Messages   int64         `json:"messages"`
	Imported   int64         `json:"imported"`
	Skipped    int64         `json:"skipped"` // they came with an import before
	Failed     int64         `json:"failed"`
	Folders    int           `json:"folders"`
	Bytes      int64         `json:"bytes"`
	DurationMS int64         `json:"duration_ms"`
	Errors     []importError `json:"errors"`
}

type importError struct {
	Source  string `json:"source"`
	Message string `json:"message"`
}

// An importMessage is one message of a source.
type importMessage struct {
	importHeader
	source string // where it is, for errors
	text   []byte
	err    error // it cannot be read
}

// importHeader stands before each message of a batch, as one line of JSON.
type importHeader struct {
	Key   string    `json:"key"`
	Flags string    `json:"flags,omitempty"`
	Date  time.Time `json:"date"`
	Size  int       `json:"size"`

	Keywords []string `json:"keywords,omitempty"`
}

// An importer sends the messages of sources to the server.
type importer struct {
	send   func(*http.Request) (*http.Response, error)
	ctx    context.Context
	out    importResult
	report func(source, folder string, done, total, bytes int64)

	source, to, folder string // of the batch
	total              int64  // of the source; 0: not known
	done, bytes        int64  // of the source
	batch              []importMessage
	size               int
	folders            map[string]bool
}

// importEach imports every source that the flags name.
func importEach(c *cli.Context, read func(im *importer, from string) error) error {
	pairs, err := importPairs(c)
	if err != nil {
		return err
	}
	return runImport(c, pairs, read)
}

// runImport imports each source into its mailbox.
func runImport(c *cli.Context, pairs [][2]string, read func(im *importer, from string) error) (err error) {
	if p := c.String("progress"); p != "" && p != "json" {
		return usageError{fmt.Errorf("--progress %s: it is json or left out", p)}
	}
	began := time.Now()
	line := newProgress(c)
	im := &importer{ctx: c.Context, folders: map[string]bool{}, report: importProgress(c, line)}
	im.out.Errors = []importError{}
	err = throughout(c, func(send func(*http.Request) (*http.Response, error)) error {
		im.send = send
		for _, p := range pairs {
			im.source, im.to, im.total, im.done, im.bytes = p[0], p[1], 0, 0, 0
			if err := im.flush(); err != nil { // tells at once that there is no such mailbox
				return err
			}
			if err := read(im, p[0]); err != nil {
				return err
			}
			if err := im.flush(); err != nil {
				return err
			}
		}
		return nil
	})
	line.end()
	if err != nil {
		return err
	}
	im.out.Folders, im.out.DurationMS = len(im.folders), time.Since(began).Milliseconds()
	text := fmt.Sprintf("messages  %d\nimported  %d\nskipped   %d\nfailed    %d\nfolders   %d\nbytes     %d\n", im.out.Messages, im.out.Imported, im.out.Skipped, im.out.Failed, im.out.Folders, im.out.Bytes)
	for _, e := range im.out.Errors {
		text += fmt.Sprintf("%s: %s\n", e.Source, e.Message)
	}
	if err := printResult(c, im.out, text); err != nil {
		return err
	}
	if im.out.Failed > 0 {
		return fmt.Errorf("%d messages were not imported", im.out.Failed)
	}
	return nil
}

// importPairs gives the sources, each with the mailbox that it goes to.
func importPairs(c *cli.Context) (pairs [][2]string, err error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	from, to, list := c.String("from"), c.String("to"), c.String("list")
	if list == "" {
		if from == "" || to == "" {
			return nil, usageError{errors.New("--from and --to are required, or --list")}
		}
		return [][2]string{{from, to}}, nil
	}
	if from != "" || to != "" {
		return nil, usageError{errors.New("--list stands in the place of --from and --to: give one or the other")}
	}
	f, err := os.Open(list)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	rows := csv.NewReader(f)
	rows.FieldsPerRecord, rows.TrimLeadingSpace = 2, true
	for n := 1; ; n++ {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			return pairs, nil
		case err != nil:
			return nil, usageError{fmt.Errorf("%s: %w", list, err)}
		case n == 1 && (strings.TrimPrefix(row[0], "\ufeff") != "from" || row[1] != "to"):
			return nil, usageError{fmt.Errorf("%s: the first line must be from,to", list)}
		case n > 1:
			pairs = append(pairs, [2]string{row[0], row[1]})
		}
	}
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

// add has a message imported, with the batch that it is in.
func (im *importer) add(folder string, m importMessage) error {
	if m.err == nil && len(m.text) > core.MaxMessage {
		m.err = fmt.Errorf("the message has more than %d MiB", core.MaxMessage>>20)
	}
	im.out.Messages++
	im.done++
	im.bytes += int64(len(m.text))
	im.report(im.source, folder, im.done, im.total, im.bytes)
	if m.err != nil {
		im.fail(m.source, m.err.Error())
		return nil
	}
	if len(im.batch) > 0 && (folder != im.folder || len(im.batch) == importBatch || im.size+len(m.text) > importBatchSize) {
		if err := im.flush(); err != nil {
			return err
		}
	}
	im.folder, im.batch, im.size = folder, append(im.batch, m), im.size+len(m.text)
	return nil
}

func (im *importer) fail(source, why string) {
	if im.out.Failed++; len(im.out.Errors) < importErrors {
		im.out.Errors = append(im.out.Errors, importError{source, why})
	}
}

// flush sends the batch.
func (im *importer) flush() error {
	var body bytes.Buffer
	headers := json.NewEncoder(&body)
	for _, m := range im.batch {
		m.Size = len(m.text)
		if err := headers.Encode(m.importHeader); err != nil {
			return err
		}
		body.Write(m.text)
	}
	where := importPath + "?" + url.Values{"mailbox": {im.to}, "folder": {im.folder}}.Encode()
	r, err := http.NewRequestWithContext(im.ctx, http.MethodPost, where, &body)
	if err != nil {
		return err
	}
	resp, err := im.send(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", im.to, strings.TrimSpace(string(text)))
	}
	var results []inbox.ImportResult
	if err := json.Unmarshal(text, &results); err != nil {
		return err
	}
	if len(results) != len(im.batch) {
		return fmt.Errorf("the server answered for %d of %d messages", len(results), len(im.batch))
	}
	for i, r := range results {
		switch r.Status {
		case inbox.ImportDone:
			im.out.Imported++
			im.out.Bytes += int64(len(im.batch[i].text))
		case inbox.ImportSkipped:
			im.out.Skipped++
		default:
			im.fail(im.batch[i].source, r.Error)
		}
	}
	if len(im.batch) > 0 {
		im.folders[im.to+" "+im.folder] = true
	}
	clear(im.batch) // the texts
	im.batch, im.size = im.batch[:0], 0
	return nil
}

// throughout gives do a way to the server: the socket of a running one, or an installation that is
// opened for all of it.
func throughout(c *cli.Context, do func(send func(*http.Request) (*http.Response, error)) error) error {
	dir := c.String("data")
	socket := filepath.Join(dir, socketName)
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
	return withInstallation(dir, s, false, func(in *installation) error {
		h := localHandler(in, handlers.New(in.svc))
		return do(func(r *http.Request) (*http.Response, error) { return handlers.Do(h, r), nil })
	})
}

// importMessages takes a batch of messages for a folder. One without messages tells whether there
// is the mailbox.
func (in *installation) importMessages(w http.ResponseWriter, r *http.Request) {
	results, err := func() ([]inbox.ImportResult, error) {
		u, err := in.svc.FindMailbox(r.URL.Query().Get("mailbox"))
		if err != nil {
			return nil, err
		}
		var batch []inbox.ImportMessage
		for body := bufio.NewReader(r.Body); ; {
			line, err := body.ReadSlice('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				break
			}
			var h importHeader
			if err == nil {
				err = json.Unmarshal(line, &h)
			}
			if err != nil || h.Size < 0 || h.Size > core.MaxMessage {
				return nil, fmt.Errorf("read a message to import: %w", err)
			}
			text := make([]byte, h.Size)
			if _, err := io.ReadFull(body, text); err != nil {
				return nil, fmt.Errorf("read a message to import: %w", err)
			}
			batch = append(batch, inbox.ImportMessage{Key: h.Key, Flags: h.Flags, Keywords: h.Keywords, Date: h.Date, Body: bytes.NewReader(text)})
		}
		if len(batch) == 0 {
			return []inbox.ImportResult{}, nil
		}
		return in.svc.ImportMessages(r.Context(), u, r.URL.Query().Get("folder"), batch)
	}()
	answerOperator(w, results, err)
}

func importMaildir(c *cli.Context) error {
	return importEach(c, func(im *importer, from string) error {
		folders, err := maildir.Folders(from)
		if err != nil {
			return err
		}
		for _, f := range folders {
			list, err := maildir.Messages(f)
			if err != nil {
				return err
			}
			im.total += int64(len(list))
			folder := inbox.ImportFolder(f.Name)
			for _, m := range list {
				text, err := readMaildirMessage(f, m)
				one := importMessage{importHeader{Key: "maildir " + m.Name, Flags: m.Flags, Date: m.Date}, m.Path, text, err}
				if err := im.add(folder, one); err != nil {
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
		return nil, fmt.Errorf("the message has more than %d MiB", core.MaxMessage>>20)
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
	return importEach(c, func(im *importer, from string) error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		r := mbox.NewReader(f, core.MaxMessage)
		for {
			m, err := r.Next()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil && !errors.Is(err, mbox.ErrTooLarge):
				return fmt.Errorf("%s: %w", from, err)
			}
			sum := sha256.Sum256(m.Text)
			one := importMessage{
				importHeader{Key: fmt.Sprintf("mbox %d %s", m.Offset, hex.EncodeToString(sum[:])), Flags: m.Flags, Date: m.Date},
				from + ":" + strconv.FormatInt(m.Offset, 10), m.Text, err,
			}
			if err := im.add(folder, one); err != nil {
				return err
			}
		}
	})
}

const importAccountsPath = "/local/import-accounts"

// accountsAtATime is how many lines go to the server at a time.
const accountsAtATime = 500

// importAccounts makes mailboxes of a CSV file with password hashes.
func importAccounts(c *cli.Context) error {
	if err := requireFlag(c, "from"); err != nil {
		return err
	}
	f, err := os.Open(c.String("from"))
	if err != nil {
		return usageError{err}
	}
	defer f.Close()
	lines, err := accountLines(f)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", c.String("from"), err)}
	}
	out := mailboxes.AccountsImported{Errors: []mailboxes.AccountError{}}
	err = throughout(c, func(send func(*http.Request) (*http.Response, error)) error {
		for some := range slices.Chunk(lines, accountsAtATime) {
			var part mailboxes.AccountsImported
			answer, err := askThrough(c, importAccountsPath, mailboxes.ImportAccountsIn{Lines: some}, func(_ *cli.Context, r *http.Request) (*http.Response, error) { return send(r) })
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
	text := fmt.Sprintf("accounts  %d\nimported  %d\nskipped   %d\nfailed    %d\n", out.Accounts, out.Imported, out.Skipped, out.Failed)
	for _, e := range out.Errors {
		text += fmt.Sprintf("line %d: %s: %s\n", e.Line, e.Email, e.Message)
	}
	if err := printResult(c, out, text); err != nil {
		return err
	}
	if out.Failed > 0 {
		return fmt.Errorf("%d accounts were not imported", out.Failed)
	}
	return nil
}

// accountLines reads the CSV file, whose header is line 1.
func accountLines(r io.Reader) (lines []mailboxes.AccountLine, err error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 3
	for n := 0; ; n++ {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, err
		}
		at, _ := rows.FieldPos(0)
		if n == 0 {
			if strings.TrimPrefix(strings.Join(row, ","), "\ufeff") != "email,password_hash,name" {
				return nil, errors.New("the first line must be email,password_hash,name")
			}
			continue
		}
		lines = append(lines, mailboxes.AccountLine{Line: at, Email: row[0], PasswordHash: row[1], Name: row[2]})
	}
}

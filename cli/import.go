package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/transfer"
)

func (p *Program) importCommands() []*cli.Command {
	files := func(run func(ctx context.Context, e *env, o importOptions) error) func(c *cli.Context, e *env) error {
		return func(c *cli.Context, e *env) error {
			if err := argumentAsFlag(c, "from"); err != nil {
				return err
			}
			return run(c.Context, e, importOptions{from: c.String("from"), to: c.String("to"), list: c.String("list"), folder: c.String("folder"), progress: c.String("progress")})
		}
	}
	to := &cli.StringFlag{Name: "to", Usage: "the address of the mailbox"}
	list := &cli.StringFlag{Name: "list", Usage: "a CSV file with the header from,to and a line for each mailbox, in the place of --from and --to"}
	progress := &cli.StringFlag{Name: "progress", Usage: "json: a line of JSON a second on standard error"}
	return []*cli.Command{
		p.importAccountsCommand(),
		p.command("maildir", "import a Maildir with its folders", "[DIR]", files(runImportMaildir),
			&cli.StringFlag{Name: "from", Usage: "the directory that has cur and new"}, to, list, progress, jsonFlag()),
		p.importIMAPCommand(), p.importSettingsCommand(),
		p.command("mbox", "import an mbox file", "[FILE]", files(runImportMbox),
			&cli.StringFlag{Name: "from", Usage: "the file"}, to, &cli.StringFlag{Name: "folder", Usage: "the folder that the messages come into", Value: inbox.InboxName}, list, progress, jsonFlag()),
	}
}

// importOptions say what to import: one source, or all sources of a list.
type importOptions struct {
	from, to string
	list     string // path of a CSV file of sources, instead of from and to
	folder   string // folder for the messages of an mbox file
	progress string // "json" writes the progress as JSON lines to standard error; "" does not
}

// An importSource is where messages come from, and the mailbox that gets them.
type importSource struct {
	from, to string
	server   pull.Server // the IMAP server; unset for files
	invalid  error       // why the line of the list is invalid; nil if it is valid
}

// importEach imports every file or directory that o names. For each it calls read, which adds the
// messages at from to im.
func importEach(ctx context.Context, e *env, o importOptions, read func(im *transfer.Importer, from string) error) error {
	sources, err := importSources(o)
	if err != nil {
		return err
	}
	return runImport(ctx, e, o, sources, func(im *transfer.Importer, s importSource) error { return read(im, s.from) })
}

// runImport imports each source into its mailbox. If one source of a list fails, it records the
// error and continues with the next source.
func runImport(ctx context.Context, e *env, o importOptions, sources []importSource, read func(im *transfer.Importer, s importSource) error) (err error) {
	if o.progress != "" && o.progress != "json" {
		return config.Mistake(fmt.Errorf("--progress is %q; use json, or leave it out", o.progress))
	}
	began := time.Now()
	line := e.newProgressLine()
	im := &transfer.Importer{Report: importProgress(e, o, line), Out: transfer.ImportOutcome{Errors: []transfer.ImportError{}}}
	refused := 0
	err = e.withServer(ctx, func(send sender) error {
		im.Deliver = func(ctx context.Context, mailbox, folder string, batch []transfer.SourceMessage) ([]transfer.ImportResult, error) {
			return sendBatch(ctx, send, url.Values{"mailbox": {mailbox}, "folder": {folder}}, batch, e.name)
		}
		im.Known = func(_ context.Context, mailbox, folder string, keys []string) (known []bool, err error) {
			err = sendCommand(ctx, send, operator.ImportKnownPath, operator.KnownImportsQuery{Mailbox: mailbox, Folder: folder, Keys: keys}, &known)
			return known, err
		}
		for _, s := range sources {
			err := s.invalid
			if err == nil {
				err = im.Begin(ctx, s.from, s.to)
			}
			if err == nil {
				err = read(im, s)
			}
			if err == nil {
				err = im.Flush(ctx)
			}
			if err == nil {
				continue
			}
			if o.list == "" || ctx.Err() != nil {
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
	for _, wrong := range out.Errors {
		text += fmt.Sprintf("%s: %s\n", wrong.Source, wrong.Message)
	}
	if err := e.print(out, text); err != nil {
		return err
	}
	switch {
	case refused > 0:
		return fmt.Errorf("%d of %d lines of the list failed, and %d messages were not imported", refused, len(sources), out.Failed)
	case out.Failed > 0:
		return fmt.Errorf("%d messages were not imported", out.Failed)
	}
	return nil
}

// importSources returns the source of --from and --to, or the sources in the CSV file of --list.
func importSources(o importOptions) (sources []importSource, err error) {
	if o.list == "" {
		if o.from == "" || o.to == "" {
			return nil, config.Mistake(errors.New("name what to import and --to, the address of the mailbox, as in `mailstead import mbox FILE --to ADDRESS`; or give --list"))
		}
		return []importSource{{from: o.from, to: o.to}}, nil
	}
	if o.from != "" || o.to != "" {
		return nil, config.Mistake(errors.New("--list replaces --from and --to: give one or the other"))
	}
	err = readCSV(o.list, "from,to", "", func(line int, fields []string, bad error) {
		if bad != nil {
			sources = append(sources, importSource{from: lineName(o.list, line), invalid: bad})
			return
		}
		sources = append(sources, importSource{from: strings.TrimSpace(fields[0]), to: strings.TrimSpace(fields[1])})
	})
	return sources, err
}

// importProgress returns a function that shows the progress of an import: in line, or with
// --progress json as JSON lines on standard error.
func importProgress(e *env, o importOptions, line *progressLine) func(source, folder string, done, total, bytes int64) {
	var shownAt time.Time
	if o.progress != "json" {
		return func(source, _ string, done, total, bytes int64) {
			if info, err := os.Stat(source); total == 0 && err == nil && info.Mode().IsRegular() {
				line.show("bytes of "+source, bytes, max(info.Size(), bytes))
				return
			}
			line.show("messages of "+source, done, total)
		}
	}
	lines := json.NewEncoder(e.stderr)
	return func(source, folder string, done, total, bytes int64) {
		if time.Since(shownAt) < time.Second {
			return
		}
		shownAt = time.Now()
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

// sendBatch sends messages to the server, for the mailbox and folder that into names. An empty
// batch begins an import: the server then records command in the audit log.
func sendBatch(ctx context.Context, send sender, into url.Values, batch []transfer.SourceMessage, command string) (results []transfer.ImportResult, err error) {
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
		return nil, fmt.Errorf("import into mailbox %s: %s", into.Get("mailbox"), strings.TrimSpace(string(text)))
	}
	return results, json.Unmarshal(text, &results)
}

package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

const (
	importKnownPath = "/local/import-known"
	imapWindow      = 1000 // rows that are listed at a time
	imapFetch       = 32   // messages that are fetched at a time
)

// importKnown asks which messages came with an import before, so that they are not fetched again.
type importKnown struct {
	Mailbox string   `json:"mailbox"`
	Folder  string   `json:"folder"`
	Keys    []string `json:"keys"`
}

func (in *installation) knownImports(ctx context.Context, ask importKnown) ([]bool, error) {
	u, err := in.svc.FindMailbox(ask.Mailbox)
	if err != nil {
		return nil, err
	}
	return in.svc.KnownImports(ctx, u, ask.Folder, ask.Keys)
}

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

// An imapSource is a mailbox elsewhere, and the one here that it goes to.
type imapSource struct {
	pull.Server
	to string
}

// imapSources gives the mailboxes that the flags name.
func imapSources(c *cli.Context) ([]imapSource, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	list := c.String("list")
	if list == "" {
		for _, flag := range []string{"host", "user", "password-file", "to"} {
			if c.String(flag) == "" {
				return nil, usageError{fmt.Errorf("--%s is required, or --list", flag)}
			}
		}
		password, err := os.ReadFile(c.String("password-file"))
		if err != nil {
			return nil, usageError{err}
		}
		s, err := newIMAPSource(c.String("host"), strconv.Itoa(c.Int("port")), c.String("security"), c.String("user"), strings.TrimRight(string(password), "\r\n"), c.String("to"))
		return []imapSource{s}, err
	}
	if c.String("host") != "" || c.String("to") != "" {
		return nil, usageError{errors.New("--list stands in the place of --host and --to: give one or the other")}
	}
	f, err := os.Open(list)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	var out []imapSource
	rows := csv.NewReader(f)
	rows.FieldsPerRecord = 6
	for n := 1; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, usageError{fmt.Errorf("%s: %w", list, err)}
		}
		if n == 1 {
			if strings.TrimPrefix(strings.Join(row, ","), "\ufeff") != "host,port,security,user,password,to" {
				return nil, usageError{fmt.Errorf("%s: the first line must be host,port,security,user,password,to", list)}
			}
			continue
		}
		s, err := newIMAPSource(row[0], row[1], row[2], row[3], row[4], row[5])
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", list, n, err)
		}
		out = append(out, s)
	}
}

func newIMAPSource(host, port, security, user, password, to string) (s imapSource, err error) {
	usual := map[string]int{"tls": 993, "starttls": 143, "none": 143, "": 993}
	if _, ok := usual[security]; !ok {
		return s, usageError{fmt.Errorf("security %q: it is tls, starttls or none", security)}
	}
	n := 0
	if port != "" {
		if n, err = strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return s, usageError{fmt.Errorf("port %q: it is a number up to 65535", port)}
		}
	}
	return imapSource{pull.Server{Host: host, Port: cmp.Or(n, usual[security]), Security: cmp.Or(security, "tls"), Username: user, Password: password}, to}, nil
}

func importIMAP(c *cli.Context) error {
	sources, err := imapSources(c)
	if err != nil {
		return err
	}
	roots, err := rootCAs(c.String("ca-file"))
	if err != nil {
		return err
	}
	client := &pull.Client{Dial: new(net.Dialer).DialContext, RootCAs: roots}
	pairs := make([][2]string, len(sources))
	bySource := map[string]imapSource{}
	for i, s := range sources {
		pairs[i] = [2]string{s.Username + "@" + s.Host, s.to}
		bySource[pairs[i][0]+" "+s.to] = s
	}
	return runImport(c, pairs, func(im *importer, from string) error {
		return im.readIMAP(c, client, bySource[from+" "+im.to])
	})
}

// readIMAP imports all folders of a mailbox elsewhere.
func (im *importer) readIMAP(c *cli.Context, client *pull.Client, source imapSource) error {
	session, err := client.Connect(im.ctx, source.Server)
	if err != nil {
		return err
	}
	defer session.Close()
	folders, err := session.Folders(im.ctx)
	if err != nil {
		return err
	}
	for _, f := range folders {
		box, err := session.Open(im.ctx, f.Name)
		if errors.Is(err, pull.ErrRefused) {
			im.fail(im.source+" "+f.Name, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		im.total += int64(box.Messages)
		folder := inbox.ImportFolder(f.Levels)
		key := func(uid uint32) string {
			return fmt.Sprintf("imap %s %s %s %d %d", strings.ToLower(source.Host), source.Username, f.Name, box.UIDValidity, uid)
		}
		seen := uint32(0) // the highest UID so far
		for lo := uint32(1); lo <= box.Messages; lo += imapWindow {
			rows, _, err := session.Window(im.ctx, lo, min(lo+imapWindow-1, box.Messages))
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r pull.Row) bool { return r.UID <= seen })
			if len(rows) == 0 {
				continue
			}
			seen = rows[len(rows)-1].UID
			wanted, err := im.unknown(c, folder, rows, key)
			if err != nil {
				return err
			}
			for uids := range slices.Chunk(wanted, imapFetch) {
				if err := im.fetchIMAP(session, folder, f.Name, uids, key); err != nil {
					return err
				}
			}
		}
		if err := im.flush(); err != nil {
			return err
		}
	}
	return nil
}

// unknown gives the UIDs of rows that did not come with an import before, and counts the others.
func (im *importer) unknown(c *cli.Context, folder string, rows []pull.Row, key func(uint32) string) (wanted []uint32, err error) {
	ask := importKnown{Mailbox: im.to, Folder: folder}
	for _, r := range rows {
		ask.Keys = append(ask.Keys, key(r.UID))
	}
	var known []bool
	answer, err := askThrough(c, importKnownPath, ask, func(_ *cli.Context, r *http.Request) (*http.Response, error) { return im.send(r) })
	if err := decodeAnswer(answer, err, &known); err != nil {
		return nil, err
	}
	for i, r := range rows {
		if !known[i] {
			wanted = append(wanted, r.UID)
			continue
		}
		im.out.Messages++
		im.out.Skipped++
		im.done++
	}
	im.report(im.source, folder, im.done, im.total, im.bytes)
	return wanted, nil
}

// fetchIMAP fetches messages and has them imported, in the order of their UIDs.
func (im *importer) fetchIMAP(session *pull.Session, folder, name string, uids []uint32, key func(uint32) string) error {
	var got []importMessage
	var long []int // of got, of which there is more
	byUID := map[int]uint32{}
	err := session.Fetch(im.ctx, uids, func(m pull.Message) error {
		one := importMessage{importHeader: importHeader{Key: key(m.UID), Date: m.Received, Keywords: slices.Clone(m.Flags.Keywords)}, source: fmt.Sprintf("%s %s UID %d", im.source, name, m.UID)}
		for _, flag := range []struct {
			set    bool
			letter string
		}{{m.Flags.Draft, "D"}, {m.Flags.Flagged, "F"}, {m.Flags.Answered, "R"}, {m.Flags.Seen, "S"}, {m.Flags.Deleted, "T"}} {
			if flag.set {
				one.Flags += flag.letter
			}
		}
		one.text = slices.Clone(m.Content)
		byUID[len(got)] = m.UID
		if m.More {
			long = append(long, len(got))
		}
		got = append(got, one)
		return nil
	})
	if err != nil {
		return err
	}
	for _, at := range long {
		var text limitedBuffer
		if _, err := session.Content(im.ctx, byUID[at], &text); err != nil && !errors.Is(err, errTooLong) {
			return err
		}
		if got[at].text = text.b; text.over {
			got[at].text, got[at].err = nil, errTooLong
		}
	}
	order := make([]int, len(got))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(byUID[a], byUID[b]) })
	for _, at := range order {
		if err := im.add(folder, got[at]); err != nil {
			return err
		}
	}
	return nil
}

var errTooLong = fmt.Errorf("the message has more than %d MiB", core.MaxMessage>>20)

// A limitedBuffer takes a message, unless it is too long.
type limitedBuffer struct {
	b    []byte
	over bool
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if len(l.b)+len(p) > core.MaxMessage {
		l.over = true
		return 0, errTooLong
	}
	l.b = append(l.b, p...)
	return len(p), nil
}

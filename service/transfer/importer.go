package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/external"
)

// Limits of one batch.
const (
	importBatch     = 200     // messages
	importBatchSize = 4 << 20 // bytes
	maxImportErrors = 1000    // errors that are listed
	imapWindow      = 1000    // rows of an IMAP server that are listed at a time
	imapFetch       = 32      // messages that are fetched from it at a time
)

// ErrImportTooLarge is the error of a message that exceeds MaxMessage.
var ErrImportTooLarge = fmt.Errorf("the message has more than %d MiB", core.MaxMessage>>20)

// The minimum rate of a server during an import. A slower one would occupy a slot that others wait
// for. Each command has its own timeouts, see package pull.
const (
	paceWindow   = 5 * time.Minute
	paceMessages = 50
	paceBytes    = 1 << 20
)

var (
	// ErrImportSlow ends an import from a server that is slower than the minimum rate.
	ErrImportSlow = fmt.Errorf("the server gave fewer than %d messages and less than %d MiB in %d minutes", paceMessages, paceBytes>>20, paceWindow/time.Minute)
	// ErrTurnOver ends an import that is to be continued later, see Importer.TurnOver.
	ErrTurnOver = errors.New("the import stopped to let another import have its turn")
)

// A SourceMessage is one message of an import source.
type SourceMessage struct {
	ImportHeader
	Source string // where it is, for errors
	Text   []byte
	Err    error // why it cannot be read, or nil
}

// ImportOutcome is the result of an import.
type ImportOutcome struct {
	Messages   int64         `json:"messages"`
	Imported   int64         `json:"imported"`
	Skipped    int64         `json:"skipped"` // an earlier import had them
	Failed     int64         `json:"failed"`
	Folders    int           `json:"folders"`
	Bytes      int64         `json:"bytes"`
	DurationMS int64         `json:"duration_ms"`
	Errors     []ImportError `json:"errors"` // at most 1000
}

// ImportError is why a message was not imported.
type ImportError struct {
	Source  string `json:"source"`
	Message string `json:"message"`
}

// An Importer imports the messages of sources in batches.
type Importer struct {
	// Deliver imports a batch into a folder of the mailbox, and returns a result for each message.
	// The first call for a source has an empty batch: it fails if the mailbox does not exist.
	Deliver func(ctx context.Context, mailbox, folder string, batch []SourceMessage) ([]ImportResult, error)
	// Known reports for each key whether an earlier import had the message.
	Known func(ctx context.Context, mailbox, folder string, keys []string) ([]bool, error)
	// Report is called with the progress of a source; total is 0 if it is unknown.
	Report func(source, folder string, done, total, bytes int64)
	// TurnOver reports whether another import should have its turn. If it does, the import ends
	// with ErrTurnOver between two batches. When the import is repeated, it skips the messages that
	// it has imported. If TurnOver is nil, the import never ends so.
	TurnOver func() bool
	// Now is the clock for the minimum rate of a server; nil: no minimum applies.
	Now func() time.Time

	Out ImportOutcome

	source, to, folder string // of the current batch
	total              int64  // messages of the source
	done, bytes        int64  // of the source so far
	batch              []SourceMessage
	size               int
	folders            map[string]bool
	pace               struct { // state when the current window of the rate began
		at          time.Time
		done, bytes int64
	}
}

// Begin begins a source whose messages are imported into a mailbox. It fails if the mailbox does
// not exist.
func (im *Importer) Begin(ctx context.Context, source, to string) error {
	if im.folders == nil {
		im.folders = map[string]bool{}
	}
	if im.Out.Errors == nil {
		im.Out.Errors = []ImportError{}
	}
	im.source, im.to, im.total, im.done, im.bytes = source, to, 0, 0, 0
	im.pace.at, im.pace.done, im.pace.bytes = time.Time{}, 0, 0
	_, err := im.Deliver(ctx, to, "", nil)
	return err
}

// Expect adds to the number of messages of the source.
func (im *Importer) Expect(n int64) { im.total += n }

// Add adds a message to the batch, and imports the previous batch if that is full or for another
// folder.
func (im *Importer) Add(ctx context.Context, folder string, m SourceMessage) error {
	if m.Err == nil && len(m.Text) > core.MaxMessage {
		m.Err = ErrImportTooLarge
	}
	im.Out.Messages++
	im.done++
	im.bytes += int64(len(m.Text))
	im.Report(im.source, folder, im.done, im.total, im.bytes)
	if m.Err != nil {
		im.fail(m.Source, m.Err.Error())
		return nil
	}
	if len(im.batch) > 0 && (folder != im.folder || len(im.batch) == importBatch || im.size+len(m.Text) > importBatchSize) {
		if err := im.Flush(ctx); err != nil {
			return err
		}
	}
	im.folder, im.batch, im.size = folder, append(im.batch, m), im.size+len(m.Text)
	return nil
}

// countFolder counts a folder with messages, imported now or earlier.
func (im *Importer) countFolder(folder string) {
	im.folders[im.to+" "+folder] = true
	im.Out.Folders = len(im.folders)
}

func (im *Importer) fail(source, why string) {
	if im.Out.Failed++; len(im.Out.Errors) < maxImportErrors {
		im.Out.Errors = append(im.Out.Errors, ImportError{source, why})
	}
}

// Flush imports the batch unless it is empty.
func (im *Importer) Flush(ctx context.Context) error {
	if err := im.deliver(ctx); err != nil {
		return err
	}
	return im.checkContinue(ctx)
}

// deliver imports the batch.
func (im *Importer) deliver(ctx context.Context) error {
	if len(im.batch) == 0 {
		return nil
	}
	results, err := im.Deliver(ctx, im.to, im.folder, im.batch)
	if err != nil {
		return err
	}
	if len(results) != len(im.batch) {
		return fmt.Errorf("the import returned results for %d of %d messages", len(results), len(im.batch))
	}
	for i, r := range results {
		switch r.Status {
		case ImportDone:
			im.Out.Imported++
			im.Out.Bytes += int64(len(im.batch[i].Text))
		case ImportSkipped:
			im.Out.Skipped++
		default:
			im.fail(im.batch[i].Source, r.Error)
		}
	}
	im.countFolder(im.folder)
	clear(im.batch) // frees the texts
	im.batch, im.size = im.batch[:0], 0
	return nil
}

// GiveUp ends a source after err: the messages in its batch have failed.
func (im *Importer) GiveUp(source string, err error) {
	for _, m := range im.batch {
		im.fail(m.Source, err.Error())
	}
	clear(im.batch)
	im.batch, im.size = im.batch[:0], 0
	if len(im.Out.Errors) < maxImportErrors {
		im.Out.Errors = append(im.Out.Errors, ImportError{source, err.Error()})
	}
}

// checkContinue is called between two batches, and between two commands to a server. If it ends the
// import, it imports the current batch first.
func (im *Importer) checkContinue(ctx context.Context) error {
	end := im.endReason()
	if end == nil {
		return nil
	}
	return cmp.Or(im.deliver(ctx), end)
}

func (im *Importer) endReason() error {
	if im.TurnOver != nil && im.TurnOver() {
		return ErrTurnOver
	}
	if im.Now == nil {
		return nil
	}
	switch now := im.Now(); {
	case im.pace.at.IsZero():
		im.pace.at = now
	case now.Sub(im.pace.at) >= paceWindow:
		if im.done-im.pace.done < paceMessages && im.bytes-im.pace.bytes < paceBytes {
			return ErrImportSlow
		}
		im.pace.at, im.pace.done, im.pace.bytes = now, im.done, im.bytes
	}
	return nil
}

// ReadMbox imports the messages of an mbox file into a folder.
func (im *Importer) ReadMbox(ctx context.Context, from io.Reader, folder string) error {
	for r := mbox.NewReader(from, core.MaxMessage); ; {
		m, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return im.deliver(ctx)
		case err != nil && !errors.Is(err, mbox.ErrTooLarge):
			return fmt.Errorf("%s: %w", im.source, err)
		}
		sum := sha256.Sum256(m.Text)
		one := SourceMessage{
			ImportHeader{Key: fmt.Sprintf("mbox %d %s", m.Offset, hex.EncodeToString(sum[:])), Flags: m.Flags, Date: m.Date},
			im.source + ":" + strconv.FormatInt(m.Offset, 10), m.Text, err,
		}
		if err := im.Add(ctx, folder, one); err != nil {
			return err
		}
	}
}

// ReadIMAP imports all folders of a mailbox on another server.
func (im *Importer) ReadIMAP(ctx context.Context, client *pull.Client, server pull.Server) error {
	session, err := client.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer session.Close()
	folders, err := session.Folders(ctx)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if err := im.checkContinue(ctx); err != nil {
			return err
		}
		box, err := session.Open(ctx, f.Name)
		if errors.Is(err, pull.ErrRefused) {
			im.fail(im.source+" "+f.Name, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		im.Expect(int64(box.Messages))
		folder := ImportFolder(f.Levels)
		key := func(uid uint32) string {
			return fmt.Sprintf("imap %s %s %s %d %d", strings.ToLower(server.Host), server.Username, f.Name, box.UIDValidity, uid)
		}
		seen := uint32(0) // the highest UID so far
		for lo := uint32(1); lo <= box.Messages; lo += imapWindow {
			rows, _, err := session.Window(ctx, lo, min(lo+imapWindow-1, box.Messages))
			if err == nil {
				err = im.checkContinue(ctx)
			}
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r pull.Row) bool { return r.UID <= seen })
			if len(rows) == 0 {
				continue
			}
			seen = rows[len(rows)-1].UID
			wanted, err := im.notImported(ctx, folder, rows, key)
			if err != nil {
				return err
			}
			for uids := range slices.Chunk(wanted, imapFetch) {
				if err := im.fetchIMAP(ctx, session, folder, f.Name, uids, key); err != nil {
					return err
				}
			}
		}
		if err := im.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// notImported returns the UIDs of rows that no earlier import had, and counts the others as
// skipped.
func (im *Importer) notImported(ctx context.Context, folder string, rows []pull.Row, key func(uint32) string) (wanted []uint32, err error) {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = key(r.UID)
	}
	known, err := im.Known(ctx, im.to, folder, keys)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if !known[i] {
			wanted = append(wanted, r.UID)
			continue
		}
		im.countFolder(folder)
		im.Out.Messages++
		im.Out.Skipped++
		im.done++
	}
	im.Report(im.source, folder, im.done, im.total, im.bytes)
	return wanted, nil
}

// fetchIMAP fetches messages and imports them in the order of their UIDs.
func (im *Importer) fetchIMAP(ctx context.Context, session *pull.Session, folder, name string, uids []uint32, key func(uint32) string) error {
	var got []SourceMessage
	var long []int // indexes in got of messages that were not fetched completely
	byUID := map[int]uint32{}
	err := session.Fetch(ctx, uids, func(m pull.Message) error {
		one := SourceMessage{
			ImportHeader: ImportHeader{Key: key(m.UID), Date: m.Received, Keywords: slices.Clone(m.Flags.Keywords)},
			Source:       fmt.Sprintf("%s %s UID %d", im.source, name, m.UID), Text: slices.Clone(m.Content),
		}
		for _, flag := range []struct {
			set    bool
			letter string
		}{{m.Flags.Draft, "D"}, {m.Flags.Flagged, "F"}, {m.Flags.Answered, "R"}, {m.Flags.Seen, "S"}, {m.Flags.Deleted, "T"}} {
			if flag.set {
				one.Flags += flag.letter
			}
		}
		byUID[len(got)] = m.UID
		if m.More {
			long = append(long, len(got))
		}
		got = append(got, one)
		return nil
	})
	if err == nil {
		err = im.checkContinue(ctx)
	}
	if err != nil {
		return err
	}
	for _, at := range long {
		var text limitedBuffer
		if _, err := session.Content(ctx, byUID[at], &text); err != nil && !errors.Is(err, ErrImportTooLarge) {
			return err
		}
		got[at].Text = text.b
		if text.over {
			got[at].Text, got[at].Err = nil, ErrImportTooLarge
		}
	}
	order := make([]int, len(got))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(byUID[a], byUID[b]) })
	for _, at := range order {
		if err := im.Add(ctx, folder, got[at]); err != nil {
			return err
		}
	}
	return nil
}

// A limitedBuffer holds a message of at most MaxMessage bytes.
type limitedBuffer struct {
	b    []byte
	over bool
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if len(l.b)+len(p) > core.MaxMessage {
		l.over = true
		return 0, ErrImportTooLarge
	}
	l.b = append(l.b, p...)
	return len(p), nil
}

// ImportFrom is ReadIMAP for a server that a tenant has named. Its errors are texts for people.
func (s *Service) ImportFrom(ctx context.Context, im *Importer, server pull.Server) error {
	im.Now = s.Now
	err := im.ReadIMAP(ctx, s.servers.Client(server), server)
	if _, ours := core.AsError(err); err == nil || ours || core.IsStoreError(err) || ctx.Err() != nil || errors.Is(err, ErrTurnOver) {
		return err
	}
	if errors.Is(err, ErrImportSlow) {
		return core.Errorf("upstream_error", "%s is too slow: %s. What has come stays; begin the import again to go on.", server.Host, ErrImportSlow)
	}
	var login *pull.LoginError
	if errors.As(err, &login) {
		return jobs.Permanent(core.Errorf("upstream_error", "%s refused the username or password. It said: %q", server.Host, login.Text))
	}
	return core.Errorf("upstream_error", "%s", external.Reason(server.Host, err))
}

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

// Limits of an import.
const (
	maxBatchMessages = 200     // messages in one batch
	maxBatchBytes    = 4 << 20 // bytes in one batch
	maxImportErrors  = 1000    // errors in ImportOutcome.Errors
	imapWindow       = 1000    // messages that one command to an IMAP server lists
	imapFetch        = 32      // messages that one command to an IMAP server fetches
)

// ErrImportTooLarge is the error for a message that is longer than MaxMessage.
var ErrImportTooLarge = fmt.Errorf("the message has more than %d MiB", core.MaxMessage>>20)

// The minimum rate of a server during an import: minRateMessages or minRateBytes within rateWindow.
// A slower server would delay other imports that wait for a slot. In addition, each command has
// timeouts: see package pull.
const (
	rateWindow      = 5 * time.Minute
	minRateMessages = 50
	minRateBytes    = 1 << 20
)

var (
	// ErrImportSlow ends an import from a server that is slower than the minimum rate.
	ErrImportSlow = fmt.Errorf("the server gave fewer than %d messages and less than %d MiB in %d minutes", minRateMessages, minRateBytes>>20, rateWindow/time.Minute)
	// ErrTurnOver ends an import that will be continued later: see Importer.TurnOver.
	ErrTurnOver = errors.New("the import stopped to let another import have its turn")
)

// A SourceMessage is one message of an import source.
type SourceMessage struct {
	ImportHeader
	Source string // where the message is, for error texts
	Text   []byte
	Err    error // why the message cannot be read; nil if it can
}

// An ImportOutcome has the results of an import.
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

// An ImportError says why a message was not imported.
type ImportError struct {
	Source  string `json:"source"`
	Message string `json:"message"`
}

// An Importer imports messages from one or more sources in batches. A source is a file or a mailbox
// on another server.
type Importer struct {
	// Deliver imports a batch into a folder of the mailbox and returns one result for each message.
	// For each source it is first called with an empty batch: that call fails if the mailbox does
	// not exist.
	Deliver func(ctx context.Context, mailbox, folder string, batch []SourceMessage) ([]ImportResult, error)
	// Known reports, for each key, whether the message was already imported.
	Known func(ctx context.Context, mailbox, folder string, keys []string) ([]bool, error)
	// Report is called with the progress of a source. total is 0 if it is not known.
	Report func(source, folder string, done, total, bytes int64)
	// TurnOver reports whether the import must stop so that another import can run. Then the import
	// ends with ErrTurnOver after the current batch. When the import is repeated, it skips the
	// messages that are imported already. If TurnOver is nil, the import does not stop.
	TurnOver func() bool
	// Now is the clock for the minimum rate of a server. If it is nil, there is no minimum rate.
	Now func() time.Time

	Out ImportOutcome

	source, to, folder string // the source, the mailbox and the folder of the current batch
	total              int64  // messages of the current source; 0: not known
	done, bytes        int64  // messages and bytes of the current source that were added
	batch              []SourceMessage
	size               int             // bytes in batch
	folders            map[string]bool // folders that messages were imported into
	rate               struct {        // the state of the import when the current rateWindow began
		at          time.Time
		done, bytes int64
	}
}

// Begin starts a source. Its messages are imported into the mailbox to. It returns an error if the
// mailbox does not exist.
func (im *Importer) Begin(ctx context.Context, source, to string) error {
	if im.folders == nil {
		im.folders = map[string]bool{}
	}
	if im.Out.Errors == nil {
		im.Out.Errors = []ImportError{}
	}
	im.source, im.to, im.total, im.done, im.bytes = source, to, 0, 0, 0
	im.rate.at, im.rate.done, im.rate.bytes = time.Time{}, 0, 0
	_, err := im.Deliver(ctx, to, "", nil)
	return err
}

// Expect adds n to the number of messages of the current source.
func (im *Importer) Expect(n int64) { im.total += n }

// Add adds a message to the batch. If the batch is full or for another folder, Add imports the
// batch first.
func (im *Importer) Add(ctx context.Context, folder string, m SourceMessage) error {
	if m.Err == nil && len(m.Text) > core.MaxMessage {
		m.Err = ErrImportTooLarge
	}
	im.Out.Messages++
	im.done++
	im.bytes += int64(len(m.Text))
	im.Report(im.source, folder, im.done, im.total, im.bytes)
	if m.Err != nil {
		im.countFailure(m.Source, m.Err.Error())
		return nil
	}
	if len(im.batch) > 0 && (folder != im.folder || len(im.batch) == maxBatchMessages || im.size+len(m.Text) > maxBatchBytes) {
		if err := im.Flush(ctx); err != nil {
			return err
		}
	}
	im.folder, im.batch, im.size = folder, append(im.batch, m), im.size+len(m.Text)
	return nil
}

// countFolder counts a folder into which messages were imported, in this import or in an earlier
// one.
func (im *Importer) countFolder(folder string) {
	im.folders[im.to+" "+folder] = true
	im.Out.Folders = len(im.folders)
}

// countFailure counts a message that cannot be imported, and records why.
func (im *Importer) countFailure(source, why string) {
	if im.Out.Failed++; len(im.Out.Errors) < maxImportErrors {
		im.Out.Errors = append(im.Out.Errors, ImportError{source, why})
	}
}

// Flush imports the current batch. It returns an error if the import must stop.
func (im *Importer) Flush(ctx context.Context) error {
	if err := im.deliver(ctx); err != nil {
		return err
	}
	return im.checkStop(ctx)
}

// deliver imports the current batch, unless it is empty.
func (im *Importer) deliver(ctx context.Context) error {
	if len(im.batch) == 0 {
		return nil
	}
	results, err := im.Deliver(ctx, im.to, im.folder, im.batch)
	if err != nil {
		return err
	}
	if len(results) != len(im.batch) {
		return fmt.Errorf("import batch: Deliver returned %d results for %d messages", len(results), len(im.batch))
	}
	for i, r := range results {
		switch r.Status {
		case ImportDone:
			im.Out.Imported++
			im.Out.Bytes += int64(len(im.batch[i].Text))
		case ImportSkipped:
			im.Out.Skipped++
		default:
			im.countFailure(im.batch[i].Source, r.Error)
		}
	}
	im.countFolder(im.folder)
	clear(im.batch) // frees the memory of the texts
	im.batch, im.size = im.batch[:0], 0
	return nil
}

// GiveUp ends a source because of err. It counts the messages in the current batch as failed.
func (im *Importer) GiveUp(source string, err error) {
	for _, m := range im.batch {
		im.countFailure(m.Source, err.Error())
	}
	clear(im.batch)
	im.batch, im.size = im.batch[:0], 0
	if len(im.Out.Errors) < maxImportErrors {
		im.Out.Errors = append(im.Out.Errors, ImportError{source, err.Error()})
	}
}

// checkStop returns an error if the import must stop; before that, it imports the current batch. It
// is called between batches, and between commands to a server.
func (im *Importer) checkStop(ctx context.Context) error {
	end := im.stopReason()
	if end == nil {
		return nil
	}
	return cmp.Or(im.deliver(ctx), end)
}

// stopReason returns the error with which the import must stop; nil if it can continue.
func (im *Importer) stopReason() error {
	if im.TurnOver != nil && im.TurnOver() {
		return ErrTurnOver
	}
	if im.Now == nil {
		return nil
	}
	switch now := im.Now(); {
	case im.rate.at.IsZero():
		im.rate.at = now
	case now.Sub(im.rate.at) >= rateWindow:
		if im.done-im.rate.done < minRateMessages && im.bytes-im.rate.bytes < minRateBytes {
			return ErrImportSlow
		}
		im.rate.at, im.rate.done, im.rate.bytes = now, im.done, im.bytes
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
			return fmt.Errorf("read mbox %s: %w", im.source, err)
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
		if err := im.checkStop(ctx); err != nil {
			return err
		}
		box, err := session.Open(ctx, f.Name)
		if errors.Is(err, pull.ErrRefused) {
			im.countFailure(im.source+" "+f.Name, err.Error())
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
		seen := uint32(0) // the highest UID that was listed
		for lo := uint32(1); lo <= box.Messages; lo += imapWindow {
			rows, _, err := session.FetchWindow(ctx, lo, min(lo+imapWindow-1, box.Messages))
			if err == nil {
				err = im.checkStop(ctx)
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

// notImported returns the UIDs of messages that are not imported yet. It counts the others as
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

// fetchIMAP fetches messages from a folder on a server and adds them in the order of their UIDs.
func (im *Importer) fetchIMAP(ctx context.Context, session *pull.Session, folder, name string, uids []uint32, key func(uint32) string) error {
	var got []SourceMessage
	var long []int // indexes in got of messages that must be fetched in pieces
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
		err = im.checkStop(ctx)
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

// A limitedBuffer collects the text of a message, up to MaxMessage bytes. Then over is true.
type limitedBuffer struct {
	b    []byte
	over bool // the text has more than MaxMessage bytes
}

// Write appends p. The error is ErrImportTooLarge if the text would exceed MaxMessage.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	if len(l.b)+len(p) > core.MaxMessage {
		l.over = true
		return 0, ErrImportTooLarge
	}
	l.b = append(l.b, p...)
	return len(p), nil
}

// ImportFrom is like ReadIMAP, for a server that a user has named. Its errors have texts for
// people.
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
	return core.Errorf("upstream_error", "%s", external.ErrorText(server.Host, err))
}

package pull

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// rowCost is an upper limit for the bytes that one row takes in a response, even with many
// keywords.
const rowCost = 2 << 10

// Flags are the flags of one message.
type Flags struct {
	Seen, Answered, Flagged, Deleted, Draft bool
	Keywords                                []string // as spelled by the server
}

// A Row is one message of the selected folder, without its content.
type Row struct {
	UID   uint32
	Flags Flags
}

// FetchWindow returns the rows of the messages with the sequence numbers lo to hi, both inclusive,
// in ascending order. whole reports that the server returned all of them. Then a UID that is
// missing between two rows does not exist any more.
//
// The sequence number of a message only decreases, when an earlier message is deleted. So a caller
// misses no message, but may see some twice, if it reads windows from the newest downwards, each
// ending where the previous one began.
func (s *Session) FetchWindow(ctx context.Context, lo, hi uint32) (rows []Row, whole bool, err error) {
	count := int64(hi) - int64(lo) + 1
	err = s.runCommand(ctx, s.bulkBounds(count*rowCost), func() error {
		cmd := s.client.Fetch(imap.SeqSet{{Start: lo, Stop: hi}}, &imap.FetchOptions{UID: true, Flags: true})
		rows = make([]Row, 0, count)
		for m := cmd.Next(); m != nil; m = cmd.Next() {
			rows = append(rows, readRow(m))
		}
		return cmd.Close()
	})
	if err != nil {
		return nil, false, fmt.Errorf("fetch rows %d to %d: %w", lo, hi, err)
	}
	for i, r := range rows {
		if r.UID == 0 || i > 0 && r.UID <= rows[i-1].UID {
			return nil, false, fmt.Errorf("fetch rows %d to %d: %w: UIDs are not in ascending order", lo, hi, ErrProtocol)
		}
	}
	return rows, int64(len(rows)) == count, nil
}

// FetchChanged fetches the rows that have changed since a HIGHESTMODSEQ (RFC 7162) and have a UID
// of at most last, and calls each for batches of them. most is the maximum number of rows that the
// server may return.
func (s *Session) FetchChanged(ctx context.Context, since uint64, last, most uint32, each func([]Row) error) error {
	if last == 0 {
		return nil
	}
	var failed error
	err := s.runCommand(ctx, s.bulkBounds(int64(most)*rowCost), func() error {
		set := imap.UIDSet{{Start: 1, Stop: imap.UID(last)}}
		cmd := s.client.Fetch(set, &imap.FetchOptions{UID: true, Flags: true, ChangedSince: since})
		var batch []Row
		for m := cmd.Next(); m != nil; m = cmd.Next() {
			batch = append(batch, readRow(m))
			if len(batch) == 250 && failed == nil {
				failed, batch = each(batch), batch[:0]
			}
		}
		if err := cmd.Close(); err != nil || failed != nil || len(batch) == 0 {
			return err
		}
		failed = each(batch)
		return nil
	})
	if err == nil {
		return failed
	}
	return fmt.Errorf("fetch changed rows: %w", err)
}

// bulkBounds returns the limits of a command that fetches that many bytes.
func (s *Session) bulkBounds(bytes int64) bounds {
	return bounds{bytes: bytes + smallResponse, time: s.timeouts.Bulk, silence: s.timeouts.Silence}
}

// readRow reads the UID and the flags from a FETCH response.
func readRow(m *imapclient.FetchMessageData) Row {
	var r Row
	for item := m.Next(); item != nil; item = m.Next() {
		switch item := item.(type) {
		case imapclient.FetchItemDataUID:
			r.UID = uint32(item.UID)
		case imapclient.FetchItemDataFlags:
			r.Flags = readFlags(item.Flags)
		default:
			discardItem(item)
		}
	}
	return r
}

func readFlags(list []imap.Flag) Flags {
	var f Flags
	known := map[string]*bool{
		`\seen`: &f.Seen, `\answered`: &f.Answered, `\flagged`: &f.Flagged, `\deleted`: &f.Deleted, `\draft`: &f.Draft,
	}
	for _, flag := range list {
		if set := known[strings.ToLower(string(flag))]; set != nil {
			*set = true
		} else if !strings.HasPrefix(string(flag), `\`) {
			f.Keywords = append(f.Keywords, string(flag))
		}
	}
	return f
}

// discardItem discards an item that was not requested.
func discardItem(item imapclient.FetchItemData) {
	if body, ok := item.(imapclient.FetchItemDataBodySection); ok && body.Literal != nil {
		_, _ = io.Copy(io.Discard, body.Literal) // if the connection fails, the next command returns the error
	}
}

func uidSet(uids []uint32) imap.UIDSet {
	var set imap.UIDSet
	for _, uid := range uids {
		set.AddNum(imap.UID(uid))
	}
	return set
}

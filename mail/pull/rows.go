package pull

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// rowCost is an upper limit of the bytes of one row, even with many keywords.
const rowCost = 2 << 10

// Flags are the flags of a message.
type Flags struct {
	Seen, Answered, Flagged, Deleted, Draft bool
	Keywords                                []string // as spelled by the server
}

// A Row is one message of INBOX without its content.
type Row struct {
	UID   uint32
	Flags Flags
}

// Window returns the rows with the sequence numbers lo to hi, both inclusive, in ascending order.
// whole reports that the server returned all of them. In that case a UID between theirs that is
// missing no longer exists.
//
// The sequence number of a message only ever decreases, when an earlier message is deleted. So a
// caller that reads windows from the newest downwards, each ending where the previous one began,
// may see some rows twice but misses none.
func (s *Session) Window(ctx context.Context, lo, hi uint32) (rows []Row, whole bool, err error) {
	count := int64(hi) - int64(lo) + 1
	err = s.do(ctx, s.bulk(count*rowCost), func() error {
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
			return nil, false, fmt.Errorf("fetch rows %d to %d: %w: UIDs do not rise", lo, hi, ErrProtocol)
		}
	}
	return rows, int64(len(rows)) == count, nil
}

// Changed calls each with batches of the rows that have changed since a HIGHESTMODSEQ (RFC 7162),
// with UIDs up to last. most is the maximum number of rows.
func (s *Session) Changed(ctx context.Context, since uint64, last, most uint32, each func([]Row) error) error {
	if last == 0 {
		return nil
	}
	var failed error
	err := s.do(ctx, s.bulk(int64(most)*rowCost), func() error {
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

func (s *Session) bulk(bytes int64) bounds {
	return bounds{bytes: bytes + smallResponse, time: s.timeouts.Bulk, silence: s.timeouts.Silence}
}

// readRow reads the UID and flags from a FETCH response.
func readRow(m *imapclient.FetchMessageData) Row {
	var r Row
	for item := m.Next(); item != nil; item = m.Next() {
		switch item := item.(type) {
		case imapclient.FetchItemDataUID:
			r.UID = uint32(item.UID)
		case imapclient.FetchItemDataFlags:
			r.Flags = readFlags(item.Flags)
		default:
			skip(item)
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

// skip discards an item that was not requested.
func skip(item imapclient.FetchItemData) {
	if body, ok := item.(imapclient.FetchItemDataBodySection); ok && body.Literal != nil {
		_, _ = io.Copy(io.Discard, body.Literal) // a connection error is returned by the next command
	}
}

func uidSet(uids []uint32) imap.UIDSet {
	var set imap.UIDSet
	for _, uid := range uids {
		set.AddNum(imap.UID(uid))
	}
	return set
}

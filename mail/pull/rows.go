package pull

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// rowCost is more than a row with many keywords has.
const rowCost = 2 << 10

// Flags are those of a message.
type Flags struct {
	Seen, Answered, Flagged, Deleted, Draft bool
	Keywords                                []string // as the server spells them
}

// A Row is one message of INBOX without its content.
type Row struct {
	UID   uint32
	Flags Flags
}

// Window reads the rows whose sequence numbers are from lo to hi, both inclusive, upwards. whole
// says that the server showed every one of them, so that a UID between theirs which is not among
// them is gone.
//
// Sequence numbers only fall, and only when a message below is deleted: whoever reads windows
// downwards, each ending where the one before began, meets some rows twice but misses none.
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

// Changed reads the rows with UIDs up to last that have changed since a HIGHESTMODSEQ, in batches
// (RFC 7162). most is how many there can be.
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
	return bounds{bytes: bytes + smallAnswer, time: s.timeouts.Bulk, silence: s.timeouts.Silence}
}

// readRow reads what a FETCH answer says of a message.
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

// skip reads past what was not asked for.
func skip(item imapclient.FetchItemData) {
	if body, ok := item.(imapclient.FetchItemDataBodySection); ok && body.Literal != nil {
		_, _ = io.Copy(io.Discard, body.Literal) // the next command tells what is wrong with the connection
	}
}

func uidSet(uids []uint32) imap.UIDSet {
	var set imap.UIDSet
	for _, uid := range uids {
		set.AddNum(imap.UID(uid))
	}
	return set
}

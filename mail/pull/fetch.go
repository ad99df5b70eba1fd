package pull

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// A Message is the beginning of a message, with what the server reports about it.
type Message struct {
	Row
	Received time.Time // INTERNALDATE; zero if the server does not report it
	Size     int64     // bytes, as the server reports them; may be wrong
	Content  []byte    // up to 256 KiB; valid until the callback returns
	More     bool      // Content may be incomplete; Session.Content reads all of it
}

// Fetch fetches messages by UID without marking them as seen, and calls each for every one of them.
// uids should be at most a few dozen. The server may use any order, and omits messages that no
// longer exist. After an error of each, the remaining messages are skipped.
func (s *Session) Fetch(ctx context.Context, uids []uint32, each func(Message) error) error {
	var failed error
	err := s.runCommand(ctx, s.bulkBounds(int64(len(uids))*(pieceSize+rowCost)), func() error {
		cmd := s.client.Fetch(uidSet(uids), &imap.FetchOptions{
			UID: true, Flags: true, InternalDate: true, RFC822Size: true, BodySection: []*imap.FetchItemBodySection{pieceSection(imap.PartSpecifierNone, 0)},
		})
		for data := cmd.Next(); data != nil; data = cmd.Next() {
			m, err := readMessage(data)
			if err == nil && failed == nil && m.Content != nil {
				err = each(m)
			}
			if failed == nil {
				failed = err
			}
		}
		return cmd.Close()
	})
	if err == nil {
		return failed
	}
	return fmt.Errorf("fetch %d messages: %w", len(uids), err)
}

// pieceSection returns the section of pieceSize bytes that begins at an offset. Fetching a message
// in such pieces limits the size of a literal.
func pieceSection(what imap.PartSpecifier, offset int64) *imap.FetchItemBodySection {
	return &imap.FetchItemBodySection{Specifier: what, Peek: true, Partial: &imap.SectionPartial{Offset: offset, Size: pieceSize}}
}

// readMessage reads a message from a FETCH response.
func readMessage(data *imapclient.FetchMessageData) (Message, error) {
	var m Message
	for item := data.Next(); item != nil; item = data.Next() {
		switch item := item.(type) {
		case imapclient.FetchItemDataUID:
			m.UID = uint32(item.UID)
		case imapclient.FetchItemDataFlags:
			m.Flags = readFlags(item.Flags)
		case imapclient.FetchItemDataInternalDate:
			m.Received = item.Time
		case imapclient.FetchItemDataRFC822Size:
			m.Size = item.Size
		case imapclient.FetchItemDataBodySection:
			if item.Literal == nil || m.Content != nil {
				discardItem(item)
				continue
			}
			content, err := io.ReadAll(io.LimitReader(item.Literal, maxLiteral))
			if err != nil {
				return m, err
			}
			m.Content, m.More = content, len(content) >= pieceSize
		}
	}
	return m, nil
}

// Content writes a whole message to w, piece by piece, and returns its size in bytes. It returns 0
// if the message no longer exists. Errors of w are wrapped.
func (s *Session) Content(ctx context.Context, uid uint32, w io.Writer) (int64, error) {
	var size int64
	for {
		n, err := s.fetchPiece(ctx, uid, pieceSection(imap.PartSpecifierNone, size), w)
		size += n
		if err != nil {
			return size, fmt.Errorf("fetch message %d: %w", uid, err)
		}
		if n < pieceSize {
			return size, nil
		}
	}
}

// Header writes at most 256 KiB of the header of a message to w, and returns the number of bytes.
func (s *Session) Header(ctx context.Context, uid uint32, w io.Writer) (int64, error) {
	n, err := s.fetchPiece(ctx, uid, pieceSection(imap.PartSpecifierHeader, 0), w)
	if err != nil {
		return 0, fmt.Errorf("fetch header of message %d: %w", uid, err)
	}
	return n, nil
}

// fetchPiece writes one section of a message to w and returns its length.
func (s *Session) fetchPiece(ctx context.Context, uid uint32, section *imap.FetchItemBodySection, w io.Writer) (n int64, err error) {
	var failed error
	err = s.runCommand(ctx, s.bulkBounds(pieceSize), func() error {
		cmd := s.client.Fetch(uidSet([]uint32{uid}), &imap.FetchOptions{UID: true, BodySection: []*imap.FetchItemBodySection{section}})
		for data := cmd.Next(); data != nil; data = cmd.Next() {
			var m Message
			m, failed = readMessage(data)
			if failed == nil && n == 0 {
				n = int64(len(m.Content))
				_, failed = w.Write(m.Content)
			}
		}
		return cmd.Close()
	})
	if err == nil {
		err = failed
	}
	return n, err
}

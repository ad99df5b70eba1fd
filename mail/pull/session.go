package pull

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// A Session is a connection that is logged in. It is one goroutine's at a time. After an error that
// does not wrap ErrRefused it is of no more use but to Close.
type Session struct {
	wire     *wire
	client   *imapclient.Client
	timeouts Timeouts
	caps     imap.CapSet
	greeted  bool
	news     chan struct{} // holds a value once something has changed by itself
}

func newSession(w *wire, t Timeouts) *Session {
	s := &Session{wire: w, timeouts: t, news: make(chan struct{}, 1)}
	w.begin(bounds{bytes: smallAnswer, time: t.Connect})
	s.client = imapclient.New(w, s.options())
	return s
}

// notify notes that something has changed by itself; it never blocks.
func (s *Session) notify() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// RemoteAddr is the address that the server answered at.
func (s *Session) RemoteAddr() netip.Addr {
	if at, ok := s.wire.RemoteAddr().(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Close ends the connection at once; nothing is lost, since every change was confirmed before.
func (s *Session) Close() {
	s.wire.abort(ErrClosed)
	_ = s.client.Close() // it can only say again why the connection ended
}

// do runs one command within its bounds and says why it failed.
func (s *Session) do(ctx context.Context, b bounds, command func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.wire.begin(b)
	stop := context.AfterFunc(ctx, func() { s.wire.abort(context.Cause(ctx)) })
	err := command()
	stop()
	s.wire.end()
	if err == nil {
		return nil
	}
	if e := new(imap.Error); errors.As(err, &e) {
		return refused(e)
	}
	if errors.Is(err, ErrLogin) || errors.Is(err, ErrProtocol) || errors.Is(err, ErrRefused) {
		return err
	}
	if cause := s.wire.why(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %s", ErrProtocol, clean(err.Error()))
}

func (s *Session) short(ctx context.Context, command func() error) error {
	return s.do(ctx, bounds{bytes: smallAnswer, time: s.timeouts.Command}, command)
}

// A Box is what a folder was when it was selected.
type Box struct {
	UIDValidity uint32
	UIDNext     uint32 // 0: the server does not tell
	Messages    uint32
	ModSeq      uint64 // HIGHESTMODSEQ (RFC 7162); 0: the server has none
}

// A Folder is one folder of the server.
type Folder struct {
	Name   string   // as Open takes it
	Levels []string // of the name
}

// Folders lists the folders that can be selected.
func (s *Session) Folders(ctx context.Context) (out []Folder, err error) {
	err = s.do(ctx, s.bulk(4<<20), func() error {
		list, err := s.client.List("", "*", nil).Collect()
		for _, f := range list {
			if slices.Contains(f.Attrs, imap.MailboxAttrNoSelect) || slices.Contains(f.Attrs, imap.MailboxAttrNonExistent) {
				continue
			}
			levels := []string{f.Mailbox}
			if f.Delim != 0 {
				levels = strings.Split(f.Mailbox, string(f.Delim))
			}
			out = append(out, Folder{f.Mailbox, levels})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list folders: %w", err)
	}
	return out, nil
}

// Select opens INBOX, as Open does.
func (s *Session) Select(ctx context.Context) (Box, error) { return s.Open(ctx, "INBOX") }

// Open opens a folder. Every other method but CanIdle and Folders needs it; a second call tells how
// things are then.
func (s *Session) Open(ctx context.Context, folder string) (Box, error) {
	var box Box
	select { // what it tells comes in the answer, too
	case <-s.news:
	default:
	}
	err := s.short(ctx, func() error {
		o := &imap.SelectOptions{CondStore: s.caps.Has(imap.CapCondStore)}
		data, err := s.client.Select(folder, o).Wait()
		if err != nil {
			return err
		}
		if data.UIDValidity == 0 {
			return fmt.Errorf("%w: its %s has no UIDVALIDITY", ErrProtocol, clean(folder))
		}
		box = Box{UIDValidity: data.UIDValidity, UIDNext: uint32(data.UIDNext), Messages: data.NumMessages}
		if o.CondStore {
			box.ModSeq = data.HighestModSeq
		}
		return nil
	})
	if err != nil {
		return Box{}, fmt.Errorf("select %s: %w", clean(folder), err)
	}
	return box, nil
}

// CanIdle reports whether the server says by itself what changes (RFC 2177).
func (s *Session) CanIdle() bool { return s.caps.Has(imap.CapIdle) }

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

// A Session is a connection that is logged in. Only one goroutine may use it at a time. After an
// error that does not wrap ErrRefused, only Close may be called.
type Session struct {
	conn     *boundedConn
	client   *imapclient.Client
	timeouts Timeouts
	caps     imap.CapSet
	greeted  bool
	changed  chan struct{} // holds a value if the server has reported a change
}

func newSession(w *boundedConn, t Timeouts) *Session {
	s := &Session{conn: w, timeouts: t, changed: make(chan struct{}, 1)}
	w.startCommand(bounds{bytes: smallResponse, time: t.Connect})
	s.client = imapclient.New(w, s.clientOptions())
	return s
}

// notify records that the server has reported a change. It never blocks.
func (s *Session) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// RemoteAddr returns the IP address of the server.
func (s *Session) RemoteAddr() netip.Addr {
	if at, ok := s.conn.RemoteAddr().(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Close closes the connection at once, without LOGOUT. No change is lost, since the server has
// confirmed every command.
func (s *Session) Close() {
	s.conn.abort(ErrClosed)
	_ = s.client.Close() // its error can only repeat why the connection ended
}

// runCommand runs one command within the limits b. Its error says why the command failed.
func (s *Session) runCommand(ctx context.Context, b bounds, command func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.conn.startCommand(b)
	stop := context.AfterFunc(ctx, func() { s.conn.abort(context.Cause(ctx)) })
	err := command()
	stop()
	s.conn.endCommand()
	if err == nil {
		return nil
	}
	if e := new(imap.Error); errors.As(err, &e) {
		return refusedError(e)
	}
	if errors.Is(err, ErrLogin) || errors.Is(err, ErrProtocol) || errors.Is(err, ErrRefused) {
		return err
	}
	if cause := s.conn.closeCause(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %s", ErrProtocol, printable(err.Error()))
}

// runShort runs a command with a short response.
func (s *Session) runShort(ctx context.Context, command func() error) error {
	return s.runCommand(ctx, bounds{bytes: smallResponse, time: s.timeouts.Command}, command)
}

// A FolderState is the state that a folder had when it was selected.
type FolderState struct {
	UIDValidity uint32
	UIDNext     uint32 // 0 if the server does not report it
	Messages    uint32
	ModSeq      uint64 // HIGHESTMODSEQ (RFC 7162); 0 if the server has none
}

// A Folder is one folder of the server.
type Folder struct {
	Name   string   // the name to pass to Open
	Levels []string // the name, split at the hierarchy delimiter
}

// Folders lists the folders that can be opened.
func (s *Session) Folders(ctx context.Context) (out []Folder, err error) {
	err = s.runCommand(ctx, s.bulkBounds(4<<20), func() error {
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

// Select opens INBOX, see Open.
func (s *Session) Select(ctx context.Context) (FolderState, error) { return s.Open(ctx, "INBOX") }

// Open selects a folder. It must be called before the methods that read or change messages by UID
// or sequence number. If it is called again for the same folder, it returns the current state of
// the folder.
func (s *Session) Open(ctx context.Context, folder string) (FolderState, error) {
	var box FolderState
	select { // the reply to SELECT has all changes that were reported before
	case <-s.changed:
	default:
	}
	err := s.runShort(ctx, func() error {
		o := &imap.SelectOptions{CondStore: s.caps.Has(imap.CapCondStore)}
		data, err := s.client.Select(folder, o).Wait()
		if err != nil {
			return err
		}
		if data.UIDValidity == 0 {
			return fmt.Errorf("%w: the server gave no UIDVALIDITY for folder %s", ErrProtocol, printable(folder))
		}
		box = FolderState{UIDValidity: data.UIDValidity, UIDNext: uint32(data.UIDNext), Messages: data.NumMessages}
		if o.CondStore {
			box.ModSeq = data.HighestModSeq
		}
		return nil
	})
	if err != nil {
		return FolderState{}, fmt.Errorf("select %s: %w", printable(folder), err)
	}
	return box, nil
}

// CanIdle reports whether the server supports IDLE (RFC 2177).
func (s *Session) CanIdle() bool { return s.caps.Has(imap.CapIdle) }

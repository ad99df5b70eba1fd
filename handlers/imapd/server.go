// Package imapd lets mail clients read and change mailboxes over IMAP4rev1 (RFC 3501) and IMAP4rev2
// (RFC 9051). It does not know how messages are stored, nor which limits a mailbox has: the service
// decides that.
//
// Where things are:
//   - listen.go: connections from accept to end. plaintext.go: before TLS. server.go: limits.
//   - commands.go: the table of commands, with the function of each, the state that it needs, and
//     the rule for tainted log-ins. session.go: the state of a connection; codes of errors.
//   - login.go: log-in, ENABLE, ID, COMPRESS. folders.go: LIST, STATUS and what changes folders.
//     select.go: SELECT and CLOSE. append.go, replace.go, transfer.go (COPY, MOVE, EXPUNGE),
//     store.go (flags), search.go, sort.go (and THREAD), quota.go, idle.go: the command of that
//     same name. query.go: the keys of a search. match.go: whether a message meets them.
//   - fetch.go: FETCH. items.go: its items. attributes.go, objects.go: items from a message's row.
//     sections.go: items from its bytes.
//   - changes.go: reports of changes by others. qresync.go: changes since a client's last
//     connection. view.go: the messages of a folder as a client knows them.
//   - taint.go: which answers taint a log-in; CLOSE by a tainted log-in.
package imapd

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/deflate"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// AppendLimit is the maximum size of a message in APPEND, in bytes (RFC 7889).
const AppendLimit = wire.MaxMessageBytes

// maxLargeSorts is how many SORT and THREAD commands with many messages may run at the same time.
const maxLargeSorts = 4

// A Server serves IMAP on any number of listeners. Set its fields before the first Run.
type Server struct {
	Service *service.Service
	TLS     *tls.Config // nil: log-ins are refused, except in a sandbox
	Log     *slog.Logger

	MaxConnections int            // connections on all listeners together
	MaxPerAddress  int            // connections of one IPv4 address or IPv6 /64 to one listener that have not logged in; 0: no limit
	Exempt         []netip.Prefix // addresses to which MaxPerAddress does not apply
	MaxPerMailbox  int            // connections logged in to one mailbox; 0: no limit
	// Changing, if not nil, returns MaxPerAddress and MaxPerMailbox, which may change.
	Changing      func() (perAddress, perMailbox int)
	Logins        *connlimit.Logins // counts the connections of each account after log-in; servers can share it
	MaxCompressed int               // connections with compression; each takes 45 KB more
	// MaxUnsent is how many bytes one FETCH may read or decode in addition to those that it sends.
	MaxUnsent int64
	LoginTime time.Duration // from connecting until log-in is complete
	IdleTime  time.Duration // the longest time between two commands
	Grace     time.Duration // how long running commands may take when the server stops

	pool        *deflate.Pool // of compressors
	limiterOnce sync.Once     // sets limiter
	limiter     *connlimit.Limiter

	largeSorts chan struct{} // holds one value for each large SORT or THREAD that runs

	mu         sync.Mutex
	compressed int                           // connections with compression
	sessions   map[*session]core.MailboxUser // the sessions that are logged in
}

// New returns a server with the default limits.
func New(s *service.Service) *Server {
	return &Server{
		Service: s, Log: slog.Default(),
		MaxConnections: 5000, MaxPerAddress: 50, MaxPerMailbox: 50, Logins: connlimit.NewLogins(2000), MaxCompressed: 1000, MaxUnsent: 1 << 30,
		LoginTime: time.Minute, IdleTime: 30 * time.Minute, Grace: 5 * time.Second,
		pool: deflate.NewPool(), sessions: map[*session]core.MailboxUser{},
		largeSorts: make(chan struct{}, maxLargeSorts),
	}
}

// addSession adds a session that has logged in to those that endLogins watches.
func (s *Server) addSession(ss *session, u core.MailboxUser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[ss] = u
}

// endLogins ends connections whose mailbox was closed, or whose password is no longer valid. It
// runs until ctx ends.
func (s *Server) endLogins(ctx context.Context) {
	changes, end := s.Service.Core.Hub.Watch(core.AllLogins)
	defer end()
	expiries := time.NewTicker(time.Second)
	defer expiries.Stop()
	for {
		expired := false
		select {
		case <-changes:
		case <-expiries.C:
			expired = true
		case <-ctx.Done():
			return
		}
		now := s.Service.Core.Now()
		var look []*session
		s.mu.Lock()
		for ss, u := range s.sessions {
			if !expired || !u.Expires.IsZero() && !now.Before(u.Expires) {
				look = append(look, ss)
			}
		}
		s.mu.Unlock()
		for _, ss := range look {
			s.mu.Lock()
			u, still := s.sessions[ss]
			s.mu.Unlock()
			if e, ok := core.AsError(s.Service.Accounts.CheckMailboxOpen(ctx, u)); still && ok && e.Code == core.CodeMailboxClosed {
				ss.conn.Stop("[UNAVAILABLE] " + printableASCII(e.Message))
			}
		}
	}
}

// removeSession takes back what addSession did.
func (s *Server) removeSession(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, ss)
}

// acquireCompression counts a connection with compression. It returns false at the limit.
func (s *Server) acquireCompression() (acquired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compressed >= s.MaxCompressed {
		return false
	}
	s.compressed++
	return true
}

func (s *Server) releaseCompression() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compressed--
}

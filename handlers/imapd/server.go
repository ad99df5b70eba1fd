// Package imapd lets mail clients read and change mailboxes over IMAP4rev1 (RFC 3501) and IMAP4rev2
// (RFC 9051). It does not know how messages are stored, nor which limits a mailbox has: the service
// decides that.
//
// Where things are:
//   - listen.go: connections from accept to end. plaintext.go: before TLS. server.go: limits.
//   - commands.go: the table of commands: the function of each, the state that it needs, and which
//     a tainted log-in may run. session.go: the state of a connection, and codes of errors.
//   - login.go: log-in, ENABLE, ID, COMPRESS. folders.go: LIST, STATUS and what changes folders.
//     select.go: SELECT and CLOSE. append.go, replace.go, transfer.go (COPY, MOVE, EXPUNGE),
//     store.go (flags), search.go, sort.go (and THREAD), quota.go, idle.go: the command of that
//     name. query.go: the keys of a search. match.go: whether a message meets them.
//   - fetch.go: FETCH. items.go: its items. attributes.go, objects.go: what comes from a message's
//     row. sections.go: what comes from its bytes.
//   - changes.go: how changes by others are reported. qresync.go: since a client was last here.
//     view.go: the messages of a folder as a client knows them.
//   - taint.go: which answers taint a log-in, and CLOSE by one that is tainted.
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

// AppendLimit is the size of the largest message that APPEND takes, in bytes (RFC 7889).
const AppendLimit = wire.MaxMessage

const maxLargeOrders = 4 // SORT and THREAD commands of many messages that run at the same time

// A Server speaks IMAP on any number of listeners. Its fields are set before the first Run.
type Server struct {
	Service *service.Service
	TLS     *tls.Config // nil: a sandbox accepts log-ins without TLS, others refuse them
	Log     *slog.Logger

	MaxConnections int            // on all listeners together
	MaxPerAddress  int            // from one IPv4 address or IPv6 /64
	Exempt         []netip.Prefix // addresses to which MaxPerAddress does not apply
	MaxPerMailbox  int            // log-ins at the same time
	MaxCompressed  int            // connections with compression; each takes 45 KB more
	// Bytes that one FETCH may read or decode without sending anything.
	MaxUnsent int64
	LoginTime time.Duration // from connecting to the end of log-in
	IdleTime  time.Duration // between commands
	Grace     time.Duration // for running commands when the server stops

	pool        *deflate.Pool // of compressors
	limiterOnce sync.Once     // sets limiter
	limiter     *connlimit.Limiter

	largeOrders chan struct{} // one value for each large SORT or THREAD that runs

	mu         sync.Mutex
	compressed int                           // connections with compression
	logins     map[uint32]int                // by mailbox number
	sessions   map[*session]core.MailboxUser // the sessions that are logged in
}

// New returns a server with the default limits.
func New(s *service.Service) *Server {
	return &Server{
		Service: s, Log: slog.Default(),
		MaxConnections: 5000, MaxPerAddress: 200, MaxPerMailbox: 50, MaxCompressed: 1000, MaxUnsent: 1 << 30,
		LoginTime: time.Minute, IdleTime: 30 * time.Minute, Grace: 5 * time.Second,
		pool: deflate.NewPool(), logins: map[uint32]int{}, sessions: map[*session]core.MailboxUser{},
		largeOrders: make(chan struct{}, maxLargeOrders),
	}
}

// acquireLogin counts a log-in to a mailbox; it returns false if the mailbox is at its limit.
func (s *Server) acquireLogin(ss *session, u core.MailboxUser) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logins[u.Mailbox] >= s.MaxPerMailbox {
		return false
	}
	s.logins[u.Mailbox]++
	s.sessions[ss] = u
	return true
}

// endLogins ends the connections that are logged in to a mailbox that was closed, or with a
// password that is no longer valid. It runs until ctx ends.
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
			if e, ok := core.AsError(s.Service.Accounts.MailboxOpen(ctx, u)); still && ok && e.Code == core.CodeMailboxClosed {
				ss.conn.Stop("[UNAVAILABLE] " + plainText(e.Message))
			}
		}
	}
}

func (s *Server) releaseLogin(ss *session, mailbox uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, ss)
	if s.logins[mailbox]--; s.logins[mailbox] == 0 {
		delete(s.logins, mailbox)
	}
}

// acquireCompression counts a connection with compression; it returns false at the limit.
func (s *Server) acquireCompression() bool {
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

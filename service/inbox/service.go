// Package inbox reads and changes what is in mailboxes, for the API and IMAP: messages, folders,
// flags, threads and searches. It files messages, and syncs mailboxes that live on other servers.
// It does not know how mail comes here or leaves, nor how mailboxes are made.
//
// Where things stand:
//   - filing.go: a stored message and its row ([Service.Prepare], [Service.File]), what makes a
//     thread (thread), and when a mailbox is full ([core.QuotaLeft]).
//   - inbox.go: lists of messages.
//   - inbox_message.go: one message.
//   - words.go: whose words a message has, and what readers get of it whom strangers' words taint.
//   - waiting.go: requests that wait for a message. arrivals.go: how they learn of it.
//   - inbox_changes.go: marks and deletion.
//   - inbox_search.go: what a search finds. text_index.go: the index behind it.
//   - append.go: messages that mail clients put into folders.
//   - folders.go, folder_messages.go: folders, flags, copies and searches for IMAP.
//   - mark_answered.go: which messages a reply answers.
//   - warmup.go: warm-up mail.
//   - images.go: remote images, fetched for the reader.
//   - external.go: when a mailbox on another server is synced.
//   - external_connect.go: connects to that server.
//   - external_sync.go: one sync.
//   - external_idle.go: waits for new mail there.
//   - external_changes.go: changes messages there.
package inbox

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// Hooks are what other rooms do for this one.
type Hooks struct {
	// ProveByLogin notes that a log-in to a mailbox elsewhere, at the address, has succeeded.
	ProveByLogin func(ctx context.Context, mb *store.Mailbox, at netip.Addr) error
}

// A Service holds what the contents of mailboxes need.
type Service struct {
	*core.Core
	events *events.Service
	agents *agents.Service
	spam   *spam.Service
	Hooks  Hooks

	refreshes     *limit.Counter[string] // of external mailboxes, by account
	folderChanges *limit.Counter[string] // commands that changed folders, by mailbox
	firstCopy     string                 // an id of the time when this process began
	textDamaged   chan struct{}          // holds a value when the index for searches is to be made anew
	textTurn      chan struct{}          // holds a value while somebody changes the index for searches
	externals     *externals             // mailboxes that live elsewhere
	arrivals      arrivals               // who waits for mail
	images        *images
	structures    sync.Pool // of *msg.View
}

// New puts the room together. The caller sets its hooks.
func New(c *core.Core, e *events.Service, g *agents.Service, sp *spam.Service) *Service {
	s := &Service{
		Core: c, events: e, agents: g, spam: sp, firstCopy: c.Store.NewID("cpy"), textDamaged: make(chan struct{}, 1), textTurn: make(chan struct{}, 1),
		refreshes: limit.NewSlidingCounter[string](refreshPause, core.AttemptKeys), folderChanges: limit.NewSlidingCounter[string](time.Minute, core.AttemptKeys),
	}
	s.images = s.newImages()
	s.externals = newExternals(s)
	return s
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return append(s.pullKinds(), s.WhileActive(s.answerKind()), s.warmupKind())
}

// Run does what the room does by the clock, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	s.externals.Idle.Open(ctx)
	defer s.externals.Idle.close()
	if err := s.undoCopies(); err != nil {
		s.Log.Error("take back copies that a crash has cut", "error", err)
	}
	if err := s.wakePolls(); err != nil {
		s.Log.Error("plan looks at external mailboxes", "error", err)
	}
	s.indexTexts(ctx)
}

// Close ends the connections that are kept for later.
func (s *Service) Close() { s.images.HTTP.CloseIdleConnections() }

// Package inbox reads and changes what is in mailboxes, for the API and IMAP: messages, folders,
// flags, threads and searches. It files messages. It does not know how mail comes here or leaves,
// how mailboxes are made, nor how those on other servers are synced.
//
// Where things stand:
//   - filing.go: a stored message and its row ([Service.Prepare], [Service.File]), what makes a
//     thread ([ThreadFor]), and when a mailbox is full ([core.QuotaLeft]).
//   - inbox.go: lists of messages.
//   - inbox_message.go: one message.
//   - words.go: whose words a message has, and what readers get of it whom strangers' words taint.
//   - waiting.go: requests that wait for a message. arrivals.go: how they learn of it.
//   - inbox_changes.go: marks and deletion.
//   - inbox_search.go: what a search finds. text_index.go: the index behind it.
//   - append.go: messages that mail clients put into folders.
//   - folders.go, folder_messages.go, flags.go: folders, flags, copies and searches for IMAP.
//   - mark_answered.go: which messages a reply answers.
//   - warmup.go: warm-up mail.
//   - images.go: remote images, fetched for the reader.
package inbox

import (
	"context"
	"net/http"
	"sync"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// Servers are those of external mailboxes.
type Servers interface {
	// Mark marks messages there and here. It gives the flags of those that are marked now, and says
	// why the others are not.
	Mark(ctx context.Context, mb *store.Mailbox, uids []uint32, m pull.FlagChange) (marked map[uint32]Flags, kept map[uint32]*core.Error, err error)
	// Delete deletes messages there and here. It says which are kept, and why.
	Delete(ctx context.Context, who core.Actor, mb *store.Mailbox, uids []uint32) (kept map[uint32]*core.Error, err error)
}

// A Service holds what the contents of mailboxes need.
type Service struct {
	*core.Core
	events  *events.Service
	agents  *agents.Service
	spam    *spam.Service
	servers Servers

	folderChanges *limit.Counter[string] // commands that changed folders, by mailbox
	firstCopy     string                 // an id of the time when this process began
	textDamaged   chan struct{}          // holds a value when the index for searches is to be made anew
	textTurn      chan struct{}          // holds a value while somebody changes the index for searches
	arrivals      arrivals               // who waits for mail
	images        *images
	structures    sync.Pool // of *msg.View
}

// images fetches images from elsewhere, a bounded number at a time.
type images struct {
	HTTP  *http.Client
	spool func() *core.Spool
	slots *limit.Semaphore[string] // by account
}

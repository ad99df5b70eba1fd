// Package inbox reads and changes the contents of mailboxes for the API and IMAP: messages,
// folders, flags, threads and searches. It files messages. It does not know how mail arrives or
// leaves, how mailboxes are created, or how external mailboxes are synced.
//
// Where things are:
//   - filing.go: a stored message and its row ([Service.Prepare], [Service.File]), and when a
//     mailbox is full ([core.QuotaLeft]).
//   - threads.go: which thread a message joins ([ThreadFor]). thread_list.go: lists with one row
//     for each thread.
//   - inbox.go: lists of messages. message_view.go: a message as lists show it ([InboxMessage]).
//     positions.go: the order of lists.
//   - inbox_message.go: one message.
//   - authorship.go: who wrote a message, and what proves it.
//   - taint.go: which messages taint a reader, and what such a reader may see and do.
//   - waiting.go: requests that wait for a message. arrivals.go: how they are woken.
//   - inbox_changes.go: marks and deletion. moves.go: moves, and the folders of the API.
//   - inbox_search.go: searches. indexer: the index that they use.
//   - append.go: messages that mail clients append to folders.
//   - folders.go, rename.go, folder_messages.go, flags.go: folders, flags, copies and searches for
//     IMAP. roles.go: the standard folders.
//   - mark_answered.go: which messages a reply answers. answerer.go: who answered a message.
//   - warmup.go: which mail is warm-up mail.
//   - warmup_folders.go: the folder in which warm-up mail is filed, and when it is deleted there.
//   - images.go: links of images in messages; service/images fetches remote ones.
package inbox

import (
	"context"
	"sync"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/images"
	"github.com/mailstead/mailstead/service/inbox/indexer"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// Servers changes messages on the servers of external mailboxes.
type Servers interface {
	// Mark changes flags of messages on the server and in the copy here. It returns maps by UID:
	// marked has the new flags of the changed messages, and failures the errors of the others.
	Mark(ctx context.Context, mb *store.Mailbox, uids []uint32, m pull.FlagChange) (marked map[uint32]Flags, failures map[uint32]*core.Error, err error)
	// Delete deletes messages on the server and in the copy here. failures has the errors of the
	// messages that were not deleted, by UID.
	Delete(ctx context.Context, who core.Actor, mb *store.Mailbox, uids []uint32) (failures map[uint32]*core.Error, err error)
}

// A Service reads and changes the contents of mailboxes.
type Service struct {
	*core.Core
	events  *events.Service
	agents  *agents.Service
	spam    *spam.Service
	servers Servers

	folderChanges *limit.Counter[string] // counts commands that change folders, by mailbox
	firstCopy     string                 // a CopyIntent ID from the start of this process: smaller IDs are from earlier processes
	index         *indexer.Service       // makes mail searchable
	arrivals      arrivals               // wakes the requests that wait for mail
	images        *images.Fetcher
	structures    sync.Pool // of *msg.View, for messageViews
}

// notifyWatchers notifies the watchers of the mailbox once the transaction is on disk.
func (s *Service) notifyWatchers(tx *store.Tx, mailbox uint32) {
	tx.After(func() { s.Hub.Changed(mailbox) })
}

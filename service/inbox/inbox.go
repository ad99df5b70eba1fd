package inbox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/query"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// InboxFilter selects messages for a list. Its days are in UTC, and both belong to the range.
type InboxFilter struct {
	DateFrom       string `query:"date_from"`      // The first day, UTC.
	DateTo         string `query:"date_to"`        // The last day, UTC, with all of it.
	ExcludeWarmup  bool   `query:"exclude_warmup"` // Leave out mail with one of the account's warm-up phrases or header fields.
	HasAttachments bool   `query:"has_attachments"`
	IsRead         *bool  `query:"is_read" alias:"read"`
	IsFlagged      *bool  `query:"is_flagged"` // Whether it is flagged or starred, here or by IMAP (\Flagged).
	// Words of the subject, addresses, attachment names and text, and operators. A message must
	// have all of them; the last word can be the start of a word. "Quoted words" match as a phrase.
	// name@example.com, name@ and @example.com match addresses. Operators: from: to: cc: subject:
	// has:attachment is:unread is:read is:starred is:answered in:FOLDER before:2026-11-30
	// after:2026-11-30 larger:10MB smaller:10MB. A leading - negates a word or an operator.
	Q        string `query:"q" max:"200"`
	From     string `query:"from" max:"200"`     // The same for the author's name and address alone.
	ThreadID string `query:"thread_id" max:"64"` // Only the messages of this conversation.
	Domain   string `query:"domain"`             // Only the mailboxes of this domain, by its name or id.
	Threads  bool   `query:"threads"`            // One row for each conversation: its newest message of the folder, with thread.
	// inbox (the default), sent, drafts, junk, trash, archive, an IMAP name, or all: every folder
	// but Junk and Trash.
	Folder string `query:"folder" max:"255" example:"inbox"`
}

// ListInboxIn is the request of list_inbox.
type ListInboxIn struct {
	Limit  *int   `query:"limit" example:"100"` // Maximum rows: 100 by default, at most 200.
	Cursor string `query:"cursor"`              // Opaque: where the next page begins.
	InboxFilter
	Mailbox string `query:"mailbox"` // The mailbox's address.
}

// ListEmailUserInboxIn is the request of list_email_user_inbox.
type ListEmailUserInboxIn struct {
	page.Query
	InboxFilter
	UserID string `path:"user_id"`
}

// An InboxPage is a page of messages, with the time when external mail was last fetched.
type InboxPage struct {
	page.Page[InboxMessage]
	SyncedAt core.Time `json:"synced_at"`
}

// ListInbox lists messages of all mailboxes of the account, by default those in INBOX, newest
// first.
func (s *Service) ListInbox(_ context.Context, who core.Actor, in ListInboxIn) (*InboxPage, error) {
	l, err := s.newInboxList(who, page.Query{Limit: in.Limit, Cursor: in.Cursor}, in.InboxFilter, 100, 200)
	if err != nil {
		return nil, err
	}
	l.operation, l.filters = "inbox", append(l.filters, in.Mailbox)
	return l.page(func(tx *store.Tx) (core.Time, bool, error) {
		if in.Mailbox == "" && who.MailboxID != "" { // the actor is a mailbox, so folder can name any of its own folders
			mb, err := core.ReadMailbox(tx, who, who.MailboxID)
			if err != nil {
				return core.Time{}, false, err
			}
			mayMatch, err := l.narrowToMailbox(tx, mb)
			return core.Time{Time: mb.LastSyncAt}, mayMatch, err
		}
		if in.Mailbox == "" {
			a, err := store.Accounts.Get(tx, who.AccountID)
			if err != nil {
				return core.Time{}, false, err
			}
			mayMatch, err := l.narrowToFolders(tx)
			return core.Time{Time: a.SyncedAt}, mayMatch, err
		}
		mb, err := core.MailboxByEmail(tx, who, in.Mailbox)
		if errors.Is(err, store.ErrNotFound) {
			return core.Time{}, false, nil // the filter selects no mailbox
		}
		if err != nil {
			return core.Time{}, false, err
		}
		mayMatch, err := l.narrowToMailbox(tx, mb)
		return core.Time{Time: mb.LastSyncAt}, mayMatch, err
	})
}

// ListEmailUserInbox lists messages of one mailbox, by default those in INBOX, newest first.
func (s *Service) ListEmailUserInbox(_ context.Context, who core.Actor, in ListEmailUserInboxIn) (*InboxPage, error) {
	l, err := s.newInboxList(who, in.Query, in.InboxFilter, 25, 100)
	if err != nil {
		return nil, err
	}
	l.operation, l.filters = "email_user_inbox", append(l.filters, in.UserID)
	return l.page(func(tx *store.Tx) (core.Time, bool, error) {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return core.Time{}, false, err
		}
		mayMatch, err := l.narrowToMailbox(tx, mb)
		return core.Time{Time: mb.LastSyncAt}, mayMatch, err
	})
}

// foldersOf returns the folders of a mailbox that the request names: those that have each of
// l.folders as their name, without those that the search excludes. For the name "all", these are
// all folders except Junk and Trash.
func (l *inboxList) foldersOf(tx *store.Tx, mb *store.Mailbox) (folders []*Folder, err error) {
	for i, name := range l.folders {
		named, err := foldersToList(tx, mb, name)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			folders = named
			continue
		}
		folders = slices.DeleteFunc(folders, func(f *Folder) bool { return !hasFolder(named, f) })
	}
	for _, name := range l.search.NotIn {
		named, err := foldersToList(tx, mb, name)
		if core.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		folders = slices.DeleteFunc(folders, func(f *Folder) bool { return hasFolder(named, f) })
	}
	return folders, nil
}

// hasFolder reports whether a list of folders of a mailbox has one of its folders.
func hasFolder(list []*Folder, f *Folder) bool {
	return slices.ContainsFunc(list, func(other *Folder) bool { return other.ID == f.ID })
}

// narrowToMailbox limits the list to the requested folders of a mailbox. mayMatch is false if there
// are none.
func (l *inboxList) narrowToMailbox(tx *store.Tx, mb *store.Mailbox) (mayMatch bool, err error) {
	folders, err := l.foldersOf(tx, mb)
	for _, f := range folders {
		l.query.Folders = append(l.query.Folders, f.Num)
	}
	return len(folders) > 0, err
}

// narrowToFolders limits the list to the requested folders of all mailboxes of the account.
// mayMatch is false if all of these folders are empty. The error is not_found if no mailbox has
// such a folder, and mailbox_required if there are too many of them to list at once.
func (l *inboxList) narrowToFolders(tx *store.Tx) (mayMatch bool, err error) {
	isInbox := func(name string) bool { return name == "" || strings.EqualFold(name, InboxName) }
	inboxes := !slices.ContainsFunc(l.folders, func(name string) bool { return !isInbox(name) })
	if inboxes && l.who.SeesAll() {
		return !slices.ContainsFunc(l.search.NotIn, func(name string) bool { return isInbox(name) || name == allMail }), nil
	}
	known := inboxes
	for _, mb := range store.MailboxesByAccount.Asc(tx, l.who.AccountID, "") {
		if !l.who.Sees(mb.ID) {
			continue
		}
		folders, err := l.foldersOf(tx, mb)
		if core.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		known = true
		for _, f := range folders {
			if f.Messages > 0 {
				l.query.Folders = append(l.query.Folders, f.Num)
			}
		}
		if len(l.query.Folders) > maxMergedFolders {
			return false, core.Errorf("mailbox_required", "This account has too many folders to list at once. Name the mailbox: ?mailbox=name@domain.").
				With("mailbox", "required", "is required")
		}
	}
	if !known {
		return false, core.NotFound("folder")
	}
	return len(l.query.Folders) > 0, nil
}

// An inboxList reads one page of a list of messages, for one request.
type inboxList struct {
	s            *Service
	who          core.Actor
	operation    string // the operation that lists, to which cursors are bound
	filters      []string
	cursor       string
	query        store.InboxQuery
	search       *query.Query // all conditions of the request on single messages, except those that follow
	searches     bool         // the list is made by a search, since query cannot select by all conditions
	folders      []string     // names of folders, which a message must be in all
	thread       string       // the ID of a thread; "": any thread
	threads      bool         // the list has one row for each thread
	domain       string       // the name or ID in the request, later the domain's ID; "": any domain
	builder      page.Builder[InboxMessage]
	shownSources map[string]agents.Source           // the sources of the messages that are shown in full, by message ID; nil if the reader's policy has no taint
	namedSources map[*ThreadSummary][]agents.Source // the sources of the messages whose authors a thread's summary names; nil if the reader's policy has no taint
}

// newInboxList validates the filter of a request. A page has byDefault messages unless the request
// says how many, and never more than most.
func (s *Service) newInboxList(who core.Actor, in page.Query, f InboxFilter, byDefault, most int) (*inboxList, error) {
	limit, err := in.PageSize(byDefault, most)
	if err != nil {
		return nil, err
	}
	q, err := query.Parse(f.Q)
	if err != nil {
		return nil, core.Invalid("q", "invalid", "%s", err)
	}
	l := &inboxList{
		s: s, who: who, cursor: in.Cursor, search: q, searches: f.Q != "" || f.From != "" || f.ThreadID != "", folders: q.In, thread: f.ThreadID, threads: f.Threads, domain: f.Domain,
		builder: page.Builder[InboxMessage]{Limit: limit},
	}
	if f.Threads && l.searches {
		return nil, core.Invalid("threads", "conflict", "cannot be combined with q, from and thread_id")
	}
	if len(l.folders) == 0 {
		l.folders = []string{f.Folder}
	}
	if f.From != "" {
		q.AddField(query.From, f.From, false)
	}
	start, end, err := core.ParseDays(f.DateFrom, f.DateTo)
	if err != nil {
		return nil, err
	}
	q.ReceivedFrom(start)
	if !end.IsZero() {
		q.ReceivedBefore(end)
	}
	if f.HasAttachments {
		q.Require(&q.Attachments, true)
	}
	if f.IsRead != nil {
		q.Require(&q.Seen, *f.IsRead)
	}
	if f.IsFlagged != nil {
		q.Require(&q.Flagged, *f.IsFlagged)
	}
	l.query = store.InboxQuery{Account: who.AccountNum, From: q.After, To: q.Before, Seen: q.Seen, Flagged: q.Flagged, Attachments: q.Attachments}
	if f.ExcludeWarmup {
		l.query.Warmup = new(bool)
	}
	if who.Policy.Taint {
		l.shownSources, l.namedSources = map[string]agents.Source{}, map[*ThreadSummary][]agents.Source{}
	}
	choice := func(is *bool) string {
		if is == nil {
			return "any"
		}
		return strconv.FormatBool(*is)
	}
	l.filters = []string{
		f.DateFrom, f.DateTo, strconv.FormatBool(f.ExcludeWarmup), strconv.FormatBool(f.HasAttachments), choice(f.IsRead), choice(f.IsFlagged), f.Q, f.From, f.ThreadID, f.Domain, f.Folder, strconv.FormatBool(f.Threads),
	}
	return l, nil
}

// page reads the page in one snapshot of the store. scope limits the query to the requested
// mailboxes and returns when their external mail was last synced. mayMatch is false if no message
// can be in the list.
func (l *inboxList) page(scope func(*store.Tx) (synced core.Time, mayMatch bool, err error)) (*InboxPage, error) {
	position, err := page.Open(l.s.Core, l.who, l.operation, l.cursor, l.filters...)
	if err != nil {
		return nil, err
	}
	out := &InboxPage{}
	err = l.s.Store.View(func(tx *store.Tx) error {
		synced, mayMatch, err := scope(tx)
		out.SyncedAt = synced
		if mayMatch && err == nil && l.domain != "" {
			mayMatch, err = l.narrowToDomain(tx)
		}
		if err != nil || !mayMatch || l.search.MatchesNothing {
			return err
		}
		l.query.Before = parsePosition(position)
		if l.searches {
			err := l.fillFromSearch(tx)
			if errors.Is(err, store.ErrTextDamaged) {
				l.s.index.RequestRebuild()
			}
			return err
		}
		return l.walk(tx)
	})
	if err != nil {
		return nil, err
	}
	out.Page = *l.builder.Page(func(position string) string {
		return page.Seal(l.s.Core, l.who, l.operation, position, l.filters...)
	})
	return out, l.recordReading(out.Data)
}

// narrowToDomain finds the requested domain and limits the query to its mailboxes, unless there are
// more than maxMergedMailboxes. mayMatch is false if the account has no such domain, or the domain
// has no mailbox.
func (l *inboxList) narrowToDomain(tx *store.Tx) (mayMatch bool, err error) {
	d, err := core.FindDomain(tx, l.who, l.domain)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.domain = d.ID
	if len(l.query.Folders) > 0 {
		return true, nil
	}
	var mailboxes []uint32
	for _, mb := range store.MailboxesByDomain.Desc(tx, d.ID, "") {
		mailboxes = append(mailboxes, mb.Num)
		if len(mailboxes) > maxMergedMailboxes {
			return true, nil
		}
	}
	l.query.Folders = mailboxes // the number of a mailbox is also the number of its INBOX
	return len(mailboxes) > 0, nil
}

// walk fills the page from the query, without a search. It leaves out messages of mailboxes that
// are being deleted, and messages of other domains. It ends the page after maxScanned messages, or
// after it has left out maxSkipped messages of other domains.
func (l *inboxList) walk(tx *store.Tx) error {
	c, shown, scanned, skipped := &l.builder, l.newView(tx), 0, 0
	defer l.s.freeMessageView(shown)
	threads := &threadList{l, tx, map[uint32]*threadMailbox{}}
	for at := range tx.Inbox(l.query) {
		if scanned == maxScanned || skipped == maxSkipped || len(c.Data) == c.Limit && !l.threads { // with threads, continue: the next messages may belong to threads that the page has already
			c.More = true
			return nil
		}
		in, err := shown.inDomain(at.Num)
		if err != nil {
			return err
		}
		if !in {
			skipped++
			c.Last = positionText(at)
			continue
		}
		scanned++
		m, ok, err := shown.message(at)
		if err != nil {
			return err
		}
		if ok && l.threads {
			b, err := shown.folder(at.Num)
			if err == nil {
				m.Thread, ok, err = threads.summaryOf(b, at, &m)
			}
			if err != nil {
				return err
			}
		}
		switch {
		case ok && !c.Add(positionText(at), m, m.bytes()):
			return nil
		case !ok && len(c.Data) < c.Limit:
			c.Last = positionText(at)
		}
	}
	return nil
}

// newView returns a messageView for the list's domain. It withholds the texts that the reader's
// policy requires to be withheld.
func (l *inboxList) newView(tx *store.Tx) *messageView {
	w := l.s.newMessageView(tx)
	w.domain = l.domain
	if l.shownSources != nil {
		w.shownSources = l.shownSources
		w.withholds = func(words *agents.Source) (bool, error) {
			return l.s.agents.Withholds(tx, l.who.AccountID, &l.who.Policy, words)
		}
	}
	return w
}

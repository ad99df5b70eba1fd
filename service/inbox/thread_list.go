package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/inbox/indexer"
	"github.com/mailstead/mailstead/store"
)

// maxThreadMessages is how many of a thread's newest messages in one mailbox are read.
const maxThreadMessages = 500

// maxThreadAuthors is how many authors a ThreadSummary names: the most recent ones.
const maxThreadAuthors = 10

// A threadList makes the summaries of a list that has one row for each thread of a mailbox.
type threadList struct {
	l     *inboxList
	tx    *store.Tx
	boxes map[uint32]*threadMailbox // by the number of the mailbox
}

// A threadMailbox has what a threadList knows about one mailbox.
type threadMailbox struct {
	folders   []uint32                // the numbers of all folders except Junk and Trash
	ids       map[uint32]uint32       // the IDs of these folders, by number
	unindexed []threadMember          // messages that are not in the text index yet
	known     map[string]*foundThread // by thread ID
}

// A threadMember is a message and the thread in which it was filed.
type threadMember struct {
	at     store.InboxPos
	thread string
}

// A foundThread is a thread that the list has reached.
type foundThread struct {
	newest  store.InboxPos // the thread's newest message among those that the list selects
	summary ThreadSummary
}

// summaryOf returns the summary of the thread of a message that the list has reached. newest is
// false if the list has already shown a newer message of the thread.
func (t *threadList) summaryOf(b viewedFolder, at store.InboxPos, m *InboxMessage) (summary *ThreadSummary, newest bool, err error) {
	box := t.boxes[b.mailbox.Num]
	if box == nil {
		box, err = t.open(b.mailbox)
		if err != nil {
			return nil, false, err
		}
		t.boxes[b.mailbox.Num] = box
	}
	names, err := threadAliases(t.tx, b.mailbox.AccountNum, m.ThreadID)
	if err != nil {
		return nil, false, err
	}
	if len(names) == 0 { // the message has no thread
		one := &ThreadSummary{Messages: 1, From: []string{authorOf(m)}}
		if !m.IsRead {
			one.Unread = 1
		}
		return one, true, nil
	}
	found := box.known[m.ThreadID]
	if found == nil {
		found, err = t.find(b.mailbox, box, names, at)
		if err != nil {
			return nil, false, err
		}
		box.known[m.ThreadID] = found
	}
	return &found.summary, comparePositions(found.newest, at) == 0, nil
}

// open reads the folders of a mailbox and its messages that are not indexed yet.
func (t *threadList) open(mb *store.Mailbox) (*threadMailbox, error) {
	folders, err := foldersToList(t.tx, mb, allMail)
	if err != nil {
		return nil, err
	}
	box := &threadMailbox{ids: map[uint32]uint32{}, known: map[string]*foundThread{}}
	for _, f := range folders {
		box.folders = append(box.folders, f.Num)
		box.ids[f.Num] = f.ID
	}
	for m := range t.tx.UnindexedMessages(mb.AccountNum, box.folders) {
		if len(box.unindexed) == maxScanned {
			break // while the mail of an existing store is being indexed, summaries may be incomplete
		}
		meta, err := t.tx.Meta(m.Mailbox, m.Folder, m.UID)
		if err != nil {
			return nil, err
		}
		box.unindexed = append(box.unindexed, threadMember{positionOf(&m), meta.ThreadID})
	}
	return box, nil
}

// find reads up to maxThreadMessages of a thread's newest messages and summarizes them.
func (t *threadList) find(mb *store.Mailbox, box *threadMailbox, names []string, at store.InboxPos) (*foundThread, error) {
	var words []store.TextTerm
	for _, name := range names {
		words = append(words, store.TextTerm{Word: indexer.ThreadWord(name)})
	}
	index, err := t.tx.SearchInbox(store.InboxQuery{Account: mb.AccountNum, Folders: box.folders}, [][]store.TextTerm{words}, maxIndexBytes)
	if err != nil {
		return nil, err
	}
	places := []store.InboxPos{at} // at may be in Junk or Trash: such a message counts only in the list of that folder
	for place, _, ok, err := index.Next(); ok || err != nil; place, _, ok, err = index.Next() {
		if err != nil {
			return nil, err
		}
		places = append(places, place)
		if len(places) == maxThreadMessages {
			break
		}
	}
	for _, w := range box.unindexed {
		if slices.Contains(names, w.thread) {
			places = append(places, w.at)
		}
	}
	sortNewestFirst(places)
	places = slices.Compact(places)

	out := &foundThread{newest: at}
	query, first := t.l.query, true
	for _, place := range places {
		_, id := t.tx.FolderOfNum(place.Num)
		m, err := t.tx.Message(mb.Num, id, place.UID)
		if errors.Is(err, store.ErrNotFound) { // the message was deleted, but the index still has it
			continue
		}
		if err != nil {
			return nil, err
		}
		if first && t.listsFolder(place.Num) && query.Selects(m) {
			out.newest, first = place, false
		}
		out.summary.Messages++
		if m.Flags&store.FlagSeen == 0 {
			out.summary.Unread++
		}
		if len(out.summary.From) == maxThreadAuthors {
			continue
		}
		meta, err := t.tx.Meta(mb.Num, id, place.UID)
		if err != nil {
			return nil, err
		}
		part, err := msg.DecodePart(meta.Structure)
		if err != nil {
			return nil, fmt.Errorf("decode structure of message %d of %s: %w", place.UID, mb.Email, err)
		}
		if part.Envelope != nil && len(part.Envelope.From) > 0 {
			from := part.Envelope.From[0]
			name, source, err := t.nameOf(meta, &from)
			if err != nil {
				return nil, err
			}
			if source != nil {
				source.MailboxID, source.ThreadID, source.People = mb.ID, meta.ThreadID, addressesOf(part.Envelope)
				t.l.namedSources[&out.summary] = append(t.l.namedSources[&out.summary], *source)
			}
			if name != "" && !slices.Contains(out.summary.From, name) {
				out.summary.From = append(out.summary.From, name)
			}
		}
	}
	slices.Reverse(out.summary.From)
	if out.summary.From == nil {
		out.summary.From = []string{}
	}
	return out, nil
}

// nameOf returns the name of a message's author for a summary; "" if the summary leaves the author
// out. source is not nil if the name is a text that may taint the reader.
func (t *threadList) nameOf(meta *store.Meta, from *msg.Address) (name string, source *agents.Source, err error) {
	email := from.Email()
	name = msg.ShownName(from.Name)
	if t.l.shownSources == nil {
		return cmp.Or(name, email), nil, nil
	}
	w := authorship(meta, email)
	withheld, err := t.l.s.agents.Withholds(t.tx, t.l.who.AccountID, &t.l.who.Policy, &w)
	if withheld || err != nil {
		return bareAddress(email), nil, err
	}
	return cmp.Or(name, email), &w, nil
}

// listsFolder reports whether the list contains the folder with the number num.
func (t *threadList) listsFolder(num uint32) bool {
	if len(t.l.query.Folders) > 0 {
		return slices.Contains(t.l.query.Folders, num)
	}
	_, id := t.tx.FolderOfNum(num)
	return id == store.InboxID
}

// authorOf returns the name of a message's author, or else the address.
func authorOf(m *InboxMessage) string {
	if m.FromName != nil {
		return *m.FromName
	}
	return m.FromEmail
}

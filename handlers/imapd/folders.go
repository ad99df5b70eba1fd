package imapd

import (
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service/inbox"
)

const delimiter = '/'

// Namespace says that all folders are the user's own (RFC 2342).
func (ss *session) Namespace() (*imap.NamespaceData, error) {
	return &imap.NamespaceData{Personal: []imap.NamespaceDescriptor{{Prefix: "", Delim: delimiter}}}, nil
}

// Select opens a folder.
func (ss *session) Select(name string, options *imap.SelectOptions) (*imap.SelectData, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s, err := ss.server.Service.SelectFolder(ss.conn.ctx, ss.user, name)
	if err != nil {
		return nil, ss.replyError(err)
	}
	sel := &selected{
		folder: s.Folder.ID, readOnly: options.ReadOnly, view: s.UIDs, uidNext: s.Folder.UIDNext, modSeq: s.Folder.ModSeq,
		ownChanges: map[uint32]uint64{}, keywords: s.Keywords,
	}
	ss.selected = sel
	ss.writeHighestModSeq(s.Folder.ModSeq)
	data := &imap.SelectData{
		Flags: folderFlags(s.Keywords), PermanentFlags: []imap.Flag{}, NumMessages: uint32(len(s.UIDs)),
		UIDNext: imap.UID(s.Folder.UIDNext), UIDValidity: s.Folder.UIDValidity,
	}
	if s.FirstUnseen != 0 {
		data.FirstUnseenSeqNum = sel.view.seq(s.FirstUnseen)
	}
	if !options.ReadOnly {
		data.PermanentFlags = append(slices.Clone(data.Flags), imap.FlagWildcard)
	}
	if ss.imapConn.EnabledCaps().Has(imap.CapIMAP4rev2) {
		data.List = &imap.ListData{Mailbox: s.Folder.Name, Delim: delimiter}
	}
	return data, nil
}

// Unselect closes the folder.
func (ss *session) Unselect() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.selected = nil
	return nil
}

// Create makes a folder.
func (ss *session) Create(name string, options *imap.CreateOptions) error {
	if len(options.SpecialUse) > 1 {
		return refused("USEATTR", "A folder has one role")
	}
	use := ""
	if len(options.SpecialUse) == 1 {
		use = string(options.SpecialUse[0])
	}
	return ss.replyError(ss.server.Service.CreateFolder(ss.conn.ctx, ss.user, name, use))
}

// Delete deletes a folder with its messages.
func (ss *session) Delete(name string) error {
	return ss.replyError(ss.server.Service.DeleteFolder(ss.conn.ctx, ss.user, name))
}

// Rename renames a folder and those below it.
func (ss *session) Rename(name, to string, _ *imap.RenameOptions) error {
	return ss.replyError(ss.server.Service.RenameFolder(ss.conn.ctx, ss.user, name, to))
}

// Subscribe marks a folder as one to show.
func (ss *session) Subscribe(name string) error {
	return ss.replyError(ss.server.Service.Subscribe(ss.conn.ctx, ss.user, name, true))
}

// Unsubscribe takes the mark away.
func (ss *session) Unsubscribe(name string) error {
	return ss.replyError(ss.server.Service.Subscribe(ss.conn.ctx, ss.user, name, false))
}

// Status gives counters of a folder.
func (ss *session) Status(name string, options *imap.StatusOptions) (*imap.StatusData, error) {
	f, err := ss.server.Service.FolderByName(ss.conn.ctx, ss.user, name)
	if err != nil {
		return nil, ss.replyError(err)
	}
	data, err := ss.status(f, options)
	return data, ss.replyError(err)
}

func (ss *session) status(f *inbox.Folder, options *imap.StatusOptions) (*imap.StatusData, error) {
	limit, recent := uint32(AppendLimit), uint32(0)
	data := &imap.StatusData{
		Mailbox: f.Name, NumMessages: &f.Messages, NumRecent: &recent, UIDNext: imap.UID(f.UIDNext),
		UIDValidity: f.UIDValidity, NumUnseen: &f.Unseen, Size: &f.Bytes, AppendLimit: &limit,
	}
	if ss.extensions.highestModSeq {
		text := " HIGHESTMODSEQ " + strconv.FormatUint(f.ModSeq, 10)
		if *options == (imap.StatusOptions{}) {
			text = text[1:]
		}
		ss.conn.patchEnd("* STATUS ", ")\r\n", text)
	}
	if !options.NumDeleted && !options.DeletedStorage {
		return data, nil
	}
	n, size, err := ss.server.Service.CountDeleted(ss.conn.ctx, ss.user, f.ID)
	data.NumDeleted, data.DeletedStorage = &n, &size
	return data, err
}

// List lists folders (RFC 9051 section 6.3.9).
func (ss *session) List(w *imapserver.ListWriter, ref string, patterns []string, options *imap.ListOptions) error {
	if len(patterns) == 0 {
		return w.WriteList(&imap.ListData{Attrs: []imap.MailboxAttr{imap.MailboxAttrNoSelect}, Delim: delimiter})
	}
	match, err := newPatterns(ref, patterns)
	if err != nil {
		return err
	}
	folders, err := ss.server.Service.Folders(ss.conn.ctx, ss.user)
	if err != nil {
		return ss.replyError(err)
	}
	// A folder comes right before those below it, INBOX before all.
	slices.SortFunc(folders, func(a, b *inbox.Folder) int {
		if a.Name == "INBOX" || b.Name == "INBOX" {
			return boolRank(b.Name == "INBOX") - boolRank(a.Name == "INBOX")
		}
		return strings.Compare(a.Name, b.Name)
	})
	tree := newTree(folders, match)
	for _, f := range folders {
		if !match.has(f.Name) {
			continue
		}
		data := tree.describe(f, options)
		if data == nil {
			continue
		}
		if options.ReturnStatus != nil {
			if data.Status, err = ss.status(f, options.ReturnStatus); err != nil {
				return ss.replyError(err)
			}
		}
		if err := w.WriteList(data); err != nil {
			return err
		}
	}
	if options.SelectSubscribed {
		return ss.listSubscribed(w, match, folders)
	}
	return nil
}

// listSubscribed lists the subscriptions for which there is no folder. LSUB also lists names above
// subscribed ones at which "%" has stopped (RFC 3501 section 6.3.9).
func (ss *session) listSubscribed(w *imapserver.ListWriter, match patterns, folders []*inbox.Folder) error {
	names, err := ss.server.Service.SubscribedNames(ss.conn.ctx, ss.user)
	if err != nil {
		return ss.replyError(err)
	}
	attrs := []imap.MailboxAttr{imap.MailboxAttrNonExistent, imap.MailboxAttrSubscribed}
	if ss.extensions.verb == "LSUB" {
		attrs = []imap.MailboxAttr{imap.MailboxAttrNoSelect}
		names = append(names, levelsAbove(names, folders, match)...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !match.has(name) {
			continue
		}
		if err := w.WriteList(&imap.ListData{Mailbox: name, Delim: delimiter, Attrs: attrs}); err != nil {
			return err
		}
	}
	return nil
}

// levelsAbove gives the names above subscribed ones that are not subscribed themselves and at which
// a pattern stops.
func levelsAbove(names []string, folders []*inbox.Folder, match patterns) []string {
	subscribed := slices.Clone(names)
	for _, f := range folders {
		if f.Subscribed {
			subscribed = append(subscribed, f.Name)
		}
	}
	slices.Sort(subscribed)
	var above []string
	for _, name := range subscribed {
		for i := range name {
			if name[i] != delimiter || !match.stopsAt(name[:i]) {
				continue
			}
			if _, is := slices.BinarySearch(subscribed, name[:i]); !is {
				above = append(above, name[:i])
			}
		}
	}
	return above
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A tree knows what is below each folder.
type tree struct {
	children   map[string]bool // has any
	subscribed map[string]bool // has one, at any depth, that is subscribed and not listed itself
}

func newTree(folders []*inbox.Folder, match patterns) tree {
	t := tree{children: map[string]bool{}, subscribed: map[string]bool{}}
	for _, f := range folders {
		// CHILDINFO reports what the answer does not list itself (RFC 5258 section 4).
		hidden := f.Subscribed && !match.has(f.Name)
		for i := range f.Name {
			if f.Name[i] == delimiter {
				t.children[f.Name[:i]] = true
				t.subscribed[f.Name[:i]] = t.subscribed[f.Name[:i]] || hidden
			}
		}
	}
	return t
}

// describe gives the LIST answer for a folder, nil if the options leave it out.
func (t tree) describe(f *inbox.Folder, options *imap.ListOptions) *imap.ListData {
	data := &imap.ListData{Mailbox: f.Name, Delim: delimiter}
	below := options.SelectRecursiveMatch && t.subscribed[f.Name]
	if options.SelectSubscribed && !f.Subscribed && !below || options.SelectSpecialUse && f.SpecialUse == "" {
		return nil
	}
	if below {
		data.ChildInfo = &imap.ListDataChildInfo{Subscribed: true}
	}
	attr := imap.MailboxAttrHasNoChildren
	if t.children[f.Name] {
		attr = imap.MailboxAttrHasChildren
	}
	data.Attrs = append(data.Attrs, attr)
	if f.Subscribed && (options.SelectSubscribed || options.ReturnSubscribed) {
		data.Attrs = append(data.Attrs, imap.MailboxAttrSubscribed)
	}
	if f.SpecialUse != "" {
		data.Attrs = append(data.Attrs, imap.MailboxAttr(f.SpecialUse))
	}
	return data
}

package imapd

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/service/inbox"
)

const delimiter = '/'

// Namespace reports that all folders are the user's own (RFC 2342).
func (ss *session) Namespace() (*imap.NamespaceData, error) {
	return &imap.NamespaceData{Personal: []imap.NamespaceDescriptor{{Prefix: "", Delim: delimiter}}}, nil
}

// Select opens a folder.
func (ss *session) Select(name string, options *imap.SelectOptions) (*imap.SelectData, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.server.Service.Inbound.WaitFiled(ss.conn.ctx, ss.user.Mailbox)
	s, err := ss.server.Service.Inbox.SelectFolder(ss.conn.ctx, ss.user, name)
	if err != nil {
		return nil, ss.replyError(err)
	}
	sel := &selected{
		folder: s.Folder.ID, readOnly: options.ReadOnly, view: s.UIDs, uidNext: s.Folder.UIDNext, modSeq: s.Folder.ModSeq, reportedUpTo: s.Folder.ModSeq,
		ownChanges: map[uint32]uint64{}, keywords: s.Keywords,
	}
	ss.selected = sel
	ss.writeHighestModSeq(s.Folder.ModSeq)
	ss.conn.writeReply("* OK [%s] Ok", mailboxID(&s.Folder))
	if r := ss.extensions.resync; r != nil && r.validity == s.Folder.UIDValidity {
		ss.conn.holdTaggedOK("OK [READ-", func() error { return ss.resync(r) })
	}
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

// Unselect closes the selected folder.
func (ss *session) Unselect() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.selected = nil
	return nil
}

// Create creates a folder.
func (ss *session) Create(name string, options *imap.CreateOptions) error {
	if len(options.SpecialUse) > 1 {
		return refusal("USEATTR", "A folder has one role")
	}
	use := ""
	if len(options.SpecialUse) == 1 {
		use = string(options.SpecialUse[0])
	}
	f, err := ss.server.Service.Inbox.CreateFolder(ss.conn.ctx, ss.user, name, use)
	if err == nil {
		ss.conn.patchEnd(ss.conn.tag+" OK ", "CREATE completed\r\n", "["+mailboxID(f)+"] ")
	}
	return ss.replyError(err)
}

// Delete deletes a folder with its messages. If the folder is selected, it is closed. The parser
// does not notice that, so checkSelected refuses commands that need a selected folder.
func (ss *session) Delete(name string) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	isOpen := false
	if ss.selected != nil {
		f, err := ss.server.Service.Inbox.FolderByName(ss.conn.ctx, ss.user, name)
		isOpen = err == nil && f.ID == ss.selected.folder
	}
	err := ss.server.Service.Inbox.DeleteFolder(ss.conn.ctx, ss.user, name)
	if err == nil && isOpen {
		ss.selected = nil
	}
	return ss.replyError(err)
}

// needsSelected are the commands that need a selected folder.
var needsSelected = map[string]bool{
	"CHECK": true, "CLOSE": true, "UNSELECT": true, "EXPUNGE": true, "UID EXPUNGE": true,
	"FETCH": true, "UID FETCH": true, "STORE": true, "UID STORE": true, "SEARCH": true, "UID SEARCH": true,
	"SORT": true, "UID SORT": true, "THREAD": true, "UID THREAD": true,
	"COPY": true, "UID COPY": true, "MOVE": true, "UID MOVE": true, "REPLACE": true, "UID REPLACE": true,
}

// checkSelected refuses a command that needs a selected folder if there is none.
func (ss *session) checkSelected(verb string) error {
	if !needsSelected[verb] || ss.user.MailboxID == "" {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.selected == nil {
		return badCommand("Select a folder first")
	}
	return nil
}

// Rename renames a folder and the folders below it.
func (ss *session) Rename(name, to string, _ *imap.RenameOptions) error {
	return ss.replyError(ss.server.Service.Inbox.RenameFolder(ss.conn.ctx, ss.user, name, to))
}

// Subscribe subscribes to a folder.
func (ss *session) Subscribe(name string) error {
	return ss.replyError(ss.server.Service.Inbox.Subscribe(ss.conn.ctx, ss.user, name, true))
}

// Unsubscribe removes the subscription to a folder.
func (ss *session) Unsubscribe(name string) error {
	return ss.replyError(ss.server.Service.Inbox.Subscribe(ss.conn.ctx, ss.user, name, false))
}

// Status returns the counters of a folder.
func (ss *session) Status(name string, options *imap.StatusOptions) (*imap.StatusData, error) {
	ss.server.Service.Inbound.WaitFiled(ss.conn.ctx, ss.user.Mailbox)
	f, err := ss.server.Service.Inbox.FolderByName(ss.conn.ctx, ss.user, name)
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
	text := ""
	if ss.extensions.highestModSeq {
		text += " HIGHESTMODSEQ " + strconv.FormatUint(f.ModSeq, 10)
	}
	if ss.extensions.mailboxID {
		text += " " + mailboxID(f)
	}
	if *options == (imap.StatusOptions{}) {
		text = strings.TrimPrefix(text, " ")
	}
	if text != "" {
		ss.conn.patchEnd("* STATUS ", ")\r\n", text)
	}
	if !options.NumDeleted && !options.DeletedStorage {
		return data, nil
	}
	n, size, err := ss.server.Service.Inbox.CountDeleted(ss.conn.ctx, ss.user, f.ID)
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
	folders, err := ss.server.Service.Inbox.Folders(ss.conn.ctx, ss.user)
	if err != nil {
		return ss.replyError(err)
	}
	// A folder comes right before the folders below it, and INBOX comes first.
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
			data.Status, err = ss.status(f, options.ReturnStatus)
			if err != nil {
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

// listSubscribed lists the subscriptions without a folder. LSUB also lists the parents of
// subscribed names at which "%" stops (RFC 3501 section 6.3.9).
func (ss *session) listSubscribed(w *imapserver.ListWriter, match patterns, folders []*inbox.Folder) error {
	names, err := ss.server.Service.Inbox.SubscribedNames(ss.conn.ctx, ss.user)
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

// levelsAbove returns the parents of subscribed names that are not subscribed themselves and at
// which a pattern stops.
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

// A tree says what is below each folder; its keys are folder names.
type tree struct {
	children map[string]bool // the folder has children
	// A folder below it, at any depth, is subscribed and not listed itself.
	subscribed map[string]bool
}

func newTree(folders []*inbox.Folder, match patterns) tree {
	t := tree{children: map[string]bool{}, subscribed: map[string]bool{}}
	for _, f := range folders {
		// CHILDINFO reports only subscriptions that the reply does not list (RFC 5258 section 4).
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

// describe returns the LIST reply for a folder, nil if the options exclude it.
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

const (
	maxPatterns    = 50
	maxPatternText = 2000 // bytes of all patterns of one LIST
)

// patterns are the patterns of one LIST, each with the reference prepended.
type patterns []string

func newPatterns(ref string, list []string) (patterns, error) {
	out, size := patterns{}, 0
	for _, p := range list {
		p = norm.NFC.String(ref + p) // the form in which names are stored
		// go-imap folds INBOX in names but not in patterns.
		if top, _, _ := strings.Cut(p, string(delimiter)); strings.EqualFold(top, "INBOX") {
			p = "INBOX" + p[len(top):]
		}
		size += len(p)
		out = append(out, p)
	}
	if size > maxPatternText || len(out) > maxPatterns {
		return nil, badCommand("The patterns are too long")
	}
	return out, nil
}

func (p patterns) has(name string) bool {
	for _, pattern := range p {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}

// stopsAt reports whether a pattern matches the name and no name below it.
func (p patterns) stopsAt(name string) bool {
	return p.has(name) && !p.has(name+string(delimiter)+"x")
}

// matches reports whether a name matches a pattern, in which "*" matches any text and "%" any text
// without a separator (RFC 3501 section 6.3.8). Its time is proportional to the product of the
// lengths; backtracking could take exponential time.
func matches(pattern, name string) bool {
	// at[i] reports whether the pattern so far matches name[:i].
	at := make([]bool, len(name)+1)
	at[0] = true
	for _, c := range []byte(pattern) {
		if c == '*' || c == '%' {
			for i := 1; i <= len(name); i++ {
				at[i] = at[i] || at[i-1] && (c == '*' || name[i-1] != delimiter)
			}
			continue
		}
		for i := len(name); i > 0; i-- {
			at[i] = at[i-1] && name[i-1] == c
		}
		at[0] = false
	}
	return at[len(name)]
}

// modifiedBase64 is the base64 of folder names in modified UTF-7 (RFC 3501 section 5.1.3).
var modifiedBase64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// unreadableName replaces a folder name that cannot be decoded: no folder can have this name.
const unreadableName = `"#unreadable"`

// nameArgs maps each command to the token positions of its folder names. replaceNames finds those
// of LIST and LSUB itself.
var nameArgs = map[string][]int{
	"SELECT": {2}, "EXAMINE": {2}, "CREATE": {2}, "DELETE": {2}, "RENAME": {2, 3}, "SUBSCRIBE": {2}, "UNSUBSCRIBE": {2},
	"STATUS": {2}, "APPEND": {2}, "REPLACE": {3}, "UID REPLACE": {4}, "GETQUOTAROOT": {2}, "COPY": {3}, "MOVE": {3}, "UID COPY": {4}, "UID MOVE": {4},
}

// replaceNames returns a command with its folder names in modified UTF-7, as the parser expects
// them. If inUTF8 is set, an "&" in a name is a plain "&". A name that cannot be decoded becomes
// one that no folder has: the command is well formed, so the reply must be NO, but the parser would
// reply BAD.
func replaceNames(verb string, text []byte, inUTF8 bool) []byte {
	p, at, replacement := newCommandEditor(text), nameArgs[verb], unreadableName
	if verb == "LIST" || verb == "LSUB" {
		// Too long for a folder even without a reference before it.
		replacement = quoted(strings.Repeat("#", 256))
		for i := 2; i < len(p.tokens) && p.word(i) != "RETURN"; i++ {
			at = append(at, i)
		}
	}
	for _, i := range at {
		name, ok := p.value(i)
		if !ok {
			continue
		}
		escaped := name
		if inUTF8 {
			escaped = strings.ReplaceAll(name, "&", "&-")
		}
		if _, ok := decodeName(escaped); !ok {
			p.replace(i, i, replacement)
		} else if escaped != name {
			p.replace(i, i, quoted(escaped))
		}
	}
	if len(p.edits) == 0 {
		return text
	}
	return p.result()
}

// decodeName decodes a folder name as replaceNames leaves it: modified UTF-7 that may contain
// UTF-8. It accepts the names that go-imap accepts; false for others.
func decodeName(text string) (string, bool) {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	var out strings.Builder
	for shiftedBefore := false; ; {
		plain, rest, found := strings.Cut(text, "&")
		out.WriteString(plain)
		if !found {
			return out.String(), true
		}
		shifted, after, closed := strings.Cut(rest, "-")
		switch {
		case !closed, shifted != "" && shiftedBefore && plain == "": // two adjacent shifts could be one
			return "", false
		case shifted == "":
			out.WriteByte('&')
		case !decodeShifted(&out, shifted):
			return "", false
		}
		text, shiftedBefore = after, shifted != ""
	}
}

// decodeShifted decodes UTF-16 in modified base64. Printable ASCII is an error, since it must not
// be encoded.
func decodeShifted(out *strings.Builder, shifted string) bool {
	raw, err := modifiedBase64.DecodeString(shifted)
	if err != nil || len(raw) == 0 || len(raw)%2 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 2 {
		r := rune(raw[i])<<8 | rune(raw[i+1])
		if utf16.IsSurrogate(r) {
			i += 2
			if i == len(raw) {
				return false
			}
			r = utf16.DecodeRune(r, rune(raw[i])<<8|rune(raw[i+1]))
			if r == utf8.RuneError {
				return false
			}
		}
		if r >= ' ' && r < 0x7f {
			return false
		}
		out.WriteRune(r)
	}
	return true
}

package imapd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// delimiter separates the levels of folder names.
const delimiter = '/'

// namespace answers NAMESPACE (RFC 2342): there is only the namespace of the user's own folders.
func (ss *session) namespace(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	ss.conn.WriteLine(`* NAMESPACE (("" "%c")) NIL NIL`, delimiter)
	return nil
}

// specialUses are the special-use attributes that CREATE can set (RFC 6154 section 2). Clients may
// write them in any case.
var specialUses = []imap.MailboxAttr{
	imap.MailboxAttrAll, imap.MailboxAttrArchive, imap.MailboxAttrDrafts, imap.MailboxAttrFlagged, imap.MailboxAttrImportant,
	imap.MailboxAttrJunk, imap.MailboxAttrSent, imap.MailboxAttrTrash,
}

// create answers CREATE (RFC 9051 section 6.3.4), also with a role (RFC 6154 section 3).
func (ss *session) create(p *wire.Command) error {
	p.Space()
	name := p.Folder()
	var uses []string
	if p.More() {
		p.Space()
		p.Expect('(')
		if p.Word() != "USE" {
			p.Fail(wire.Bad("The parameter of CREATE is not known"))
		}
		p.Space()
		for _, flag := range p.Flags() {
			use := string(flag)
			for _, role := range specialUses {
				if strings.EqualFold(string(role), use) {
					use = string(role)
				}
			}
			uses = append(uses, use)
		}
		p.Expect(')')
	}
	if err := p.End(); err != nil {
		return err
	}
	use := ""
	switch len(uses) {
	case 0:
	case 1:
		use = uses[0]
	default:
		return wire.No("USEATTR", "A folder has one role")
	}
	f, err := ss.server.Service.Inbox.CreateFolder(ss.ctx, ss.user, name, use)
	if err != nil {
		return err
	}
	ss.code = mailboxIDCode(f)
	return nil
}

// mailboxIDCode returns the response code MAILBOXID of a folder (RFC 8474 section 4).
func mailboxIDCode(f *inbox.Folder) string { return "MAILBOXID (" + inbox.MailboxID(f) + ")" }

// delete answers DELETE (RFC 9051 section 6.3.5). It deletes the folder with its messages. If the
// folder is selected, no folder is selected afterwards.
func (ss *session) delete(p *wire.Command) error {
	p.Space()
	name := p.Folder()
	if err := p.End(); err != nil {
		return err
	}
	isSelected := false
	if ss.selected != nil {
		f, err := ss.server.Service.Inbox.FolderByName(ss.ctx, ss.user, name)
		isSelected = err == nil && f.ID == ss.selected.folder
	}
	if err := ss.server.Service.Inbox.DeleteFolder(ss.ctx, ss.user, name); err != nil {
		return err
	}
	if isSelected {
		ss.selected = nil
	}
	return nil
}

// rename answers RENAME (RFC 9051 section 6.3.6). It also renames the folders below.
func (ss *session) rename(p *wire.Command) error {
	p.Space()
	from := p.Folder()
	p.Space()
	to := p.Folder()
	if err := p.End(); err != nil {
		return err
	}
	return ss.server.Service.Inbox.RenameFolder(ss.ctx, ss.user, from, to)
}

// subscribe answers SUBSCRIBE and UNSUBSCRIBE (RFC 9051 sections 6.3.7 and 6.3.8).
func (ss *session) subscribe(p *wire.Command) error {
	p.Space()
	name := p.Folder()
	if err := p.End(); err != nil {
		return err
	}
	return ss.server.Service.Inbox.Subscribe(ss.ctx, ss.user, name, p.Name == "SUBSCRIBE")
}

// statusItems has the items that a client wants from STATUS, by name.
type statusItems map[string]bool

// statusOrder has all items of STATUS in the order in which an answer has them (RFC 9051 section
// 7.3.4; RECENT: RFC 3501; DELETED-STORAGE: RFC 9208; HIGHESTMODSEQ: RFC 7162; MAILBOXID: RFC
// 8474).
var statusOrder = []string{
	"MESSAGES", "UIDNEXT", "UIDVALIDITY", "UNSEEN", "DELETED", "SIZE", "APPENDLIMIT", "DELETED-STORAGE", "RECENT",
	"HIGHESTMODSEQ", "MAILBOXID",
}

func parseStatusItems(p *wire.Command) statusItems {
	items := statusItems{}
	p.ReadList(func() {
		name := p.Word()
		if !slices.Contains(statusOrder, name) || items[name] {
			p.Fail(wire.Bad("STATUS does not know that item, or it is named twice"))
		}
		items[name] = true
	})
	return items
}

// status answers STATUS (RFC 9051 section 6.3.11).
func (ss *session) status(p *wire.Command) error {
	p.Space()
	name := p.Folder()
	p.Space()
	items := parseStatusItems(p)
	if err := p.End(); err != nil {
		return err
	}
	ss.server.Service.Inbound.WaitFiled(ss.ctx, ss.user.Mailbox)
	f, err := ss.server.Service.Inbox.FolderByName(ss.ctx, ss.user, name)
	if err != nil {
		return err
	}
	if items["HIGHESTMODSEQ"] {
		ss.enableCondStore()
	}
	return ss.writeStatus(f, items)
}

// writeStatus writes the STATUS answer of a folder.
func (ss *session) writeStatus(f *inbox.Folder, items statusItems) error {
	var deleted uint32
	var deletedBytes int64
	if items["DELETED"] || items["DELETED-STORAGE"] {
		var err error
		deleted, deletedBytes, err = ss.server.Service.Inbox.CountDeleted(ss.ctx, ss.user, f.ID)
		if err != nil {
			return err
		}
	}
	var texts []string
	for _, name := range statusOrder {
		if !items[name] {
			continue
		}
		value := ""
		switch name {
		case "MESSAGES":
			value = fmt.Sprint(f.Messages)
		case "UIDNEXT":
			value = fmt.Sprint(f.UIDNext)
		case "UIDVALIDITY":
			value = fmt.Sprint(f.UIDValidity)
		case "UNSEEN":
			value = fmt.Sprint(f.Unseen)
		case "DELETED":
			value = fmt.Sprint(deleted)
		case "SIZE":
			value = fmt.Sprint(f.Bytes)
		case "APPENDLIMIT":
			value = fmt.Sprint(AppendLimit)
		case "DELETED-STORAGE":
			value = fmt.Sprint(deletedBytes)
		case "RECENT":
			value = "0" // this server never sets \Recent
		case "HIGHESTMODSEQ":
			value = fmt.Sprint(f.ModSeq)
		case "MAILBOXID":
			value = "(" + inbox.MailboxID(f) + ")"
		}
		texts = append(texts, name+" "+value)
	}
	ss.conn.WriteLine("* STATUS %s (%s)", ss.conn.Folder(f.Name), strings.Join(texts, " "))
	return nil
}

// listOptions are the selection options and return options of a LIST (RFC 5258).
type listOptions struct {
	subscribed, recursive, specialUse bool        // selection options
	returnSubscribed                  bool        // return option SUBSCRIBED
	status                            statusItems // items of the return option STATUS; nil: not given
}

// list answers LIST (RFC 9051 section 6.3.9) and LSUB (RFC 3501 section 6.3.9).
func (ss *session) list(p *wire.Command) error {
	lsub := p.Name == "LSUB"
	options := listOptions{subscribed: lsub}
	p.Space()
	if p.Next('(') && !lsub {
		p.ReadList(func() {
			switch strings.ToUpper(p.AString()) {
			case "SUBSCRIBED":
				options.subscribed = true
			case "RECURSIVEMATCH":
				options.recursive = true
			case "SPECIAL-USE":
				options.specialUse = true
			case "REMOTE": // there are no remote folders
			default:
				p.Fail(wire.Bad("LIST does not know that selection option"))
			}
		})
		p.Space()
	}
	reference := p.Folder()
	p.Space()
	var texts []string
	if p.Next('(') && !lsub {
		p.ReadList(func() { texts = append(texts, p.Pattern()) })
		texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
		if len(texts) == 0 {
			p.Fail(wire.Bad("A list of patterns has at least one"))
		}
	} else if text := p.Pattern(); text != "" || lsub {
		texts = append(texts, text)
	}
	if p.More() && !lsub {
		p.Space()
		if p.Word() != "RETURN" {
			p.Fail(wire.Bad("RETURN is missing before the return options"))
		}
		p.Space()
		p.ReadList(func() {
			switch p.Word() {
			case "SUBSCRIBED":
				options.returnSubscribed = true
			case "CHILDREN", "SPECIAL-USE": // every answer has these attributes
			case "STATUS":
				p.Space()
				options.status = parseStatusItems(p)
			default:
				p.Fail(wire.Bad("LIST does not know that return option"))
			}
		})
	}
	if options.recursive && !options.subscribed {
		p.Fail(wire.Bad("RECURSIVEMATCH needs SUBSCRIBED")) // RFC 5258 section 3.1
	}
	if err := p.End(); err != nil {
		return err
	}

	if len(texts) == 0 { // the client asks only for the delimiter
		ss.writeFolder(p.Name, `\Noselect`, "", "")
		return nil
	}
	match, err := newPatterns(reference, texts)
	if err != nil {
		return err
	}
	if options.status["HIGHESTMODSEQ"] {
		ss.enableCondStore()
	}
	folders, err := ss.server.Service.Inbox.Folders(ss.ctx, ss.user)
	if err != nil {
		return err
	}
	// A folder comes right before the folders below it, and INBOX comes first.
	slices.SortFunc(folders, func(a, b *inbox.Folder) int {
		if a.Name == "INBOX" || b.Name == "INBOX" {
			return boolToInt(b.Name == "INBOX") - boolToInt(a.Name == "INBOX")
		}
		return strings.Compare(a.Name, b.Name)
	})
	tree := newFolderTree(folders, match)
	for _, f := range folders {
		below := options.recursive && tree.subscribed[f.Name]
		if !match.matchesName(f.Name) || options.subscribed && !f.Subscribed && !below || options.specialUse && f.SpecialUse == "" {
			continue
		}
		attrs := `\HasNoChildren`
		if tree.children[f.Name] {
			attrs = `\HasChildren`
		}
		if f.Subscribed && (options.subscribed || options.returnSubscribed) {
			attrs += ` \Subscribed`
		}
		if f.SpecialUse != "" {
			attrs += " " + f.SpecialUse
		}
		info := ""
		if below {
			info = ` (CHILDINFO ("SUBSCRIBED"))` // RFC 5258 section 4
		}
		ss.writeFolder(p.Name, attrs, f.Name, info)
		if options.status != nil {
			if err := ss.writeStatus(f, options.status); err != nil {
				return err
			}
		}
	}
	if options.subscribed {
		return ss.listSubscribed(p.Name, match, folders)
	}
	return nil
}

// writeFolder writes a LIST or LSUB answer.
func (ss *session) writeFolder(verb, attrs, name, info string) {
	ss.conn.WriteLine(`* %s (%s) "%c" %s%s`, verb, attrs, delimiter, ss.conn.Folder(name), info)
}

// listSubscribed lists subscribed names that have no folder. LSUB also lists their parents where
// the pattern ends with "%" (RFC 3501 section 6.3.9).
func (ss *session) listSubscribed(verb string, match patterns, folders []*inbox.Folder) error {
	names, err := ss.server.Service.Inbox.SubscribedNames(ss.ctx, ss.user)
	if err != nil {
		return err
	}
	attrs := `\NonExistent \Subscribed`
	if verb == "LSUB" {
		attrs = `\Noselect`
		names = append(names, unsubscribedParents(names, folders, match)...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if match.matchesName(name) {
			ss.writeFolder(verb, attrs, name, "")
		}
	}
	return nil
}

// unsubscribedParents returns the parents of subscribed names that are not subscribed themselves.
// It returns only those where a pattern stops (see stopsAt).
func unsubscribedParents(names []string, folders []*inbox.Folder, match patterns) []string {
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

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A folderTree tells what is below each folder, by the folder's name.
type folderTree struct {
	children map[string]bool // the folder has children
	// A folder at any level below is subscribed, and is not in the list itself.
	subscribed map[string]bool
}

func newFolderTree(folders []*inbox.Folder, match patterns) folderTree {
	t := folderTree{children: map[string]bool{}, subscribed: map[string]bool{}}
	for _, f := range folders {
		// CHILDINFO counts only subscribed folders that the answer does not list (RFC 5258
		// section 4).
		hidden := f.Subscribed && !match.matchesName(f.Name)
		for i := range f.Name {
			if f.Name[i] == delimiter {
				t.children[f.Name[:i]] = true
				t.subscribed[f.Name[:i]] = t.subscribed[f.Name[:i]] || hidden
			}
		}
	}
	return t
}

const (
	maxPatterns    = 50   // patterns of one LIST
	maxPatternText = 2000 // bytes of all patterns of one LIST
)

// patterns are the patterns of one LIST, each with the reference name before it.
type patterns []string

// newPatterns joins the reference name with each pattern. It returns an error if the patterns are
// too many or too long.
func newPatterns(ref string, list []string) (patterns, error) {
	out, size := patterns{}, 0
	for _, p := range list {
		p = norm.NFC.String(ref + p) // names are stored in NFC
		if top, _, _ := strings.Cut(p, string(delimiter)); strings.EqualFold(top, "INBOX") {
			p = "INBOX" + p[len(top):]
		}
		size += len(p)
		out = append(out, p)
	}
	if size > maxPatternText || len(out) > maxPatterns {
		return nil, wire.Bad("The patterns are too long")
	}
	return out, nil
}

// matchesName reports whether any of the patterns matches the name.
func (p patterns) matchesName(name string) bool {
	for _, pattern := range p {
		if matches(pattern, name) {
			return true
		}
	}
	return false
}

// stopsAt reports whether a pattern matches the name but no name below it, as "%" does.
func (p patterns) stopsAt(name string) bool {
	return p.matchesName(name) && !p.matchesName(name+string(delimiter)+"x")
}

// matches reports whether a name matches a pattern. "*" matches any text, and "%" any text without
// a delimiter (RFC 3501 section 6.3.8). The time is at most proportional to the product of both
// lengths; backtracking could take exponential time.
func matches(pattern, name string) bool {
	// at[i] is true if the pattern up to the current character matches name[:i].
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

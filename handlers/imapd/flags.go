package imapd

import (
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// systemFlags are the system flags (RFC 9051 section 2.3.2) and their bits in the store.
var systemFlags = [...]struct {
	name imap.Flag
	bit  inbox.Flags
}{
	{imap.FlagAnswered, inbox.FlagAnswered},
	{imap.FlagFlagged, inbox.FlagFlagged},
	{imap.FlagDeleted, inbox.FlagDeleted},
	{imap.FlagSeen, inbox.FlagSeen},
	{imap.FlagDraft, inbox.FlagDraft},
}

// flagLists has the list of names for every set of system flags. The index is the bits of the set.
var flagLists = func() (lists [32][]imap.Flag) {
	for set := range lists {
		lists[set] = []imap.Flag{}
		for _, f := range systemFlags {
			if inbox.Flags(set)&f.bit != 0 {
				lists[set] = append(lists[set], f.name)
			}
		}
	}
	return lists
}()

// parseFlags splits the flags that a client sent into system flags and keywords. It refuses unknown
// system flags. \Recent is one of them: only a server may set it, and IMAP4rev2 no longer has it.
func parseFlags(list []imap.Flag) (flags inbox.Flags, keywords []string, err error) {
	for _, f := range list {
		bit := systemBit(f)
		switch {
		case bit != 0:
			flags |= bit
		case strings.HasPrefix(string(f), `\`):
			return 0, nil, wire.Bad("A client cannot set the flag %s", printableASCII(string(f)))
		case printableASCII(string(f)) != string(f):
			return 0, nil, wire.Bad("A keyword is ASCII")
		default:
			keywords = append(keywords, string(f))
		}
	}
	return flags, keywords, nil
}

// systemBit returns the bit of a system flag, 0 for a keyword.
func systemBit(f imap.Flag) inbox.Flags {
	for _, s := range systemFlags {
		if strings.EqualFold(string(s.name), string(f)) {
			return s.bit
		}
	}
	return 0
}

// folderFlags returns the text of a FLAGS answer: all system flags, and the keywords in use.
func folderFlags(keywords []string) string {
	return strings.Join(append([]string{flagTexts[len(flagTexts)-1]}, keywords...), " ")
}

// flagTexts has a text for every set of system flags: their names with spaces between them. The
// index is the bits of the set.
var flagTexts = func() (texts [32]string) {
	for set, list := range flagLists {
		for i, f := range list {
			texts[set] += " "[:min(i, 1)] + string(f)
		}
	}
	return texts
}()

// Package maildir reads and writes Maildirs whose folders are laid out as in Maildir++: ".Name" and
// ".Name.Below" beside cur, new and tmp. Names are in modified UTF-7 (RFC 3501 section 5.1.3). The
// package does not know where messages come from or go to.
package maildir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
	"unicode/utf8"
)

// Separator is between the levels of a folder's name in the name of its directory.
const Separator = "."

// A Folder is one folder of a Maildir.
type Folder struct {
	Name []string // levels of the name; empty for the inbox
	Dir  string
}

// Folders lists the folders of the Maildir in dir, beginning with the inbox. The error wraps
// fs.ErrNotExist if there is no Maildir. A symbolic link to a place outside of dir is not a folder,
// since whoever made the Maildir could let it point to anything on this machine.
func Folders(dir string) ([]Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if !isMaildir(root, ".") {
		return nil, fmt.Errorf("%s has no directory cur, so it is no Maildir: %w", dir, fs.ErrNotExist)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := []Folder{{Dir: dir}}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), Separator)
		if path := filepath.Join(dir, e.Name()); ok && name != "" && isMaildir(root, e.Name()) {
			levels := strings.Split(name, Separator)
			for i := range levels {
				levels[i] = DecodeName(levels[i])
			}
			out = append(out, Folder{levels, path})
		}
	}
	return out, nil
}

func isMaildir(root *os.Root, name string) bool {
	info, err := root.Stat(filepath.Join(name, "cur"))
	return err == nil && info.IsDir()
}

// A Message is one message file in a folder.
type Message struct {
	Name  string    // file name without flags; unique in the folder
	Flags string    // some of the letters P R S T D F
	Date  time.Time // modification time of the file
	Size  int64
	Path  string
}

// Messages lists the messages of a folder, sorted by date and then by name.
func Messages(f Folder) ([]Message, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []Message
	for _, sub := range []string{"new", "cur"} {
		entries, err := fs.ReadDir(root.FS(), sub)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // a mail program has moved the file meanwhile
			}
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(e.Name(), ".") || !info.Mode().IsRegular() {
				continue
			}
			name, flags, _ := strings.Cut(e.Name(), ":2,")
			out = append(out, Message{name, flags, info.ModTime(), info.Size(), filepath.Join(f.Dir, sub, e.Name())})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return cmp.Or(out[i].Date.Compare(out[j].Date), strings.Compare(out[i].Name, out[j].Name)) < 0
	})
	return out, nil
}

// Open opens the file of a message, even if its flags have changed since Messages. It follows no
// symbolic link to a place outside of the folder.
func Open(f Folder, m Message) (*os.File, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	path, err := filepath.Rel(f.Dir, m.Path)
	if err != nil {
		return nil, err
	}
	file, err := root.Open(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	again, err := filepath.Glob(filepath.Join(f.Dir, "cur", escapeGlob.Replace(m.Name)+"*"))
	if err != nil || len(again) == 0 {
		return nil, fmt.Errorf("%s: %w", m.Path, fs.ErrNotExist)
	}
	return root.Open(filepath.Join("cur", filepath.Base(again[0])))
}

var escapeGlob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// DirName returns the name of a folder's directory in the Maildir. It returns "" for the inbox,
// which is the Maildir itself.
func DirName(levels []string) string {
	var name strings.Builder
	for _, level := range levels {
		name.WriteString(Separator + EncodeName(level))
	}
	return name.String()
}

// FileName returns a file name for a message in cur. Names of messages of the same second sort by
// UID.
func FileName(date time.Time, uid uint32, flags string) string {
	return fmt.Sprintf("%d.U%010d.mailstead:2,%s", date.Unix(), uid, flags)
}

// Make creates a folder in the Maildir dir. It creates dir as well, if necessary.
func Make(dir string, levels []string) (Folder, error) {
	f := Folder{levels, filepath.Join(dir, DirName(levels))}
	for _, sub := range []string{"cur", "new", "tmp"} {
		if err := os.MkdirAll(filepath.Join(f.Dir, sub), 0o700); err != nil {
			return f, err
		}
	}
	if len(levels) > 0 {
		return f, os.WriteFile(filepath.Join(f.Dir, "maildirfolder"), nil, 0o600)
	}
	return f, nil
}

// DecodeName decodes a name in modified UTF-7. It returns any other name as it is, but with invalid
// UTF-8 replaced.
func DecodeName(text string) string {
	name, ok := decodeUTF7(text)
	if !ok || !utf8.ValidString(name) {
		return strings.ToValidUTF8(text, "_")
	}
	return name
}

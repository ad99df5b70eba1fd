package maildir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFoldersAndMessages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mail")
	if _, err := Folders(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	names := [][]string{nil, {"Sent"}, {"Work", "Größe & so"}, {"a.b/c", "日本"}}
	for _, name := range names {
		f, err := Make(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range []string{"cur/2.x:2,FS", "new/1.x", "cur/3.x:2,", "cur/.hidden", "tmp/4.x"} {
			path := filepath.Join(f.Dir, file)
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			at := time.Unix(1e9+int64(min(i, 1)), 0)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ".notmail"), 0o700); err != nil {
		t.Fatal(err)
	}
	folders, err := Folders(dir)
	if err != nil || len(folders) != len(names) || len(folders[0].Name) != 0 {
		t.Fatalf("%v %v", folders, err)
	}
	for _, f := range folders {
		found := false
		for _, name := range names {
			found = found || fmt.Sprint(name) == fmt.Sprint(f.Name)
		}
		if !found {
			t.Errorf("a folder %q", f.Name)
		}
		list, err := Messages(f)
		if err != nil || len(list) != 3 || list[0].Name != "2.x" || list[0].Flags != "FS" || list[1].Name != "1.x" || list[2].Name != "3.x" || list[0].Size != 12 {
			t.Errorf("%+v %v", list, err)
		}
		if err := os.Rename(list[1].Path, filepath.Join(f.Dir, "cur", "1.x:2,S")); err != nil {
			t.Fatal(err)
		}
		file, err := Open(f, list[1]) // its flags have changed
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if err := os.Remove(list[2].Path); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(f, list[2]); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestNames has the examples of RFC 3501 section 5.1.3, but for / and .
func TestNames(t *testing.T) {
	for name, want := range map[string]string{"Sent": "Sent", "a&b": "a&-b", "台北": "&U,BTFw-", "日本語": "&ZeVnLIqe-", "a.b": "a&AC4-b", "a/b": "a&AC8-b", "😀x": "&2D3eAA-x", "": ""} {
		if got := EncodeName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got := DecodeName(want); got != name {
			t.Errorf("%q: %q, want %q", want, got, name)
		}
	}
	for _, none := range []string{"a&b", "&", "&x-", "&AC-", "&*-"} {
		if got := DecodeName(none); got != none {
			t.Errorf("%q: %q", none, got)
		}
	}
}

func FuzzDecodeName(f *testing.F) {
	f.Add("&U,BTFw-")
	f.Add("a&-b")
	f.Fuzz(func(t *testing.T, text string) {
		name := DecodeName(text)
		if again := DecodeName(EncodeName(name)); again != name {
			t.Fatalf("%q: %q, then %q", text, name, again)
		}
	})
}

// TestLinksOutOfTheMaildirAreNotFollowed: neither of a folder, nor of its parts, nor of a message.
func TestLinksOutOfTheMaildirAreNotFollowed(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	secret, err := Make(outside, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(secret.Dir, "cur", "1.secret:2,")
	if err := os.WriteFile(path, []byte("Subject: secret\n\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, levels := range [][]string{nil, {"one"}, {"two"}} {
		if _, err := Make(dir, levels); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		".linked": outside, ".two/cur": filepath.Join(outside, "cur"), ".one/new": filepath.Join(outside, "cur"), "cur/1.link:2,": path, ".inside": ".one",
	} {
		if name := filepath.Join(dir, name); os.RemoveAll(name) != nil || os.Symlink(target, name) != nil {
			t.Fatal(name)
		}
	}
	folders, err := Folders(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range folders {
		names = append(names, strings.Join(f.Name, "/"))
		if list, err := Messages(f); len(list) > 0 {
			t.Errorf("%v has %+v, %v", f.Name, list, err)
		}
		if file, err := Open(f, Message{Name: "1.link", Path: filepath.Join(f.Dir, "cur", "1.link:2,")}); err == nil {
			file.Close()
			t.Error("a link out of the Maildir is opened")
		}
	}
	if want := []string{"", "inside", "one"}; !slices.Equal(names, want) {
		t.Errorf("the folders are %q, want %q", names, want)
	}
}

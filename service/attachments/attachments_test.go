package attachments

import (
	"archive/zip"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

func named(names ...string) (out []msg.Attachment) {
	for i, name := range names {
		out = append(out, msg.Attachment{Index: i, Filename: name})
	}
	return out
}

// Names in an archive are unique for file systems that ignore case, and open no device.
func TestArchiveNames(t *testing.T) {
	got := archiveNames(named("a.txt", "A.TXT", "a.txt", "a (2).txt", "con", "LPT1.pdf", "lpt1 .x", "console.txt", "archive.tar.gz", "archive.tar.gz", ".profile", ".profile"))
	want := []string{"a.txt", "A (2).TXT", "a (3).txt", "a (2) (2).txt", "_con", "_LPT1.pdf", "_lpt1 .x", "console.txt", "archive.tar.gz", "archive.tar (2).gz", ".profile", ".profile (2)"}
	if !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
}

// Many files with one name take no longer than as many with different ones.
func TestArchiveNamesOfMany(t *testing.T) {
	names := slices.Repeat([]string{"photo.jpg"}, 20_000)
	began := time.Now()
	got := archiveNames(named(names...))
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("20000 equal names took %s", took)
	}
	if got[0] != "photo.jpg" || got[19_999] != "photo (20000).jpg" {
		t.Errorf("names are %q to %q", got[0], got[19_999])
	}
}

func FuzzArchiveNames(f *testing.F) {
	f.Add("a.txt\nA.txt\na (2).txt\ncon\n.\na.txt")
	f.Fuzz(func(t *testing.T, text string) {
		files := named(strings.Split(text, "\n")...)
		names := archiveNames(files)
		for i, name := range names {
			names[i] = strings.ToLower(name)
		}
		slices.Sort(names)
		if got := slices.Compact(slices.Clone(names)); len(got) != len(files) {
			t.Errorf("%q has equal names: %q", text, names)
		}
	})
}

// What an archive has is what the message has, also if the files repeat.
func TestWriteArchive(t *testing.T) {
	raw := "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nhello\r\n"
	for range 3 {
		raw += "--b\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=a.txt\r\nContent-Transfer-Encoding: base64\r\n\r\nYWJj\r\n"
	}
	raw += "--b--\r\n"
	root, err := msg.Scan(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := writeArchive(&out, strings.NewReader(raw), msg.Attachments(root), time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a.txt", "a (2).txt", "a (3).txt"} {
		f := z.File[i]
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "abc" || f.Name != want || f.Modified.Year() != 2026 {
			t.Errorf("%s of %s is %q, %v", f.Name, f.Modified, got, err)
		}
	}
}

// An archive that nobody reads to its end stops being made.
func TestWriteArchiveToNobody(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := writeArchive(w, strings.NewReader(""), []msg.Attachment{{Filename: "a", Part: &msg.Part{}}}, time.Now()); err == nil {
		t.Error("an archive was written to nobody")
	}
}

// Texts are shown in UTF-8 whatever charset they have; what has NUL is no text.
func TestDecodeText(t *testing.T) {
	for _, c := range []struct {
		raw, label, want string
		ok               bool
	}{
		{"hello", "", "hello", true}, {"", "", "", true}, {"\xef\xbb\xbfü", "", "ü", true}, {"\xfcber", "iso-8859-1", "über", true}, {"\xfcber", "", "über", true}, {"\xfcber", "us-ascii", "über", true},
		{"\xff\xfeh\x00i\x00", "", "hi", true}, {"\xfe\xff\x00h\x00i", "utf-8", "hi", true}, {"PK\x03\x04\x00\x00", "", "", false},
		{strings.Repeat("x", MaxText-1) + "\xc3", "", strings.Repeat("x", MaxText-1), true}, {strings.Repeat("x", MaxText-2) + "ü", "", strings.Repeat("x", MaxText-2) + "ü", true},
	} {
		got, ok := decodeText([]byte(c.raw), c.label)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%.20q as %q is %.20q (%d), %v", c.raw, c.label, got, len(got), ok)
		}
	}
}

func FuzzDecodeText(f *testing.F) {
	f.Add([]byte("h\xc3\xbc"), "utf-8")
	f.Add([]byte("\xff\xfeh\x00"), "")
	f.Add([]byte("\x1b$B2q"), "iso-2022-jp")
	f.Fuzz(func(t *testing.T, raw []byte, label string) {
		text, ok := decodeText(raw, label)
		if ok && (strings.ContainsRune(text, 0) || len(text) > 4*len(raw)+16) {
			t.Errorf("%q as %q is %q", raw, label, text)
		}
	})
}

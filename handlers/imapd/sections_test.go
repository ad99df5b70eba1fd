package imapd

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/mail/msg"
)

// encodedLetter is a message whose first part is base64 of so many bytes "0123456789…".
func encodedLetter(size int) (message, content string) {
	content = strings.Repeat("0123456789", size/10)
	var lines strings.Builder
	for text := base64.StdEncoding.EncodeToString([]byte(content)); text != ""; {
		n := min(76, len(text))
		lines.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return "From: a@b.test\nMIME-Version: 1.0\nContent-Type: application/x-y\nContent-Transfer-Encoding: base64\n\n" + lines.String(), content
}

// TestRangesOfAPartAreDecodedOnce asks for a hundred ranges of one part, and for its size.
func TestRangesOfAPartAreDecodedOnce(t *testing.T) {
	h := serve(t, func(s *Server) { s.MaxUnsent = 1_000_000 })
	message, content := encodedLetter(600_000)
	h.put(t, "INBOX", message, 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	var items []string
	for i := range maxSections - 1 {
		items = append(items, fmt.Sprintf("BINARY.PEEK[1]<%d.11>", 6000*i+i%10))
	}
	lines := c.ok("FETCH 1 (%s BINARY.SIZE[1])", strings.Join(items, " "))
	text := strings.Join(lines, "\n")
	for i := range items {
		at := 6000*i + i%10
		if want := fmt.Sprintf("BINARY[1]<%d> ~{11}\n%s", at, content[at:at+11]); !strings.Contains(text, want) {
			t.Fatalf("no %q", want)
		}
	}
	if !strings.Contains(text, fmt.Sprintf("BINARY.SIZE[1] %d", len(content))) {
		t.Error("no size")
	}
	for partial, want := range map[string]string{"<599995.100>": "~{5}\n56789", "<600000.5>": "~{0}\n", "<9223372036854775807.9>": "~{0}\n", "<3.0>": "~{0}\n"} {
		if got := strings.Join(c.ok("FETCH 1 (BINARY.PEEK[1]%s)", partial), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %q", partial, got)
		}
	}
}

// TestFetchIsBoundedByWhatItDecodes asks many messages for a little of much.
func TestFetchIsBoundedByWhatItDecodes(t *testing.T) {
	h := serve(t, func(s *Server) { s.MaxUnsent = 1_500_000 })
	message, content := encodedLetter(600_000)
	for range 3 {
		h.put(t, "INBOX", message, 0)
	}
	h.put(t, "INBOX", "From: a@b.test\n"+strings.Repeat("X-Long: "+strings.Repeat("x", 900)+"\n", 200)+"\na\n", 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	for _, item := range []string{"BINARY.PEEK[1]<590000.5>", "BINARY.SIZE[1]"} {
		if lines := c.expect("NO [LIMIT]", "FETCH 1:* (%s)", item); len(lines) == 0 {
			t.Error("nothing was answered before the limit")
		}
		c.ok("FETCH 1:2 (%s)", item)
	}
	var fields []string
	for i := range maxSections {
		fields = append(fields, fmt.Sprintf("BODY.PEEK[HEADER.FIELDS (X%d)]", i))
	}
	c.expect("NO [LIMIT]", "FETCH 4 (%s)", strings.Join(fields, " "))
	if got := strings.Join(c.ok("FETCH 1:3 (BINARY.PEEK[1])"), "\n"); strings.Count(got, content) != 3 {
		t.Error("what is sent counts as unsent")
	}
	if got := strings.Join(c.ok("FETCH 1 (%s)", strings.Repeat("BINARY.PEEK[1] BODY.PEEK[] ", 49)+"UID"), "\n"); strings.Count(got, content) != 1 || strings.Count(got, "BODY[]") != 1 {
		t.Error("a section that is asked for again is answered again")
	}
}

// TestRangesAtTheEndCostLittleTime has the sizes of a message that is as large as they may be.
func TestRangesAtTheEndCostLittleTime(t *testing.T) {
	h := serve(t, nil)
	message, _ := encodedLetter(18_000_010)
	h.put(t, "INBOX", message, 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	var items []string
	for i := range maxSections {
		items = append(items, fmt.Sprintf("BINARY.PEEK[1]<%d.10>", 18_000_000-i))
	}
	began := time.Now()
	c.ok("FETCH 1 (%s)", strings.Join(items, " "))
	if d := time.Since(began); d > 5*time.Second { // 22 s before parts were decoded once
		t.Errorf("it took %v", d)
	}
}

// TestRangesOfPlainPartsAreNotRead: what is before a range of a part without an encoding is not
// read, so that it need not count.
func TestRangesOfPlainPartsAreNotRead(t *testing.T) {
	message := []byte("Content-Type: application/octet-stream\r\n\r\n" + strings.Repeat("0123456789", 100_000))
	root, err := msg.Scan(bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	blob := &countingBlob{bytesBlob: bytesBlob{bytes.NewReader(message)}}
	s := messageSource{root: root, blob: blob}
	var items fetchItems
	for _, part := range [][]int{nil, {1}} {
		items.binaries = append(items.binaries, binarySection{imap.FetchItemBinarySection{Part: part, Partial: &imap.SectionPartial{Offset: 900_007, Size: 5}}, "BINARY"})
	}
	ranges, _, err := s.sectionAnswers(&items)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"56789", "78901"} {
		got, err := io.ReadAll(io.LimitReader(ranges[i].r, ranges[i].size))
		if err != nil || string(got) != want {
			t.Errorf("range %d: %q, %v, want %q", i, got, err, want)
		}
	}
	if blob.read > 10_000 {
		t.Errorf("%d bytes were read", blob.read)
	}
}

// A countingBlob counts the bytes that are read.
type countingBlob struct {
	bytesBlob
	read int
}

func (b *countingBlob) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.bytesBlob.ReadAt(p, off)
	b.read += n
	return n, err
}

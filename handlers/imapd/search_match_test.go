package imapd

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// bytesBlob is a message in memory.
type bytesBlob struct{ *bytes.Reader }

func (bytesBlob) Close() error { return nil }

func candidateOf(t testing.TB, message []byte) *candidate {
	t.Helper()
	root, err := msg.Scan(bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	row := &inbox.MessageRow{UID: 7, Flags: inbox.FlagSeen, Keywords: []string{"Mine"}, Received: time.Unix(1e9, 0).UTC(), Size: int64(len(message)), Structure: root.AppendBinary(nil)}
	return &candidate{row: row, open: func() (storedBytes, error) { return bytesBlob{bytes.NewReader(message)}, nil }}
}

// someCriteria makes any criteria of bytes.
func someCriteria(b *bytes.Reader, text string, depth int) imap.SearchCriteria {
	var c imap.SearchCriteria
	next := func() int { n, _ := b.ReadByte(); return int(n) }
	for b.Len() > 0 {
		switch n := next(); n % 16 {
		case 0:
			c.Header = append(c.Header, imap.SearchCriteriaHeaderField{Key: []string{"From", "subject", "X-Any", "bcc"}[next()%4], Value: text})
		case 1:
			c.Body = append(c.Body, text)
		case 2:
			c.Text = append(c.Text, text)
		case 3:
			c.Flag = append(c.Flag, []imap.Flag{imap.FlagSeen, "mine", `\Recent`}[next()%3])
		case 4:
			c.NotFlag = append(c.NotFlag, []imap.Flag{imap.FlagDraft, "other"}[next()%2])
		case 5:
			c.SeqNum = append(c.SeqNum, numbers(next()%4, next()%4))
		case 6:
			c.UID = append(c.UID, uidNumbers(next()%9, next()%9), imap.SearchRes())
		case 7:
			c.Larger = int64(next())
		case 8:
			c.SentSince = time.Unix(int64(next())<<24, 0).UTC().Truncate(24 * time.Hour)
		case 9:
			c.Before = time.Unix(int64(next())<<24, 0).UTC().Truncate(24 * time.Hour)
		case 10, 11:
			if depth < 5 {
				c.Not = append(c.Not, someCriteria(b, text, depth+1))
			}
		case 12, 13:
			if depth < 5 {
				c.Or = append(c.Or, [2]imap.SearchCriteria{someCriteria(b, text, depth+1), someCriteria(b, text, depth+1)})
			}
		default:
			if depth > 0 {
				return c
			}
		}
	}
	return c
}

func numbers(first, last int) (set imap.SeqSet) {
	set.AddRange(uint32(first), uint32(last))
	return set
}

func uidNumbers(first, last int) (set imap.UIDSet) {
	set.AddRange(imap.UID(first), imap.UID(last))
	return set
}

// FuzzSearch holds matching to the laws of NOT and OR over any criteria and any message.
func FuzzSearch(f *testing.F) {
	f.Add([]byte{0, 1, 10, 1, 255, 12, 2, 255, 3, 1}, "hello", []byte("From: a@b\r\nSubject: x\r\n\r\nHello\r\n"))
	f.Add([]byte{5, 1, 0, 6, 7, 0}, "", []byte(mixed))
	f.Fuzz(func(t *testing.T, keys []byte, text string, message []byte) {
		criteria := someCriteria(bytes.NewReader(keys), inCommand(text), 0)
		holds := func(c imap.SearchCriteria) bool {
			q := queryOf(t, &c, view{3, 7, 9}, []uint32{7})
			if q == nil {
				t.Skip()
			}
			ok, err := q.match(candidateOf(t, message))
			if err != nil {
				t.Fatal(err)
			}
			if ok && !slices.Contains(q.candidateUIDs(), 7) {
				t.Error("a message that matches is no candidate")
			}
			return ok
		}
		is := holds(criteria)
		if c := candidateOf(t, message); checkSearch(t, &criteria, c.row, message) != is {
			t.Error("the same search answers otherwise")
		}
		if holds(imap.SearchCriteria{Not: []imap.SearchCriteria{criteria}}) == is {
			t.Errorf("NOT x is x: %+v", criteria)
		}
		if holds(imap.SearchCriteria{Or: [][2]imap.SearchCriteria{{criteria, criteria}}}) != is {
			t.Errorf("x OR x is not x: %+v", criteria)
		}
		if is && !holds(imap.SearchCriteria{}) {
			t.Error("ALL leaves one out")
		}
	})
}

// FuzzSection takes any section of any message: it must lie within the message, and a partial one
// within the whole.
func FuzzSection(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(mixed, "\n", "\r\n")), []byte{3, 2}, byte(1), int64(3), int64(10))
	f.Add([]byte("Content-Type: multipart/mixed\n\n--\n"), []byte{1}, byte(3), int64(0), int64(1)<<62)
	f.Fuzz(func(t *testing.T, message, path []byte, kind byte, off, size int64) {
		root, err := msg.Scan(bytes.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		s := messageSource{root: root, blob: bytesBlob{bytes.NewReader(message)}}
		item := &imap.FetchItemBodySection{Specifier: []imap.PartSpecifier{"", "HEADER", "MIME", "TEXT"}[kind%4]}
		if kind&8 != 0 && kind%4 == 1 {
			item.HeaderFieldsNot = []string{"subject"}
		}
		for _, n := range path[:min(len(path), 20)] {
			item.Part = append(item.Part, int(n))
		}
		r, err := s.sectionContent(item)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := io.ReadAll(r)
		if err != nil || int64(len(whole)) != r.Size() {
			t.Fatalf("%d bytes of %d, %v", len(whole), r.Size(), err)
		}
		if len(item.HeaderFieldsNot) == 0 && !bytes.Contains(message, whole) {
			t.Errorf("%q is not in the message", whole)
		}
		if off >= 0 && size >= 0 {
			from, n := clampRange(&imap.SectionPartial{Offset: off, Size: size}, r.Size())
			if from < 0 || n < 0 || from+n > r.Size() || n > size {
				t.Errorf("<%d.%d> of %d is <%d.%d>", off, size, r.Size(), from, n)
			}
		}
		if d, err := s.binaryContent(item.Part); err == nil {
			if n, err := io.Copy(io.Discard, d.open()); err != nil || n != d.size {
				t.Errorf("BINARY: %d bytes of %d, %v", n, d.size, err)
			}
		}
		var out attributeWriter
		row := inbox.MessageRow{Structure: root.AppendBinary(nil)}
		if err := out.writeAnswer(1, &row, attributes{envelope: true, body: true, bodyStructure: true}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzPattern compares matching with the definition, letter by letter.
func FuzzPattern(f *testing.F) {
	f.Add("*a%/b", "xa/y/b")
	f.Add("%%%*", "")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 8 || len(name) > 12 {
			return
		}
		if got, want := matches(pattern, name), slowMatch(pattern, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}

func slowMatch(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	switch c := pattern[0]; {
	case c != '*' && c != '%':
		return name != "" && name[0] == c && slowMatch(pattern[1:], name[1:])
	case slowMatch(pattern[1:], name):
		return true
	default:
		return name != "" && (c == '*' || name[0] != delimiter) && slowMatch(pattern, name[1:])
	}
}

// TestPatternsDoNotExplode has what takes a backtracking matcher longer than anyone lives.
func TestPatternsDoNotExplode(t *testing.T) {
	if matches(strings.Repeat("*a", 900), strings.Repeat("a", 199)+"b") {
		t.Error("matched")
	}
}

// FuzzView compares sets of any ranges with what they mean number by number.
func FuzzView(f *testing.F) {
	f.Add([]byte{1, 3, 4, 9}, []byte{2, 0, 0, 0, 9, 1})
	f.Fuzz(func(t *testing.T, uids, ranges []byte) {
		var v view
		for _, b := range uids {
			v = append(v, uint32(b)+1)
		}
		slices.Sort(v)
		v = slices.Compact(v)
		var seqs imap.SeqSet
		var ids imap.UIDSet
		for i := 0; i+1 < len(ranges); i += 2 {
			seqs = append(seqs, imap.SeqRange{Start: uint32(ranges[i]), Stop: uint32(ranges[i+1])})
			ids = append(ids, imap.UIDRange{Start: imap.UID(ranges[i]), Stop: imap.UID(ranges[i+1])})
		}
		var wantSeqs, wantIDs []uint32
		for i, uid := range v {
			if within(ranges, uint32(i+1), uint32(len(v))) {
				wantSeqs = append(wantSeqs, uid)
			}
			if within(ranges, uid, v.lastUID()) {
				wantIDs = append(wantIDs, uid)
			}
		}
		if got := v.uidsOf(seqs, nil); !slices.Equal(got, wantSeqs) {
			t.Errorf("%v of %v: %v, want %v", seqs, v, got, wantSeqs)
		}
		if got := v.uidsOf(ids, nil); !slices.Equal(got, wantIDs) {
			t.Errorf("UIDs %v of %v: %v, want %v", ids, v, got, wantIDs)
		}
		nums, ok := new(imap.UIDSet), false
		*nums = uidSet(v)
		all, ok := nums.Nums()
		if !ok || len(all) != len(v) {
			t.Errorf("%v is written as %v", v, nums)
		}
	})
}

func within(ranges []byte, n, last uint32) bool {
	for i := 0; i+1 < len(ranges); i += 2 {
		a, b := uint32(ranges[i]), uint32(ranges[i+1])
		if a == 0 {
			a = last
		}
		if b == 0 {
			b = last
		}
		if n >= min(a, b) && n <= max(a, b) {
			return true
		}
	}
	return false
}

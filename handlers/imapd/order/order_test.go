package order

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/cputime"
)

func TestBaseSubject(t *testing.T) {
	for subject, want := range map[string]struct {
		base    string
		isReply bool
	}{
		"":                               {"", false},
		"Hello":                          {"HELLO", false},
		"  a \t b\r\n c  ":               {"A B C", false},
		"Re: a":                          {"A", true},
		"RE : a":                         {"A", true},
		"re[5]: a":                       {"A", true},
		"Re [x] : a":                     {"A", true},
		"Re [x]y: a":                     {"RE [X]Y: A", false},
		"Fwd: fw: FW:a":                  {"A", true},
		"Fwds: a":                        {"FWDS: A", false},
		"Aw: a":                          {"AW: A", false}, // only English marks
		"[list] Re: a":                   {"A", true},
		"[one] [two]re: a":               {"A", true},
		"[one] a":                        {"A", false},
		"[one][two] a":                   {"A", false},
		"[one]":                          {"[ONE]", false},
		"[one] [two]":                    {"[TWO]", false},
		"[one] [two] ":                   {"[TWO]", false},
		"[one [two] a":                   {"[ONE [TWO] A", false},
		"[one] [two":                     {"[TWO", false},
		"Re: [one]":                      {"[ONE]", true},
		"a (fwd)":                        {"A", true},
		"a (FWD) (fwd)":                  {"A", true},
		"(fwd)":                          {"", true},
		"re:(fwd)":                       {"", true},
		"[fwd: a]":                       {"A", true},
		"[Fwd: [fwd: Re: a (fwd)]]":      {"A", true},
		"[Fwd: a (fwd)] (fwd)":           {"A", true},
		"[fwd: a] b":                     {"B", false},
		"[fwd:]":                         {"", true},
		"[fwd:":                          {"[FWD:", false},
		"Re: " + strings.Repeat("[]", 9): {"[]", true},
		"größe":                          {"GRO\u0308ßE", false},
		"ＲＥ： ﬁ":                          {"fi", true}, // decomposed, but not into titlecase
		"ǆ\u00a0ǅ":                       {"Dz\u030c Dz\u030c", false},
		"한":                              {"\u1112\u1161\u11ab", false},
		"a\xff":                          {"A\ufffd", false},
	} {
		base, isReply := AppendBaseSubject([]byte("before "), []byte(subject))
		if string(base) != "before "+want.base || isReply != want.isReply {
			t.Errorf("%q: base subject %q, reply %v; want %q, %v", subject, base, isReply, want.base, want.isReply)
		}
	}
}

// TestCasemapDecomposes holds every character against the decomposition of the library.
func TestCasemapDecomposes(t *testing.T) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		want := norm.NFKD.String(string(unicode.ToTitle(r)))
		if got := string(AppendCasemap(nil, []byte(string(r)))); got != want {
			t.Errorf("%U becomes %+q, want %+q", r, got, want)
		}
	}
}

// FuzzBaseSubject holds the base subject against the steps of RFC 5256 section 2.1 one at a time.
func FuzzBaseSubject(f *testing.F) {
	for _, seed := range []string{"Re: [a] [b] c (fwd)", "[fwd: [fwd: re[5] : x]]", "[x] [", "fw:[fwd:][a][]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, subject []byte) {
		got, isReply := AppendBaseSubject(nil, subject)
		folded := string(AppendCasemap(nil, subject))
		folded = strings.NewReplacer("\t", " ", "\r", " ", "\n", " ").Replace(folded)
		for strings.Contains(folded, "  ") {
			folded = strings.ReplaceAll(folded, "  ", " ")
		}
		want, wantReply := bySteps(folded)
		if string(got) != want || isReply != wantReply {
			t.Errorf("%q: base subject %q, reply %v; want %q, %v", subject, got, isReply, want, wantReply)
		}
	})
}

func bySteps(s string) (base string, isReply bool) {
	blob := func(s string) string { // the text after a blob, or s
		if strings.HasPrefix(s, "[") {
			if i := strings.IndexAny(s[1:], "[]"); i >= 0 && s[1+i] == ']' {
				return strings.TrimLeft(s[i+2:], " ")
			}
		}
		return s
	}
	leader := func(s string) string {
		if strings.HasPrefix(s, " ") {
			return s[1:]
		}
		p := s
		for blob(p) != p {
			p = blob(p)
		}
		for _, mark := range []string{"RE", "FWD", "FW"} {
			if rest, ok := strings.CutPrefix(p, mark); ok {
				if rest, ok := strings.CutPrefix(blob(strings.TrimLeft(rest, " ")), ":"); ok {
					return rest
				}
			}
		}
		return s
	}
	for {
		for strings.HasSuffix(s, " ") || strings.HasSuffix(s, "(FWD)") {
			isReply = isReply || strings.HasSuffix(s, ")")
			s = strings.TrimSuffix(strings.TrimSuffix(s, " "), "(FWD)")
		}
		for {
			before := s
			s = leader(s)
			if len(before)-len(s) > 1 {
				isReply = true
			}
			if rest := blob(s); rest != "" {
				s = rest
			}
			if s == before {
				break
			}
		}
		if !strings.HasPrefix(s, "[FWD:") || !strings.HasSuffix(s, "]") {
			return s, isReply
		}
		s, isReply = s[5:len(s)-1], true
	}
}

func TestSorter(t *testing.T) {
	fields := []Field{Arrival, CC, Date, From, Size, Subject, To}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := func() []byte { return []byte([]string{"", "a", "A", "b", "ä", "Ä", "Re: a", "z"}[r.IntN(8)]) }
		list := make([]Message, r.IntN(60))
		for i := range list {
			list[i] = Message{
				Number: uint32(i + 1), Arrival: int64(r.IntN(4)), Sent: int64(r.IntN(4)), Size: int64(r.IntN(4)),
				From: text(), To: text(), CC: text(), Subject: text(),
			}
		}
		var keys []Key
		for range 1 + r.IntN(4) {
			keys = append(keys, Key{fields[r.IntN(len(fields))], r.IntN(2) == 0})
		}
		s := NewSorter(keys, len(list))
		for i := range list {
			s.Add(&list[i])
		}
		slices.SortStableFunc(list, func(a, b Message) int {
			for _, k := range keys {
				subject := func(m Message) string { b, _ := AppendBaseSubject(nil, m.Subject); return string(b) }
				mapped := func(b []byte) string { return string(AppendCasemap(nil, b)) }
				order := [...]int{
					Arrival: cmp.Compare(a.Arrival, b.Arrival), Date: cmp.Compare(a.Sent, b.Sent), Size: cmp.Compare(a.Size, b.Size),
					CC: cmp.Compare(mapped(a.CC), mapped(b.CC)), From: cmp.Compare(mapped(a.From), mapped(b.From)),
					To: cmp.Compare(mapped(a.To), mapped(b.To)), Subject: cmp.Compare(subject(a), subject(b)),
				}[k.Field]
				if k.Reverse {
					order = -order
				}
				if order != 0 {
					return order
				}
			}
			return 0
		})
		for i, n := range s.Sorted() {
			if n != list[i].Number {
				t.Fatalf("seed %d, keys %v: message %d is number %d, want %d", seed, keys, i, n, list[i].Number)
			}
		}
	}
}

// TestMemoryOfOrders holds what one message of a large folder takes.
func TestMemoryOfOrders(t *testing.T) {
	const n = 100_000
	long := []byte(strings.Repeat("ﷺ", 20)) // each becomes 33 bytes
	usual := func(m *Message, i int) { letterNumber(m, i) }
	hostile := func(m *Message, i int) {
		m.Subject, m.From, m.To, m.CC = long, long, long, long
		for k := range 30 {
			m.References = append(m.References, fmt.Appendf(nil, "<%d.%d@x>", i, k))
		}
	}
	for _, c := range []struct {
		name    string
		message func(*Message, int)
		most    uint64
	}{{"usual", usual, 300}, {"hostile", hostile, 420}} {
		for _, kind := range []string{"sort", "threads"} {
			t.Run(c.name+" "+kind, func(t *testing.T) {
				var sorter *Sorter
				var threads *Threads
				before := heap()
				if kind == "sort" {
					sorter = NewSorter([]Key{{Subject, false}, {From, true}, {To, false}, {CC, false}, {Date, false}}, n)
				} else {
					threads = NewThreads(true, n)
				}
				m := &Message{}
				for i := range n {
					*m = Message{}
					c.message(m, i)
					if kind == "sort" {
						sorter.Add(m)
					} else {
						threads.Add(m)
					}
				}
				used := (heap() - before) / n
				t.Logf("%d bytes for each message", used)
				if used > c.most {
					t.Errorf("%d bytes for each message, want at most %d", used, c.most)
				}
				runtime.KeepAlive(sorter)
				runtime.KeepAlive(threads)
			})
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// letterNumber makes a message as there are many: of four, three are answers.
func letterNumber(m *Message, i int) {
	m.Number, m.Arrival, m.Sent, m.Size = uint32(i+1), int64(i), int64(i*7919%100_000), int64(i*31%9973)
	m.From, m.To = fmt.Appendf(nil, "someone%d", i%977), []byte("ann")
	m.Subject = fmt.Appendf(nil, "Letter number %d about something", i/4)
	m.ID = fmt.Appendf(nil, "<%d.letter@example.org>", i)
	if i%4 > 0 {
		m.Subject = append([]byte("Re: "), m.Subject...)
		for k := i - i%4; k < i; k++ {
			m.References = append(m.References, fmt.Appendf(nil, "<%d.letter@example.org>", k))
		}
	}
}

func TestLongTextsSortQuickly(t *testing.T) {
	s := NewSorter([]Key{{Subject, false}}, 0)
	m := &Message{Subject: bytes.Repeat([]byte("[]"), 1000)}
	begun := time.Now()
	for range 20_000 {
		s.Add(m)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("20 000 subjects of 1 000 blobs took %v", took)
	}
}

func BenchmarkOrders(b *testing.B) {
	for _, n := range []int{5_000, 50_000} {
		list := make([]Message, n)
		for i := range list {
			letterNumber(&list[i], i)
		}
		b.Run(fmt.Sprintf("sort_subject/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			report := cputime.Start(b)
			for b.Loop() {
				s := NewSorter([]Key{{Subject, false}, {Date, false}}, n)
				for i := range list {
					s.Add(&list[i])
				}
				s.Sorted()
			}
			report()
		})
		for _, byIDs := range []bool{true, false} {
			b.Run(fmt.Sprintf("threads_by_ids=%v/%d", byIDs, n), func(b *testing.B) {
				b.ReportAllocs()
				report := cputime.Start(b)
				for b.Loop() {
					threadsOf(byIDs, list)
				}
				report()
			})
		}
	}
}

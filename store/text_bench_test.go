package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
)

// benchWord is a word of about the length that words of its rank have.
func benchWord(rank uint64) []byte {
	const letters = "etaoinsrhldcumfpgwybvkxjqz"
	var b []byte
	for n := rank + 1; n > 0; n /= 13 {
		b = append(b, letters[n%26])
	}
	return strconv.AppendUint(append(b, letters[rank%26]), rank%7, 10)
}

// benchTexts indexes messages of 300 words each, which are distributed as those of a language are,
// and three that no other message has. It gives the bytes of their texts.
func benchTexts(b testing.TB, s *Store, messages int) (text int64) {
	rnd := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rnd, 1.12, 4, 150_000)
	ref := appendTest(b, s, "x")
	addMailbox(b, s, 1)
	const each = 1000
	for from := 0; from < messages; from += each {
		addMany(b, s, ref, from, each)
		batch := NewTextBatch(1)
		for n := from + each - 1; n >= from; n-- {
			batch.AddMessage(InboxPos{Received: second(0).Add(time.Duration(n) * time.Millisecond), UID: uint32(n + 1), Num: 1})
			for range 300 {
				word := benchWord(zipf.Uint64())
				batch.AddWord(word)
				text += int64(len(word)) + 1
			}
			for k := range 3 {
				word := fmt.Appendf(nil, "id%d%c", n*7919, 'a'+k)
				batch.AddWord(word)
				text += int64(len(word)) + 1
			}
			if n == messages/3 {
				batch.AddWord([]byte("needle"))
			}
		}
		if err := s.AddText(batch, []TextTodo{{Account: 1, Num: 1, UID: uint32(from + each + 1)}}, nil); err != nil {
			b.Fatal(err)
		}
		if err := s.TidyText(context.Background(), 1); err != nil {
			b.Fatal(err)
		}
	}
	return text
}

// BenchmarkSearch searches 20 000 messages, or MAILSTEAD_BENCH_ROWS, for pages of 100.
func BenchmarkSearch(b *testing.B) {
	rows := 20_000
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_BENCH_ROWS")); err == nil {
		rows = n
	}
	s, err := Open(b.TempDir(), Options{noSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	began := time.Now()
	text := benchTexts(b, s, rows)
	took := time.Since(began)
	size := int64(0)
	_ = s.View(func(tx *Tx) error {
		for _, bucket := range []*engine.Bucket{mailrow.BucketTextRun, mailrow.BucketTextPlace, mailrow.BucketTextWord} {
			stats := tx.Bucket(bucket).Stats()
			size += int64(stats.BranchAlloc + stats.LeafAlloc)
		}
		return nil
	})
	b.Logf("%d messages of %d bytes in %v: %d bytes of index each, %.1f %% of the text",
		rows, text/int64(rows), took, size/int64(rows), float64(size)*100/float64(text))
	word := func(w string) []TextTerm { return []TextTerm{{Word: w}} }
	begins := func(w string) []TextTerm { return []TextTerm{{Word: w, Prefix: true}} }
	often, seldom := string(benchWord(0)), string(benchWord(20_000))
	yes := true
	for _, c := range []struct {
		name  string
		q     InboxQuery
		terms [][]TextTerm
	}{
		{"often", InboxQuery{Account: 1}, [][]TextTerm{word(often)}},
		{"seldom", InboxQuery{Account: 1}, [][]TextTerm{word(seldom)}},
		{"one", InboxQuery{Account: 1}, [][]TextTerm{word("needle")}},
		{"none", InboxQuery{Account: 1}, [][]TextTerm{word("haystack")}},
		{"two", InboxQuery{Account: 1}, [][]TextTerm{word(often), word(string(benchWord(30)))}},
		{"often-seldom", InboxQuery{Account: 1}, [][]TextTerm{word(often), word(seldom)}},
		{"often-none", InboxQuery{Account: 1}, [][]TextTerm{word(often), word("haystack")}},
		{"ten-often", InboxQuery{Account: 1}, [][]TextTerm{word(often), word(string(benchWord(1))), word(string(benchWord(2))), word(string(benchWord(3))),
			word(string(benchWord(4))), word(string(benchWord(5))), word(string(benchWord(6))), word(string(benchWord(7))), word(string(benchWord(8))), word("needle")}},
		{"begins", InboxQuery{Account: 1}, [][]TextTerm{begins("e")}},
		{"begins-one", InboxQuery{Account: 1}, [][]TextTerm{word("needle"), begins("e")}},
		{"begins-twice-none", InboxQuery{Account: 1}, [][]TextTerm{begins("id"), begins("hayst")}},
		{"warmup", InboxQuery{Account: 1, Warmup: &yes}, [][]TextTerm{word(often)}},
		{"warmup-seldom", InboxQuery{Account: 1, Warmup: &yes}, [][]TextTerm{word(seldom)}},
		{"seen-seldom", InboxQuery{Account: 1, Seen: &yes}, [][]TextTerm{word(seldom)}},
		{"filters-nothing", InboxQuery{Account: 1, Attachments: new(bool), Warmup: &yes}, [][]TextTerm{word(often)}},
		{"dates", InboxQuery{Account: 1, To: second(0).Add(time.Duration(rows/2) * time.Millisecond)}, [][]TextTerm{word(often)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			cuts, slowest := 0, time.Duration(0)
			for b.Loop() {
				began := time.Now()
				cut, err := searchPage(s, c.q, c.terms)
				if err != nil {
					b.Fatal(err)
				}
				if cut {
					cuts++
				}
				slowest = max(slowest, time.Since(began))
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(cuts)/float64(b.N), "cut")
		})
	}
}

func searchPage(s *Store, q InboxQuery, terms [][]TextTerm) (cut bool, err error) {
	err = s.View(func(tx *Tx) error {
		search, err := tx.SearchInbox(q, terms, 12<<20)
		if err != nil {
			return err
		}
		for range 100 {
			pos, _, ok, err := search.Next()
			if err != nil || !ok {
				_, cut = search.Cut()
				return err
			}
			if _, err := tx.Meta(pos.Num, InboxID, pos.UID); err != nil {
				return err
			}
		}
		return nil
	})
	return cut, err
}

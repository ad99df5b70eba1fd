package store

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// inParallel runs fn b.N times in all, from n goroutines.
func inParallel(b *testing.B, n int, fn func(i int64) error) {
	b.Helper()
	var next atomic.Int64
	done := make(chan error, n)
	b.ResetTimer()
	for range n {
		go func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := fn(i); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range n {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkCommit is the committer's throughput: durable transactions of one record each.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			s := openTest(b, Options{})
			inParallel(b, writers, func(i int64) error {
				return s.Update(func(tx *Tx) error { return putAccount(tx, uint32(i)) })
			})
		})
	}
}

var benchMeta = &Meta{
	Structure: make([]byte, 300), Preview: "Dear all, the figures of October are in", ThreadID: "thr_01k9",
	ReturnPath: "sender@example.com", SPF: "pass", DKIM: "pass", DMARC: "pass",
}

// BenchmarkAccept is what a message costs until it may be acknowledged: 4 KiB appended, its rows
// committed, all on disk.
func BenchmarkAccept(b *testing.B) {
	for _, connections := range []int{1, 64} {
		b.Run(fmt.Sprint("connections=", connections), func(b *testing.B) {
			s := openTest(b, Options{})
			for mailbox := range uint32(100) {
				addMailbox(b, s, mailbox+1)
			}
			body := bytes.Repeat([]byte("0123456789abcde\n"), 256)
			b.ReportAllocs()
			inParallel(b, connections, func(i int64) error {
				spool := s.NewSpool(1 << 20)
				defer spool.Close()
				if _, err := spool.Write(body); err != nil {
					return err
				}
				ref, err := s.Append([]byte("envelope"), spool)
				if err != nil {
					return err
				}
				m := &Message{Account: 1, Mailbox: uint32(i%100) + 1, Folder: InboxID, Blob: ref}
				return s.Update(func(tx *Tx) error { return tx.AddMessage(m, benchMeta) })
			})
		})
	}
}

// BenchmarkAddMessage is what the rows of a message cost in a large transaction.
func BenchmarkAddMessage(b *testing.B) {
	s := openTest(b, Options{noSync: true})
	addMailbox(b, s, 1)
	ref := appendTest(b, s, "x")
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += 10_000 {
		addMany(b, s, ref, done, min(10_000, b.N-done))
	}
}

// addMany adds n messages to INBOX of mailbox 1, a third of them seen, every 50th with attachments,
// every 1000th from warm-up.
func addMany(b testing.TB, s *Store, ref BlobRef, from, n int) {
	b.Helper()
	const atOnce = 500
	if n > atOnce {
		addMany(b, s, ref, from, n-atOnce)
		from, n = from+n-atOnce, atOnce
	}
	update(b, s, func(tx *Tx) error {
		for i := from; i < from+n; i++ {
			m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref, Received: second(0).Add(time.Duration(i) * time.Millisecond)}
			if i%3 == 0 {
				m.Flags = FlagSeen
			}
			if i%50 == 0 {
				m.Bits |= BitAttachments
			}
			if i%1000 == 0 {
				m.Bits |= BitWarmup
			}
			if err := tx.AddMessage(m, benchMeta); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkInbox reads pages of 100 of an account's inbox with a million messages, or
// MAILSTEAD_BENCH_ROWS, or, with
// -short, a hundred thousand.
func BenchmarkInbox(b *testing.B) {
	rows := 1_000_000
	if testing.Short() {
		rows = 100_000
	}
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_BENCH_ROWS")); err == nil {
		rows = n
	}
	s, err := Open(b.TempDir(), Options{noSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	addMailbox(b, s, 1)
	ref := appendTest(b, s, "x")
	for done := 0; done < rows; done += 20_000 {
		addMany(b, s, ref, done, min(20_000, rows-done))
	}
	yes := true
	middle := InboxPos{Received: second(0).Add(time.Duration(rows/2) * time.Millisecond)}
	for _, c := range []struct {
		name string
		q    InboxQuery
	}{
		{"newest", InboxQuery{Account: 1}},
		{"middle", InboxQuery{Account: 1, Before: middle}},
		{"mailbox", InboxQuery{Account: 1, Folders: []uint32{1}, Before: middle}},
		{"seen", InboxQuery{Account: 1, Seen: &yes}},
		{"attachments", InboxQuery{Account: 1, Attachments: &yes}},
		{"warmup", InboxQuery{Account: 1, Warmup: &yes}},
		{"attachments-warmup-dates", InboxQuery{Account: 1, Attachments: &yes, Warmup: &yes, From: second(0), To: middle.Received}},
		{"nothing-matches", InboxQuery{Account: 1, Attachments: new(bool), Warmup: &yes}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := readPage(s, c.q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// readPage reads what a page of the API's inbox needs: 100 positions, and the row and meta of each.
func readPage(s *Store, q InboxQuery) error {
	return s.View(func(tx *Tx) error {
		n := 0
		for pos := range tx.Inbox(q) {
			if _, err := tx.Message(pos.Num, InboxID, pos.UID); err != nil {
				return err
			}
			if _, err := tx.Meta(pos.Num, InboxID, pos.UID); err != nil {
				return err
			}
			if n++; n == 100 {
				break
			}
		}
		return nil
	})
}

// BenchmarkRead compares what the decoded form saves.
func BenchmarkRead(b *testing.B) {
	s := openTest(b, Options{})
	update(b, s, func(tx *Tx) error {
		return Mailboxes.Put(tx, &Mailbox{ID: "eu_1", AccountID: "acc_1", Num: 1, Email: "ann@example.test", Status: "active", Ready: true})
	})
	for name, get := range map[string]func(*Tx, string) (*Mailbox, error){"get": MailboxByEmail.Get, "read": MailboxByEmail.Read} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			err := s.View(func(tx *Tx) error {
				for b.Loop() {
					if _, err := get(tx, "ann@example.test"); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
}

package store

import (
	"testing"
)

func BenchmarkAddMessage(b *testing.B) {
	s := openTest(b, Options{noSync: true})
	addMailbox(b, s, 1)
	ref := appendTest(b, s, "x")
	meta := &Meta{Structure: make([]byte, 300), Preview: "hello", SPF: "pass", DKIM: "pass", DMARC: "pass"}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := min(10_000, b.N-done)
		update(b, s, func(tx *Tx) error {
			for range n {
				if err := tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}, meta); err != nil {
					return err
				}
			}
			return nil
		})
		done += n
	}
}

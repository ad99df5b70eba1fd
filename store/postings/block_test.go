package postings

import (
	"encoding/binary"
	"slices"
	"testing"
)

func FuzzTextBlock(f *testing.F) {
	var w BlockWriter
	w.Add([]byte("hello"), []uint16{0, 1, 7, 300})
	w.Add([]byte("help"), []uint16{0, 1, 2, 3, 4, 5, 6, 7, 8})
	blocks, _ := w.Finish()
	f.Add(blocks[0].Data)
	f.Add([]byte{0, 1, 'a', 2, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := BlockReader{rest: data}
		var again BlockWriter
		for {
			more, err := r.Next()
			if err != nil || !more {
				break
			}
			var numbers []uint16
			if err := r.entry.Each(1000, func(n uint32) {
				if n >= 1000 {
					t.Fatalf("number %d", n)
				}
				numbers = append(numbers, uint16(n))
			}); err != nil || len(numbers) == 0 {
				continue
			}
			b := appendNumbers(nil, numbers)
			form, used := binary.Uvarint(b)
			e := Entry{data: b[used:], form: byte(form % 4)}
			set := NewSet(1000)
			if err := e.AddTo(set, 1000); err != nil || used+int(form/4) != len(b) {
				t.Fatalf("%v became %x, %v", numbers, b, err)
			}
			var back []uint16
			for n, ok := set.From(0); ok; n, ok = set.From(n + 1) {
				back = append(back, uint16(n))
			}
			if !slices.Equal(back, numbers) {
				t.Fatalf("%v became %v", numbers, back)
			}
			again.Add(r.entry.Word, numbers)
		}
		again.Finish()
	})
}

package entry

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/segment"
)

func FuzzParse(f *testing.F) {
	at := segment.Ref{Segment: 1, Offset: 36, Head: 40, Length: 5}
	c := &Changes{Keep: true}
	c.Put("msg", []byte("key"), []byte("value"))
	c.Delete("msg", []byte("gone"))
	c.SetSequence("account", 7)
	c.EmptyBucket("text_gone")
	c.AddMessage(at)
	e, err := FromRow(3, c.Row(time.UnixMilli(12), Nonce{1}, Nonce{2}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e.Marshal())
	e.records[at] = messageRecord{}
	f.Add(e.Marshal())
	e.records[at] = messageRecord{record: make([]byte, 45)}
	f.Add(e.Marshal())
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 4 { // most are to get past the checksum
			data = binary.BigEndian.AppendUint32(data[:len(data)-4:len(data)-4], crc32.Checksum(data[:len(data)-4], castagnoli))
		}
		e, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(e.Marshal())
		if err != nil || again.Number != e.Number || !bytes.Equal(again.row, e.row) || !bytes.Equal(again.Marshal(), e.Marshal()) {
			t.Errorf("read again: %v", err)
		}
	})
}

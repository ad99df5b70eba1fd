package deflate

import (
	"bufio"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// FuzzInflate compares the Reader with compress/flate, over anything and over what is rightly
// compressed.
func FuzzInflate(f *testing.F) {
	f.Add([]byte("a NOOP\r\n"), 6)
	f.Add([]byte(strings.Repeat("the same again, ", 5000)), 9)
	f.Add([]byte{0x4b, 0x04, 0x00, 0x00, 0x00, 0xff, 0xff}, 0)
	writers := map[int]*flate.Writer{}
	for level := -2; level <= 9; level++ {
		writers[level], _ = flate.NewWriter(io.Discard, level) // every level is one
	}
	f.Fuzz(func(t *testing.T, data []byte, level int) {
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), 1<<16))
		got, err := io.ReadAll(io.LimitReader(NewReader(bufio.NewReader(bytes.NewReader(data))), 1<<16))
		if wantErr == nil && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("%x: %q, %v; want %q", data, got, err, want)
		}
		var packed bytes.Buffer
		w := writers[min(max(level, -2), 9)]
		w.Reset(&packed)
		for piece := range bytes.SplitSeq(data, []byte("\n")) {
			w.Write(piece)
			w.Flush()
		}
		w.Close()
		got, err = io.ReadAll(NewReader(bufio.NewReader(&packed)))
		if err != nil || !bytes.Equal(got, bytes.ReplaceAll(data, []byte("\n"), nil)) {
			t.Fatalf("%q came back as %q, %v", data, got, err)
		}
	})
}

// partFlushed is the output of zlib for three commands with a partial flush after each, which ends
// within a byte.
var partFlushed = [...]struct{ packed, text string }{
	{"\x4a\x54\xf0\xf3\xf7\x0f\xe0\xe5\x02\x08", "a NOOP\r\n"},
	{"\xa0\x24\x28\x0d\x10", "b NOOP\r\n"},
	{"\x40\xc9\x0a\xc1\xae\x3e\xae\xce\x21\x0a\x9e\x7e\x4e\xfe\x11\xbc\x5c\x00\x01", "c SELECT INBOX\r\n"},
}

// TestInflateTakesPartialFlushes has what compress/flate waits for ever on.
func TestInflateTakesPartialFlushes(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	z := NewReader(bufio.NewReader(server))
	for _, p := range partFlushed {
		go io.WriteString(client, p.packed)
		got := make([]byte, len(p.text))
		if _, err := io.ReadFull(z, got); err != nil || string(got) != p.text {
			t.Fatalf("%q came as %q, %v", p.text, got, err)
		}
	}
}

// TestInflateDoesNotWait: what a flush makes known is given, though the peer sends nothing more.
func TestInflateDoesNotWait(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	z := NewReader(bufio.NewReader(server))
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a NOOP\r\n", "b NOOP\r\n", strings.Repeat("c NOOP\r\n", 10_000)} {
		packed.Reset()
		w.Write([]byte(text))
		w.Flush()
		go client.Write(packed.Bytes())
		got := make([]byte, len(text))
		if _, err := io.ReadFull(z, got); err != nil || string(got) != text {
			t.Fatalf("%.20q came as %.20q, %v", text, got, err)
		}
	}
}

func BenchmarkInflate(b *testing.B) {
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, 6)
	for i := range 20_000 {
		fmt.Fprintf(w, "a%d UID FETCH %d:%d (FLAGS)\r\n", i, i*7, i*11)
	}
	w.Close()
	for b.Loop() {
		n, err := io.Copy(io.Discard, NewReader(bufio.NewReader(bytes.NewReader(packed.Bytes()))))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(n)
	}
}

func BenchmarkDeflate(b *testing.B) {
	ps, piece := NewPool(), []byte(strings.Repeat("* 12 FETCH (UID 345 FLAGS (\\Seen))\r\n", 900))
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		if err := ps.Write(io.Discard, piece); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewWriter(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewPool().writers.Get()
	}
}

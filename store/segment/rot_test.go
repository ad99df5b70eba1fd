package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

// TestRottenBytesAreNeverServed changes one bit at random places of a segment in use: each message
// is then read as it was written, or not at all, and at most one is lost.
func TestRottenBytesAreNeverServed(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spools, err := OpenSpools(dir)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(8, 14))
	bodies := map[Ref][]byte{}
	for range 40 {
		body := make([]byte, rnd.IntN(3000))
		if rnd.IntN(8) == 0 {
			body = make([]byte, smallBody+rnd.IntN(2*chunkSize))
		}
		for i := range body {
			body[i] = byte(rnd.Uint32())
		}
		spool := spools.New(1 << 20)
		if _, err := spool.Write(body); err != nil {
			t.Fatal(err)
		}
		ref, err := s.Append([]byte("an envelope"), spool)
		if err != nil {
			t.Fatal(err)
		}
		bodies[ref] = body
		spool.Close()
	}
	f, err := os.OpenFile(s.files.path(1), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lost := 0
	for range 200 {
		at, bit := fileHeadSize+rnd.Int64N(s.end-fileHeadSize), byte(1)<<rnd.IntN(8)
		flip(t, f, at, bit)
		s.verified = verifiedRefs{} // as if the time of verification had passed
		failed := 0
		for ref, body := range bodies {
			blob, err := s.Open(ref)
			if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) {
				failed++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("bit %02x at %d: the message at %d is served with other bytes, %v", bit, at, ref.Offset, err)
			}
			blob.Close()
		}
		if failed > 1 {
			t.Errorf("bit %02x at %d: %d messages are lost", bit, at, failed)
		}
		lost += failed
		flip(t, f, at, bit)
	}
	if lost < 190 {
		t.Errorf("%d of 200 changes were found", lost)
	}
}

func flip(t *testing.T, f *os.File, at int64, bit byte) {
	t.Helper()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/store/segment/disktest"
)

func newTestSpools(t *testing.T) *Spools {
	t.Helper()
	s, err := OpenSpools(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSpoolAgreesWithTwin(t *testing.T) {
	spools := newTestSpools(t)
	r := rand.New(rand.NewPCG(7, 7))
	const memory = spoolChunk * spoolChunks
	for _, size := range []int{0, 1, spoolChunk - 1, spoolChunk, spoolChunk + 1, memory - 1, memory, memory + 1, 3*memory + 77} {
		for _, piece := range []int{1 + size, 1000, 32 << 10, memory + 5} {
			want := randomBytes(r, size)
			s := spools.New(int64(size))
			for part := range slices.Chunk(want, piece) {
				if r.IntN(2) == 0 {
					if n, err := s.ReadFrom(bytes.NewReader(part)); n != int64(len(part)) || err != nil {
						t.Fatalf("ReadFrom gives %d, %v", n, err)
					}
				} else if n, err := s.Write(part); n != len(part) || err != nil {
					t.Fatalf("Write gives %d, %v", n, err)
				}
			}
			s.Prepend([]byte("Second: 2\r\n"))
			s.Prepend([]byte("First: 1\r\n"))
			want = append([]byte("First: 1\r\nSecond: 2\r\n"), want...)
			if s.Size() != int64(len(want)) {
				t.Errorf("Size is %d, want %d", s.Size(), len(want))
			}
			wantSpool(t, s, r, want)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func wantSpool(t *testing.T, s *Spool, r *rand.Rand, want []byte) {
	t.Helper()
	if got, err := io.ReadAll(s.Reader()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Reader gives %d bytes that differ from the %d written (%v)", len(got), len(want), err)
	}
	for range 20 {
		off := r.IntN(len(want) + 1)
		p := make([]byte, r.IntN(len(want)+10))
		n, err := s.ReadAt(p, int64(off))
		if (err == nil) != (n == len(p)) || (err != nil && err != io.EOF) {
			t.Errorf("ReadAt of %d bytes at %d of %d gives %d, %v", len(p), off, len(want), n, err)
		}
		if end := min(off+len(p), len(want)); !bytes.Equal(p[:n], want[off:end]) {
			t.Errorf("ReadAt of %d bytes at %d of %d gives other bytes", len(p), off, len(want))
		}
	}
}

func TestSpoolRefusesMoreThanItsMaximum(t *testing.T) {
	s := newTestSpools(t).New(10)
	defer s.Close()
	if n, err := s.Write([]byte("12345678")); n != 8 || err != nil {
		t.Fatalf("Write gives %d, %v", n, err)
	}
	for _, p := range []string{"123", "1"} { // the second would fit
		if n, err := s.Write([]byte(p)); n != 0 || err != ErrTooLarge {
			t.Errorf("Write gives %d, %v", n, err)
		}
	}
	got, err := io.ReadAll(s.Reader())
	if err != nil || string(got) != "12345678" {
		t.Errorf("the spool has %q, %v", got, err)
	}
	b := newBench(t, Options{})
	if _, err := b.Append(nil, s); !errors.Is(err, ErrTooLarge) {
		t.Errorf("append of a cut message gives %v", err)
	}
}

// TestSpoolReadsWhatFits: ReadFrom ends at the maximum, and an error of the reader is not the
// Spool's.
func TestSpoolReadsWhatFits(t *testing.T) {
	spools := newTestSpools(t)
	const limit = spoolChunk + 10
	for size, want := range map[int]error{0: nil, 1: nil, spoolChunk: nil, limit - 1: nil, limit: nil, limit + 1: ErrTooLarge, 3 * limit: ErrTooLarge} {
		s := spools.New(limit)
		n, err := s.ReadFrom(iotest.HalfReader(bytes.NewReader(make([]byte, size))))
		if err != want || n != int64(min(size, limit)) || s.Size() != n {
			t.Errorf("of %d bytes %d are read, %v", size, n, err)
		}
		if _, err := s.Write([]byte("x")); (err == nil) != (size < limit) {
			t.Errorf("a Write after %d bytes gives %v", size, err)
		}
		s.Close()
	}
	s := spools.New(limit)
	defer s.Close()
	if n, err := s.ReadFrom(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(io.ErrNoProgress))); n != 3 || err != io.ErrNoProgress {
		t.Errorf("ReadFrom gives %d, %v", n, err)
	}
	if n, err := s.ReadFrom(strings.NewReader("def")); n != 3 || err != nil {
		t.Errorf("ReadFrom gives %d, %v", n, err)
	}
	if got, err := io.ReadAll(s.Reader()); err != nil || string(got) != "abcdef" {
		t.Errorf("the spool has %q, %v", got, err)
	}
}

func TestSpoolReportsFullDisk(t *testing.T) {
	spools := newTestSpools(t)
	faults := &disktest.Faults{WriteErr: syscall.ENOSPC, Room: 100_000}
	spools.writeAt = faults.WriteAt
	s := spools.New(1 << 30)
	defer s.Close()
	_, err := io.Copy(s, io.LimitReader(zeroReader{}, 1<<20))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("copy gives %v", err)
	}
	if n, again := s.Write([]byte("x")); n != 0 || !errors.Is(again, syscall.ENOSPC) {
		t.Errorf("a later Write gives %d, %v", n, again)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestSpoolLeavesNoNames(t *testing.T) {
	spools := newTestSpools(t)
	leftover := filepath.Join(spools.dir, spoolPrefix+"123")
	if err := os.WriteFile(leftover, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSpools(filepath.Dir(spools.dir)); err != nil {
		t.Fatal(err)
	}
	s := spools.New(1 << 20)
	if _, err := s.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(spools.dir); err != nil || len(entries) != 0 {
		t.Errorf("the directory has %v (%v)", entries, err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Close gives %v", err)
	}
	if _, err := s.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("ReadAt after Close gives %v", err)
	}
}

func TestSpoolHasManyReaders(t *testing.T) {
	want := randomBytes(rand.New(rand.NewPCG(1, 1)), 600_000)
	s := newTestSpools(t).New(1 << 20)
	defer s.Close()
	if _, err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := io.ReadAll(s.Reader()); err != nil || !bytes.Equal(got, want) {
				t.Errorf("a reader gets %d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if n, err := s.ReadAt(make([]byte, 10), int64(len(want))-4); n != 4 || err != io.EOF {
		t.Errorf("ReadAt over the end gives %d, %v", n, err)
	}
	if _, err := s.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("ReadAt before the start succeeds")
	}
}

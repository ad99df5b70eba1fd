package segment

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTornTailIsCutAtEveryByte(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := newBench(t, Options{})
	first, second := randomBytes(r, 500), randomBytes(r, 300)
	ref := b.mustPut(t, []byte("env"), first)
	last := b.mustPut(t, []byte("env of the last"), randomBytes(r, 200))
	path := b.files.path(ref.Segment)
	b.crash()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:int64(last.Offset)+last.Size()]
	for cut := int(last.Offset); cut < len(whole); cut++ {
		garbled := slices.Clone(whole)
		for i := cut; i < len(garbled); i++ {
			garbled[i] ^= byte(1 + r.IntN(255))
		}
		zeroed := append(slices.Clone(whole[:cut]), make([]byte, 5000)...)
		for _, file := range [][]byte{whole[:cut], garbled, zeroed} {
			if bytes.HasPrefix(file, whole) {
				continue // the last bytes were zeros already
			}
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			b.start(t)
			b.wantBody(t, ref, first)
			if _, err := b.get(last); err == nil {
				t.Fatalf("the record cut at byte %d can be opened", cut)
			}
			again := b.mustPut(t, nil, second)
			if again.Offset != last.Offset {
				t.Fatalf("cut at byte %d: the next record is at %d, want %d", cut, again.Offset, last.Offset)
			}
			b.crash()
			b.start(t)
			b.wantBody(t, again, second)
			if err := b.each(1, func(Ref, uint64, []byte) error { return nil }); err != nil {
				t.Fatalf("cut at byte %d: %v", cut, err)
			}
			b.crash()
		}
	}
}

func TestTornTailIsReported(t *testing.T) {
	var out bytes.Buffer
	b := newBench(t, Options{Log: slog.New(slog.NewTextHandler(&out, nil))})
	b.mustPut(t, nil, []byte("one"))
	last := b.mustPut(t, nil, []byte("two"))
	b.crash()
	b.start(t)
	if out.Len() != 0 {
		t.Errorf("opening whole segments logs %s", out.String())
	}
	b.crash()
	if err := os.Truncate(b.files.path(1), int64(last.Offset)+last.Size()-1); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if want := fmt.Sprintf("offset=%d bytes=%d", last.Offset, last.Size()-1); !strings.Contains(out.String(), want) {
		t.Errorf("log %q does not say %q", out.String(), want)
	}
}

func TestEveryFlippedByteIsFound(t *testing.T) {
	b := newBench(t, Options{})
	var refs []Ref
	for i := range 3 {
		refs = append(refs, b.mustPut(t, fmt.Appendf(nil, "envelope %d", i), bytes.Repeat([]byte{byte(i)}, 60)))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	path := b.files.path(1)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		file := slices.Clone(whole)
		file[i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		segs := &Store{files: &fileSet{dir: b.segDir(), known: map[uint32]*segmentFile{}}}
		if err := segs.files.loadSegments(); err != nil {
			t.Fatal(err)
		}
		var found []Ref
		err := segs.each(1, func(ref Ref, _ uint64, _ []byte) error {
			found = append(found, ref)
			return nil
		})
		var damage *damageReport
		if !errors.As(err, &damage) || len(damage.Ranges) != 1 {
			t.Fatalf("byte %d flipped: each gives %v", i, err)
		}
		for _, ref := range refs {
			hit := i >= int(ref.Offset) && i < int(ref.Offset)+int(ref.Size())
			if verifyErr := segs.Verify(ref); (verifyErr != nil) != hit || (verifyErr != nil && !errors.Is(verifyErr, ErrDamaged)) {
				t.Fatalf("byte %d flipped: verify %+v gives %v", i, ref, verifyErr)
			}
			if slices.Contains(found, ref) == hit {
				t.Fatalf("byte %d flipped: each gave %+v", i, found)
			}
			if _, err := segs.openHeadOnly(ref); hit && i < int(ref.Offset+ref.Head) && err == nil {
				t.Fatalf("byte %d of a head flipped: open succeeds", i)
			}
		}
		segs.files.close()
	}
}

func (s *Store) openHeadOnly(ref Ref) (int64, error) {
	blob, err := s.Open(ref)
	if err != nil {
		return 0, err
	}
	return blob.Size(), blob.Close()
}

func TestDamageBeforeWholeRecordsIsKept(t *testing.T) {
	b := newBench(t, Options{})
	var refs []Ref
	for i := range 5 {
		refs = append(refs, b.mustPut(t, nil, bytes.Repeat([]byte{byte(i)}, 3000)))
	}
	b.crash()
	for _, hit := range []uint32{refs[1].Offset, refs[3].Offset + 1000} { // a head, a body
		flipByte(t, b.files.path(1), int64(hit))
	}
	b.start(t)
	for i := range refs {
		err := b.Verify(refs[i])
		if damaged := i == 1 || i == 3; (err != nil) != damaged {
			t.Errorf("verify record %d: %v", i, err)
		}
	}
	next := b.mustPut(t, nil, []byte("next"))
	if int64(next.Offset) != int64(refs[4].Offset)+refs[4].Size() {
		t.Errorf("next record at %d overwrites or skips", next.Offset)
	}
	if err := b.each(1, func(Ref, uint64, []byte) error { return nil }); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "2 damaged ranges") {
		t.Errorf("each gives %v", err)
	}
}

func flipByte(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var p [1]byte
	_, err = f.ReadAt(p[:], off)
	p[0] ^= 0x10
	if _, werr := f.WriteAt(p[:], off); err != nil || werr != nil {
		t.Fatal(err, werr)
	}
}

// A sender may have seen a record of another segment, in a backup say, and hope that recovery takes
// it for a message.
func TestForgedRecordInMessageIsNotFound(t *testing.T) {
	other := newBench(t, Options{})
	ref := other.mustPut(t, []byte("to somebody else"), []byte("forged"))
	forged, err := os.ReadFile(other.files.path(1))
	if err != nil {
		t.Fatal(err)
	}
	forged = forged[ref.Offset:][:ref.Size()]
	b := newBench(t, Options{})
	victim := b.mustPut(t, nil, bytes.Repeat(forged, 100))
	after := b.mustPut(t, nil, []byte("after"))
	b.crash()
	flipByte(t, b.files.path(1), int64(victim.Offset)+20)
	b.start(t)
	var found []Ref
	err = b.each(1, func(ref Ref, _ uint64, _ []byte) error {
		found = append(found, ref)
		return nil
	})
	if !errors.Is(err, ErrDamaged) || len(found) != 1 || found[0] != after {
		t.Errorf("each gives %v and %+v, want only %+v", err, found, after)
	}
}

func TestOlderSegmentsAreTrustedUntilRead(t *testing.T) {
	b := newBench(t, Options{Size: 4096})
	var refs []Ref
	for range 60 {
		refs = append(refs, b.mustPut(t, nil, make([]byte, 400)))
	}
	if len(b.List()) < 5 {
		t.Fatalf("%d segments are too few for this test", len(b.List()))
	}
	b.crash()
	flipByte(t, b.files.path(1), int64(refs[0].Offset)+100)
	b.opts.Disk = osDisk{}
	b.start(t)
	if opened := len(b.files.idle); opened > 1 {
		t.Errorf("open has read %d older segments", opened)
	}
	if err := b.Verify(refs[0]); !errors.Is(err, ErrDamaged) {
		t.Errorf("verify gives %v", err)
	}
	b.wantBody(t, refs[1], make([]byte, 400))
}

func TestSequenceGoesOnAfterReopen(t *testing.T) {
	b := newBench(t, Options{Size: 4096})
	seqs := map[uint64]int{}
	for i := range 40 {
		size := 100
		if i%3 == 0 {
			size = 2000 // a segment of its own
		}
		b.mustPut(t, nil, make([]byte, size))
		switch i {
		case 9, 10, 11, 30:
			b.crash()
			b.start(t)
		case 20: // the header of the newest segment is lost, its first record is whole
			b.crash()
			flipByte(t, b.files.path(b.newest()), 16)
			b.start(t)
		}
	}
	for _, info := range b.List() {
		err := b.each(info.Number, func(_ Ref, seq uint64, _ []byte) error {
			seqs[seq]++
			return nil
		})
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	}
	if len(seqs) != 40 || seqs[1] != 1 || seqs[40] != 1 {
		t.Errorf("sequences are %v", seqs)
	}
}

func (s *bench) newest() uint32 {
	infos, err := filepath.Glob(filepath.Join(s.segDir(), "*"+fileSuffix))
	if err != nil || len(infos) == 0 {
		return 0
	}
	number, _ := parseNumber(strings.TrimSuffix(filepath.Base(slices.Max(infos)), fileSuffix))
	return number
}

func TestSegmentWithoutHeaderIsLeftAlone(t *testing.T) {
	b := newBench(t, Options{})
	b.mustPut(t, nil, []byte("one"))
	b.crash()
	foreign := bytes.Repeat([]byte("not a segment "), 300)
	if err := os.WriteFile(b.files.path(7), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	ref := b.mustPut(t, nil, []byte("two"))
	b.wantBody(t, ref, []byte("two"))
	if got, err := os.ReadFile(b.files.path(7)); err != nil || !bytes.Equal(got, foreign) {
		t.Errorf("the foreign file has changed (%v)", err)
	}
	if err := b.each(7, func(Ref, uint64, []byte) error { return nil }); !errors.Is(err, ErrDamaged) {
		t.Errorf("each of it gives %v", err)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	b := newBench(t, Options{})
	b.mustPut(t, nil, []byte("one"))
	sf := b.active
	d := &recordWriter{}
	if err := d.prepare(nil, record{encoding: 9, body: 3}, strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if err := d.writeTo(b.disk, sf, b.end); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(b.files.path(1))
	b.crash()
	if _, err := Open(b.dir, Options{}); !errors.Is(err, ErrNewer) {
		t.Errorf("open gives %v", err)
	}
	if after, _ := os.ReadFile(b.files.path(1)); !bytes.Equal(before, after) {
		t.Error("open has changed the file")
	}
}

func TestUnfinishedFilesAreRemovedAtOpen(t *testing.T) {
	b := newBench(t, Options{})
	b.crash()
	for _, name := range []string{"00000009.tmp", "keep.tmp", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(b.segDir(), name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.start(t)
	entries, err := os.ReadDir(b.segDir())
	if err != nil || len(entries) != 2 || entries[0].Name() != "keep.tmp" {
		t.Errorf("after open the directory has %v (%v)", entries, err)
	}
}

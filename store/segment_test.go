package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// segBench is segments and spools over one temporary directory.
type segBench struct {
	*segments
	spools *spools
	dir    string
	opts   segOptions
}

func newSegBench(tb testing.TB, o segOptions) *segBench {
	tb.Helper()
	b := &segBench{dir: tb.TempDir(), opts: o}
	var err error
	if b.spools, err = openSpools(filepath.Join(b.dir, "spool")); err != nil {
		tb.Fatal(err)
	}
	b.start(tb)
	tb.Cleanup(func() { b.segments.close() })
	return b
}

func (b *segBench) segDir() string { return filepath.Join(b.dir, "segments") }

func (b *segBench) start(tb testing.TB) {
	tb.Helper()
	var err error
	if b.segments, err = openSegments(b.segDir(), b.opts); err != nil {
		tb.Fatal(err)
	}
}

// crash forgets everything in memory, as a killed process does.
func (b *segBench) crash() { b.files.close() }

func (b *segBench) put(env, body []byte) (BlobRef, error) {
	sp := b.spools.new(int64(len(body)))
	defer sp.Close()
	if _, err := sp.Write(body); err != nil {
		return BlobRef{}, err
	}
	return b.append(env, sp)
}

func (b *segBench) mustPut(tb testing.TB, env, body []byte) BlobRef {
	tb.Helper()
	ref, err := b.put(env, body)
	if err != nil {
		tb.Fatalf("append: %v", err)
	}
	return ref
}

func (b *segBench) get(ref BlobRef) ([]byte, error) {
	blob, err := b.open(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
}

func (b *segBench) wantBody(tb testing.TB, ref BlobRef, want []byte) {
	tb.Helper()
	got, err := b.get(ref)
	if err != nil {
		tb.Fatalf("open %+v: %v", ref, err)
	}
	if !bytes.Equal(got, want) {
		tb.Fatalf("message at %+v has %d bytes that differ from the %d stored", ref, len(got), len(want))
	}
	if err := b.verify(ref); err != nil {
		tb.Fatalf("verify %+v: %v", ref, err)
	}
}

func segBytes(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// segTwin is what a segBench should hold.
type segTwin struct {
	env, body []byte
	seq       uint64
}

func segWantTwin(t *testing.T, b *segBench, twin map[BlobRef]segTwin) {
	t.Helper()
	seen := 0
	for _, info := range b.list() {
		err := b.each(info.Number, func(ref BlobRef, seq uint64, env []byte) error {
			want, ok := twin[ref]
			if !ok {
				return fmt.Errorf("unexpected record %+v", ref)
			}
			if !bytes.Equal(env, want.env) || seq != want.seq {
				return fmt.Errorf("record %+v has sequence %d, want %d, or another envelope", ref, seq, want.seq)
			}
			seen++
			return nil
		})
		if err != nil {
			t.Fatalf("segment %d: %v", info.Number, err)
		}
	}
	if seen != len(twin) {
		t.Fatalf("segments hold %d records, want %d", seen, len(twin))
	}
}

func TestSegmentsAgreeWithTwin(t *testing.T) {
	sizes := []int{0, 1, 40, 900, 4096, 7000, 9000, 70_000, segChunk - 1, segChunk, segChunk + 1, 700_000}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newSegBench(t, segOptions{size: 64 << 10})
		twin := map[BlobRef]segTwin{}
		seq := uint64(1)
		for range 400 {
			switch n := r.IntN(100); {
			case n < 60:
				env, body := segBytes(r, r.IntN(300)), segBytes(r, sizes[r.IntN(len(sizes))])
				twin[b.mustPut(t, env, body)] = segTwin{env, body, seq}
				seq++
			case n < 85:
				for ref, want := range twin {
					b.wantBody(t, ref, want.body)
					break
				}
			case n < 90:
				if err := b.sync(); err != nil || b.dirty() {
					t.Fatalf("sync: %v, dirty %v", err, b.dirty())
				}
			case n < 94:
				segCompactOne(t, b, r, twin)
			case n < 97:
				b.crash()
				b.start(t)
			default:
				if err := b.close(); err != nil {
					t.Fatal(err)
				}
				b.start(t)
			}
		}
		segWantTwin(t, b, twin)
	}
}

// segCompactOne moves all records out of one segment and removes it.
func segCompactOne(t *testing.T, b *segBench, r *rand.Rand, twin map[BlobRef]segTwin) {
	t.Helper()
	infos := slices.DeleteFunc(b.list(), func(i segInfo) bool { return i.Active })
	if len(infos) == 0 {
		return
	}
	number := infos[r.IntN(len(infos))].Number
	var refs []BlobRef
	if err := b.each(number, func(ref BlobRef, _ uint64, _ []byte) error {
		refs = append(refs, ref)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		copied, err := b.copyRecord(ref)
		if err != nil {
			t.Fatal(err)
		}
		twin[copied] = twin[ref]
		delete(twin, ref)
	}
	if err := errors.Join(b.sync(), b.remove(number)); err != nil {
		t.Fatal(err)
	}
}

func TestBlobRefCodec(t *testing.T) {
	want := BlobRef{Segment: 1, Offset: 2, Head: 3, Length: 1 << 31}
	p := want.AppendTo([]byte("x"))[1:]
	got, err := parseBlobRef(p)
	if err != nil || got != want || len(p) != blobRefSize || got.IsZero() || got.Size() != 3+1<<31 {
		t.Errorf("%+v becomes %+v (%v) by way of %x", want, got, err, p)
	}
	if _, err := parseBlobRef(p[:blobRefSize-1]); !errors.Is(err, errBlobRef) {
		t.Errorf("a short reference gives %v", err)
	}
}

func TestTornTailIsCutAtEveryByte(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := newSegBench(t, segOptions{})
	first, second := segBytes(r, 500), segBytes(r, 300)
	ref := b.mustPut(t, []byte("env"), first)
	last := b.mustPut(t, []byte("env of the last"), segBytes(r, 200))
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
			if err := b.each(1, func(BlobRef, uint64, []byte) error { return nil }); err != nil {
				t.Fatalf("cut at byte %d: %v", cut, err)
			}
			b.crash()
		}
	}
}

func TestTornTailIsReported(t *testing.T) {
	var out bytes.Buffer
	b := newSegBench(t, segOptions{log: slog.New(slog.NewTextHandler(&out, nil))})
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
	b := newSegBench(t, segOptions{})
	var refs []BlobRef
	for i := range 3 {
		refs = append(refs, b.mustPut(t, fmt.Appendf(nil, "envelope %d", i), bytes.Repeat([]byte{byte(i)}, 60)))
	}
	if err := b.close(); err != nil {
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
		segs := &segments{files: &segFiles{dir: b.segDir(), known: map[uint32]*segFile{}}}
		if err := segs.files.find(); err != nil {
			t.Fatal(err)
		}
		var found []BlobRef
		err := segs.each(1, func(ref BlobRef, _ uint64, _ []byte) error {
			found = append(found, ref)
			return nil
		})
		var damage *segDamage
		if !errors.As(err, &damage) || len(damage.Ranges) != 1 {
			t.Fatalf("byte %d flipped: each gives %v", i, err)
		}
		for _, ref := range refs {
			hit := i >= int(ref.Offset) && i < int(ref.Offset)+int(ref.Size())
			if verifyErr := segs.verify(ref); (verifyErr != nil) != hit || (verifyErr != nil && !errors.Is(verifyErr, errSegDamaged)) {
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

func (s *segments) openHeadOnly(ref BlobRef) (int64, error) {
	blob, err := s.open(ref)
	if err != nil {
		return 0, err
	}
	return blob.Size(), blob.Close()
}

func TestDamageBeforeWholeRecordsIsKept(t *testing.T) {
	b := newSegBench(t, segOptions{})
	var refs []BlobRef
	for i := range 5 {
		refs = append(refs, b.mustPut(t, nil, bytes.Repeat([]byte{byte(i)}, 3000)))
	}
	b.crash()
	for _, hit := range []uint32{refs[1].Offset, refs[3].Offset + 1000} { // a head, a body
		segFlip(t, b.files.path(1), int64(hit))
	}
	b.start(t)
	for i := range refs {
		err := b.verify(refs[i])
		if damaged := i == 1 || i == 3; (err != nil) != damaged {
			t.Errorf("verify record %d: %v", i, err)
		}
	}
	next := b.mustPut(t, nil, []byte("next"))
	if int64(next.Offset) != int64(refs[4].Offset)+refs[4].Size() {
		t.Errorf("next record at %d overwrites or skips", next.Offset)
	}
	if err := b.each(1, func(BlobRef, uint64, []byte) error { return nil }); !errors.Is(err, errSegDamaged) || !strings.Contains(err.Error(), "2 damaged ranges") {
		t.Errorf("each gives %v", err)
	}
}

func segFlip(t *testing.T, path string, off int64) {
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

// A sender may have seen a record of another segment, in a backup say, and hope that recovery takes it for a message.
func TestForgedRecordInMessageIsNotFound(t *testing.T) {
	other := newSegBench(t, segOptions{})
	ref := other.mustPut(t, []byte("to somebody else"), []byte("forged"))
	forged, err := os.ReadFile(other.files.path(1))
	if err != nil {
		t.Fatal(err)
	}
	forged = forged[ref.Offset:][:ref.Size()]
	b := newSegBench(t, segOptions{})
	victim := b.mustPut(t, nil, bytes.Repeat(forged, 100))
	after := b.mustPut(t, nil, []byte("after"))
	b.crash()
	segFlip(t, b.files.path(1), int64(victim.Offset)+20)
	b.start(t)
	var found []BlobRef
	err = b.each(1, func(ref BlobRef, _ uint64, _ []byte) error {
		found = append(found, ref)
		return nil
	})
	if !errors.Is(err, errSegDamaged) || len(found) != 1 || found[0] != after {
		t.Errorf("each gives %v and %+v, want only %+v", err, found, after)
	}
}

func TestOlderSegmentsAreTrustedUntilRead(t *testing.T) {
	b := newSegBench(t, segOptions{size: 4096})
	var refs []BlobRef
	for range 60 {
		refs = append(refs, b.mustPut(t, nil, make([]byte, 400)))
	}
	if len(b.list()) < 5 {
		t.Fatalf("%d segments are too few for this test", len(b.list()))
	}
	b.crash()
	segFlip(t, b.files.path(1), int64(refs[0].Offset)+100)
	b.opts.disk = segOSDisk()
	b.start(t)
	if opened := len(b.files.idle); opened > 1 {
		t.Errorf("open has read %d older segments", opened)
	}
	if err := b.verify(refs[0]); !errors.Is(err, errSegDamaged) {
		t.Errorf("verify gives %v", err)
	}
	b.wantBody(t, refs[1], make([]byte, 400))
}

func TestSequenceGoesOnAfterReopen(t *testing.T) {
	b := newSegBench(t, segOptions{size: 4096})
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
			segFlip(t, b.files.path(b.newest()), 16)
			b.start(t)
		}
	}
	for _, info := range b.list() {
		err := b.each(info.Number, func(_ BlobRef, seq uint64, _ []byte) error {
			seqs[seq]++
			return nil
		})
		if err != nil && !errors.Is(err, errSegDamaged) {
			t.Fatal(err)
		}
	}
	if len(seqs) != 40 || seqs[1] != 1 || seqs[40] != 1 {
		t.Errorf("sequences are %v", seqs)
	}
}

func (s *segBench) newest() uint32 {
	infos, err := filepath.Glob(filepath.Join(s.segDir(), "*"+segSuffix))
	if err != nil || len(infos) == 0 {
		return 0
	}
	number, _ := segNumber(strings.TrimSuffix(filepath.Base(slices.Max(infos)), segSuffix))
	return number
}

func TestSegmentWithoutHeaderIsLeftAlone(t *testing.T) {
	b := newSegBench(t, segOptions{})
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
	if err := b.each(7, func(BlobRef, uint64, []byte) error { return nil }); !errors.Is(err, errSegDamaged) {
		t.Errorf("each of it gives %v", err)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	b := newSegBench(t, segOptions{})
	b.mustPut(t, nil, []byte("one"))
	sf := b.active
	d := &segDraft{}
	if err := d.fill(nil, segRecord{encoding: 9, body: 3}, strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if err := d.writeTo(b.disk, sf, b.end); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(b.files.path(1))
	b.crash()
	if _, err := openSegments(b.segDir(), segOptions{}); !errors.Is(err, errSegNewer) {
		t.Errorf("open gives %v", err)
	}
	if after, _ := os.ReadFile(b.files.path(1)); !bytes.Equal(before, after) {
		t.Error("open has changed the file")
	}
}

func TestUnfinishedFilesAreRemovedAtOpen(t *testing.T) {
	b := newSegBench(t, segOptions{})
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

func TestEnvelopeOver64KiBIsRefused(t *testing.T) {
	b := newSegBench(t, segOptions{})
	if _, err := b.put(make([]byte, segMaxEnv+1), nil); !errors.Is(err, errSegEnvelope) {
		t.Errorf("append gives %v", err)
	}
	env := bytes.Repeat([]byte("e"), segMaxEnv)
	b.mustPut(t, env, []byte("body"))
	if err := b.each(1, func(_ BlobRef, _ uint64, got []byte) error {
		if !bytes.Equal(got, env) {
			return errors.New("another envelope")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestWrongReferencesAreRefused(t *testing.T) {
	b := newSegBench(t, segOptions{})
	ref := b.mustPut(t, []byte("env"), make([]byte, 1000))
	b.mustPut(t, []byte("env"), make([]byte, 1000))
	if _, err := b.open(BlobRef{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of no reference gives %v", err)
	}
	for _, change := range []func(*BlobRef){
		func(r *BlobRef) { r.Offset++ },
		func(r *BlobRef) { r.Offset = 1 << 31 },
		func(r *BlobRef) { r.Head-- },
		func(r *BlobRef) { r.Head = 1 << 31 },
		func(r *BlobRef) { r.Head = 0 },
		func(r *BlobRef) { r.Length-- },
		func(r *BlobRef) { r.Length = 1<<32 - 1 },
	} {
		wrong := ref
		change(&wrong)
		if _, err := b.open(wrong); !errors.Is(err, errSegDamaged) {
			t.Errorf("open %+v gives %v", wrong, err)
		}
	}
}

func TestReadersKeepRemovedSegment(t *testing.T) {
	b := newSegBench(t, segOptions{size: 4096})
	body := bytes.Repeat([]byte("b"), 300)
	ref := b.mustPut(t, nil, body)
	if err := b.remove(ref.Segment); !errors.Is(err, errSegActive) {
		t.Errorf("remove of the active segment gives %v", err)
	}
	blob, err := b.open(ref)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		b.mustPut(t, nil, body)
	}
	if err := b.remove(ref.Segment); err != nil {
		t.Fatal(err)
	}
	if _, err := b.open(ref); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open after remove gives %v", err)
	}
	if err := b.remove(ref.Segment); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second remove gives %v", err)
	}
	got := make([]byte, 300)
	if _, err := blob.ReadAt(got, 0); err != nil || !bytes.Equal(got, body) {
		t.Errorf("reader of the removed segment gets %v", err)
	}
	if err := errors.Join(blob.Close(), blob.Close()); err != nil {
		t.Error(err)
	}
	if _, err := blob.ReadAt(got, 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read after close gives %v", err)
	}
	if err := blob.sf.f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the last reader has not closed the file: %v", err)
	}
}

func TestIdleFilesAreBounded(t *testing.T) {
	b := newSegBench(t, segOptions{size: 512})
	var refs []BlobRef
	for range segMaxIdle + 40 {
		refs = append(refs, b.mustPut(t, nil, make([]byte, 200)))
	}
	for range 2 {
		for _, ref := range refs {
			b.wantBody(t, ref, make([]byte, 200))
		}
	}
	if n := len(b.files.idle); n != segMaxIdle {
		t.Errorf("%d idle files are open, want %d", n, segMaxIdle)
	}
}

func TestHugeMessageTakesConstantMemory(t *testing.T) {
	b := newSegBench(t, segOptions{})
	const size = 70 << 20
	sp := b.spools.new(size)
	defer sp.Close()
	line := bytes.Repeat([]byte("0123456789abcdef"), 2048)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range size / len(line) {
		if _, err := sp.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	sp.Prepend([]byte("Received: here\r\n"))
	ref, err := b.append([]byte("env"), sp)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.verify(ref); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("storing and verifying 70 MiB allocates %d bytes", grown)
	}
	if b.dirty() {
		t.Error("a message in a segment of its own is not on disk at once")
	}
	small := b.mustPut(t, nil, []byte("small"))
	if small.Segment == ref.Segment {
		t.Error("a small message shares the segment of a huge one")
	}
	b.crash()
	b.start(t)
	if err := errors.Join(b.verify(ref), b.verify(small)); err != nil {
		t.Error(err)
	}
}

func TestAppendSyncReadRemoveTogether(t *testing.T) {
	b := newSegBench(t, segOptions{size: 256 << 10})
	var wg sync.WaitGroup
	var done atomic.Bool
	wg.Go(func() {
		for !done.Load() {
			if err := b.sync(); err != nil {
				t.Error(err)
			}
			for _, info := range b.list() {
				if err := b.each(info.Number, func(BlobRef, uint64, []byte) error { return nil }); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			}
		}
	})
	var writers sync.WaitGroup
	for g := range 8 {
		writers.Go(func() { segWriteAndRead(t, b, uint64(g)) })
	}
	writers.Wait()
	done.Store(true)
	wg.Wait()
}

func segWriteAndRead(t *testing.T, b *segBench, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range 60 {
		n := 4096
		if i%20 == 0 {
			n = 300 << 10
		}
		body := segBytes(r, n)
		ref, err := b.put([]byte("env"), body)
		if err != nil {
			t.Error(err)
			return
		}
		if err := b.sync(); err != nil {
			t.Error(err)
		}
		if got, err := b.get(ref); err != nil || !bytes.Equal(got, body) {
			t.Errorf("message at %+v: %v", ref, err)
		}
		if n > 4096 {
			if err := b.remove(ref.Segment); err != nil {
				t.Error(err)
			}
		}
	}
}

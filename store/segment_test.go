package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	if b.spools, err = openSpools(b.dir); err != nil {
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
	if b.segments, err = openSegments(b.dir, b.opts); err != nil {
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

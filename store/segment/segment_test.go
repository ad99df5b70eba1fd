package segment

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
	"time"
)

// bench is segments and spools over one temporary directory.
type bench struct {
	*Store
	spools *Spools
	dir    string
	opts   Options
}

func newBench(tb testing.TB, o Options) *bench {
	tb.Helper()
	b := &bench{dir: tb.TempDir(), opts: o}
	var err error
	b.spools, err = OpenSpools(b.dir)
	if err != nil {
		tb.Fatal(err)
	}
	b.start(tb)
	tb.Cleanup(func() { b.Store.Close() })
	return b
}

func (b *bench) segDir() string { return filepath.Join(b.dir, "segments") }

func (b *bench) start(tb testing.TB) {
	tb.Helper()
	var err error
	b.Store, err = Open(b.dir, b.opts)
	if err != nil {
		tb.Fatal(err)
	}
}

// crash forgets everything in memory, as a killed process does.
func (b *bench) crash() { b.files.close() }

func (b *bench) put(env, body []byte) (Ref, error) {
	sp := b.spools.New(int64(len(body)))
	defer sp.Close()
	if _, err := sp.Write(body); err != nil {
		return Ref{}, err
	}
	return b.Append(env, sp)
}

func (b *bench) mustPut(tb testing.TB, env, body []byte) Ref {
	tb.Helper()
	ref, err := b.put(env, body)
	if err != nil {
		tb.Fatalf("append: %v", err)
	}
	return ref
}

func (b *bench) get(ref Ref) ([]byte, error) {
	blob, err := b.Open(ref)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
}

func (b *bench) wantBody(tb testing.TB, ref Ref, want []byte) {
	tb.Helper()
	got, err := b.get(ref)
	if err != nil {
		tb.Fatalf("open %+v: %v", ref, err)
	}
	if !bytes.Equal(got, want) {
		tb.Fatalf("message at %+v has %d bytes that differ from the %d stored", ref, len(got), len(want))
	}
	if err := b.Verify(ref); err != nil {
		tb.Fatalf("verify %+v: %v", ref, err)
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// twinRecord is a record that a bench should hold.
type twinRecord struct {
	env, body []byte
	seq       uint64
}

func wantTwin(t *testing.T, b *bench, twin map[Ref]twinRecord) {
	t.Helper()
	seen := 0
	for _, info := range b.List() {
		err := b.each(info.Number, func(ref Ref, seq uint64, env []byte) error {
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
	sizes := []int{0, 1, 40, 900, 4096, 7000, 9000, 70_000, chunkSize - 1, chunkSize, chunkSize + 1, 700_000}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, Options{Size: 64 << 10})
		twin := map[Ref]twinRecord{}
		seq := uint64(1)
		for range 400 {
			switch n := r.IntN(100); {
			case n < 60:
				env, body := randomBytes(r, r.IntN(300)), randomBytes(r, sizes[r.IntN(len(sizes))])
				twin[b.mustPut(t, env, body)] = twinRecord{env, body, seq}
				seq++
			case n < 85:
				for ref, want := range twin {
					b.wantBody(t, ref, want.body)
					break
				}
			case n < 90:
				if err := b.Sync(); err != nil || b.dirty() {
					t.Fatalf("sync: %v, dirty %v", err, b.dirty())
				}
			case n < 94:
				compactOne(t, b, r, twin)
			case n < 97:
				b.crash()
				b.start(t)
			default:
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				b.start(t)
			}
		}
		wantTwin(t, b, twin)
	}
}

// compactOne moves all records out of one segment and removes it.
func compactOne(t *testing.T, b *bench, r *rand.Rand, twin map[Ref]twinRecord) {
	t.Helper()
	infos := slices.DeleteFunc(b.List(), func(i Info) bool { return i.Active })
	if len(infos) == 0 {
		return
	}
	number := infos[r.IntN(len(infos))].Number
	var refs []Ref
	if err := b.each(number, func(ref Ref, _ uint64, _ []byte) error {
		refs = append(refs, ref)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		copied, err := b.Copy(ref)
		if err != nil {
			t.Fatal(err)
		}
		twin[copied] = twin[ref]
		delete(twin, ref)
	}
	if err := errors.Join(b.Sync(), b.Remove(number)); err != nil {
		t.Fatal(err)
	}
}

func TestBlobRefCodec(t *testing.T) {
	want := Ref{Segment: 1, Offset: 2, Head: 3, Length: 1 << 31}
	p := want.AppendTo([]byte("x"))[1:]
	got, err := ParseRef(p)
	if err != nil || got != want || len(p) != refSize || got.IsZero() || got.Size() != 3+1<<31 {
		t.Errorf("%+v becomes %+v (%v) by way of %x", want, got, err, p)
	}
	if _, err := ParseRef(p[:refSize-1]); !errors.Is(err, ErrRef) {
		t.Errorf("a short reference gives %v", err)
	}
}

func TestEnvelopeOver64KiBIsRefused(t *testing.T) {
	b := newBench(t, Options{})
	if _, err := b.put(make([]byte, maxEnvelope+1), nil); !errors.Is(err, ErrEnvelope) {
		t.Errorf("append gives %v", err)
	}
	env := bytes.Repeat([]byte("e"), maxEnvelope)
	b.mustPut(t, env, []byte("body"))
	if err := b.each(1, func(_ Ref, _ uint64, got []byte) error {
		if !bytes.Equal(got, env) {
			return errors.New("another envelope")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestWrongReferencesAreRefused(t *testing.T) {
	b := newBench(t, Options{})
	ref := b.mustPut(t, []byte("env"), make([]byte, 1000))
	b.mustPut(t, []byte("env"), make([]byte, 1000))
	if _, err := b.Open(Ref{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of no reference gives %v", err)
	}
	for _, change := range []func(*Ref){
		func(r *Ref) { r.Offset++ },
		func(r *Ref) { r.Offset = 1 << 31 },
		func(r *Ref) { r.Head-- },
		func(r *Ref) { r.Head = 1 << 31 },
		func(r *Ref) { r.Head = 0 },
		func(r *Ref) { r.Length-- },
		func(r *Ref) { r.Length = 1<<32 - 1 },
	} {
		wrong := ref
		change(&wrong)
		if _, err := b.Open(wrong); !errors.Is(err, ErrDamaged) {
			t.Errorf("open %+v gives %v", wrong, err)
		}
	}
}

func TestReadersKeepRemovedSegment(t *testing.T) {
	b := newBench(t, Options{Size: 4096})
	body := bytes.Repeat([]byte("b"), 300)
	ref := b.mustPut(t, nil, body)
	if err := b.Remove(ref.Segment); !errors.Is(err, ErrActive) {
		t.Errorf("remove of the active segment gives %v", err)
	}
	blob, err := b.Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		b.mustPut(t, nil, body)
	}
	if err := b.Remove(ref.Segment); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(ref); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open after remove gives %v", err)
	}
	if err := b.Remove(ref.Segment); !errors.Is(err, fs.ErrNotExist) {
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
	b := newBench(t, Options{Size: 512})
	var refs []Ref
	for range maxIdleFiles + 40 {
		refs = append(refs, b.mustPut(t, nil, make([]byte, 200)))
	}
	for range 2 {
		for _, ref := range refs {
			b.wantBody(t, ref, make([]byte, 200))
		}
	}
	if n := len(b.files.idle); n != maxIdleFiles {
		t.Errorf("%d idle files are open, want %d", n, maxIdleFiles)
	}
}

func TestHugeMessageTakesConstantMemory(t *testing.T) {
	b := newBench(t, Options{})
	const size = 70 << 20
	sp := b.spools.New(size)
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
	ref, err := b.Append([]byte("env"), sp)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(ref); err != nil {
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
	if err := errors.Join(b.Verify(ref), b.Verify(small)); err != nil {
		t.Error(err)
	}
}

func TestAppendSyncReadRemoveTogether(t *testing.T) {
	b := newBench(t, Options{Size: 256 << 10})
	var wg sync.WaitGroup
	var done atomic.Bool
	wg.Go(func() {
		for !done.Load() {
			if err := b.Sync(); err != nil {
				t.Error(err)
			}
			for _, info := range b.List() {
				if err := b.each(info.Number, func(Ref, uint64, []byte) error { return nil }); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			}
		}
	})
	var writers sync.WaitGroup
	for g := range 8 {
		writers.Go(func() { writeAndRead(t, b, uint64(g)) })
	}
	writers.Wait()
	done.Store(true)
	wg.Wait()
}

func writeAndRead(t *testing.T, b *bench, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range 60 {
		n := 4096
		if i%20 == 0 {
			n = 300 << 10
		}
		body := randomBytes(r, n)
		ref, err := b.put([]byte("env"), body)
		if err != nil {
			t.Error(err)
			return
		}
		if err := b.Sync(); err != nil {
			t.Error(err)
		}
		if got, err := b.get(ref); err != nil || !bytes.Equal(got, body) {
			t.Errorf("message at %+v: %v", ref, err)
		}
		if n > 4096 {
			if err := b.Remove(ref.Segment); err != nil {
				t.Error(err)
			}
		}
	}
}

// slowSyncs is a disk whose syncs report that they have begun, and then wait.
type slowSyncs struct {
	osDisk
	begun, end chan struct{}
}

func (d slowSyncs) Datasync(f *os.File) error {
	d.begun <- struct{}{}
	<-d.end
	return d.osDisk.Datasync(f)
}

// TestSyncIsShared: those that wait while a sync is in progress need one further sync, whatever is
// appended during that one.
func TestSyncIsShared(t *testing.T) {
	disk := slowSyncs{begun: make(chan struct{}), end: make(chan struct{})}
	b := newBench(t, Options{Disk: disk})
	const waiters = 8
	results := make(chan error, waiters+1)
	put := func() {
		if _, err := b.put(nil, []byte("body")); err != nil {
			t.Error(err)
		}
	}
	var begun sync.WaitGroup
	begin := func() {
		begun.Add(1)
		go func() {
			begun.Done()
			results <- b.Sync()
		}()
	}
	one := func() {
		<-disk.begun
		disk.end <- struct{}{}
	}
	go one() // the first append creates a file, which is synced before it gets its name
	put()
	begin()
	<-disk.begun
	put()
	for range waiters {
		begin()
	}
	begun.Wait()
	time.Sleep(100 * time.Millisecond) // so that all of them wait
	disk.end <- struct{}{}
	<-disk.begun
	put()
	disk.end <- struct{}{}
	for range waiters + 1 {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
		case <-disk.begun:
			t.Error("there is a third sync")
			disk.end <- struct{}{}
		}
	}
	go one() // the sync of Close: the last append is not on disk yet
}

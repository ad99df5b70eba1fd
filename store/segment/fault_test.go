package segment

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/store/segment/disktest"
)

func TestFullDiskAtEveryByteLeavesNothing(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		faults := &disktest.Faults{}
		b := newBench(t, Options{Size: 16 << 10, Disk: faults})
		first := bytes.Repeat([]byte("a"), 100)
		ref := b.mustPut(t, nil, first)
		body := bytes.Repeat([]byte("b"), 150)
		for room := range int64(recordHeadSize + 3 + len(body)) {
			faults.Set(func() { faults.WriteErr, faults.Room = cause, room })
			if _, err := b.put([]byte("env"), body); !errors.Is(err, cause) || !strings.Contains(err.Error(), "append to segment") {
				t.Fatalf("append with room for %d bytes gives %v", room, err)
			}
			if room%50 == 0 {
				b.crash()
				b.start(t)
			}
			wantTwin(t, b, map[Ref]twinRecord{ref: {body: first, seq: 1}})
		}
		faults.Set(func() { faults.WriteErr = nil })
		next := b.mustPut(t, []byte("env"), body)
		b.crash()
		b.start(t)
		b.wantBody(t, next, body)
		wantTwin(t, b, map[Ref]twinRecord{ref: {body: first, seq: 1}, next: {env: []byte("env"), body: body, seq: 2}})
	}
}

func TestFullDiskForZerosAheadIsNoError(t *testing.T) {
	faults := &disktest.Faults{}
	b := newBench(t, Options{Disk: faults})
	body := bytes.Repeat([]byte("b"), 4096)
	b.mustPut(t, nil, body)
	size := int64(recordHeadSize + len(body))
	for b.end+size <= b.zeroed {
		b.mustPut(t, nil, body)
	}
	faults.Set(func() { faults.WriteErr, faults.Room = syscall.ENOSPC, size+100 })
	ref := b.mustPut(t, nil, body)
	if info, err := os.Stat(b.files.path(1)); err != nil || info.Size() != b.end {
		t.Errorf("the file has %d bytes (%v), want %d", info.Size(), err, b.end)
	}
	b.wantBody(t, ref, body)
}

func TestFullDiskForOwnSegmentLeavesNoFile(t *testing.T) {
	faults := &disktest.Faults{}
	b := newBench(t, Options{Size: 4096, Disk: faults})
	for _, room := range []int64{0, 10, fileHeadSize, fileHeadSize + 20, fileHeadSize + 3000} {
		faults.Set(func() { faults.WriteErr, faults.Room = syscall.ENOSPC, room })
		if _, err := b.put(nil, make([]byte, 3000)); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("append with room for %d bytes gives %v", room, err)
		}
		if _, err := b.put(nil, make([]byte, 10)); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("append to no segment with a full disk gives %v", err)
		}
		if names, err := filepath.Glob(filepath.Join(b.segDir(), "*.tmp")); err != nil || len(names) != 0 {
			t.Fatalf("unfinished files are left: %v (%v)", names, err)
		}
	}
	faults.Set(func() { faults.WriteErr = nil })
	b.wantBody(t, b.mustPut(t, nil, make([]byte, 3000)), make([]byte, 3000))
	b.wantBody(t, b.mustPut(t, nil, make([]byte, 10)), make([]byte, 10))
}

func TestFailedSyncEndsAppendsForGood(t *testing.T) {
	small, large := make([]byte, 100), make([]byte, 3000)
	for name, failing := range map[string]func(b *bench, d *disktest.Faults) error{
		"sync": func(b *bench, d *disktest.Faults) error { return b.Sync() },
		"seal": func(b *bench, d *disktest.Faults) error {
			for range 100 {
				if _, err := b.put(nil, small); err != nil {
					return err
				}
			}
			return nil
		},
		"own segment": func(b *bench, d *disktest.Faults) error {
			_, err := b.put(nil, large)
			return err
		},
		"directory": func(b *bench, d *disktest.Faults) error {
			d.SyncErr, d.DirErr = nil, syscall.EIO
			_, err := b.put(nil, large)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults := &disktest.Faults{}
			b := newBench(t, Options{Size: 4096, Disk: faults})
			ref := b.mustPut(t, nil, small)
			faults.SyncErr = syscall.EIO
			if err := failing(b, faults); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("the failing sync gives %v", err)
			}
			faults.SyncErr, faults.DirErr = nil, nil
			syncs := faults.Syncs
			if err := b.Sync(); !errors.Is(err, ErrFailed) {
				t.Errorf("a later sync gives %v", err)
			}
			for _, body := range [][]byte{small, large} {
				if _, err := b.put(nil, body); !errors.Is(err, ErrFailed) {
					t.Errorf("a later append gives %v", err)
				}
			}
			b.wantBody(t, ref, small)
			if err := b.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("close gives %v", err)
			}
			if faults.Syncs != syncs {
				t.Error("a sync was tried again")
			}
		})
	}
}

func TestFailedDirectorySyncAtRemove(t *testing.T) {
	faults := &disktest.Faults{}
	b := newBench(t, Options{Size: 4096, Disk: faults})
	ref := b.mustPut(t, nil, make([]byte, 3000))
	faults.DirErr = syscall.EIO
	if err := b.Remove(ref.Segment); !errors.Is(err, ErrFailed) {
		t.Errorf("remove gives %v", err)
	}
	if err := b.Remove(ref.Segment); !errors.Is(err, ErrFailed) {
		t.Errorf("remove after the failure gives %v", err)
	}
}

// syncHook is a disk that calls before at the start of each sync of a file.
type syncHook struct {
	Disk
	before func(f *os.File)
}

func (d syncHook) Datasync(f *os.File) error {
	d.before(f)
	return d.Disk.Datasync(f)
}

func TestAppendDuringSyncStaysDirty(t *testing.T) {
	faults := &disktest.Faults{}
	entered, leave := make(chan struct{}), make(chan struct{})
	held := true
	b := newBench(t, Options{Disk: syncHook{faults, func(f *os.File) {
		if strings.HasSuffix(f.Name(), fileSuffix) && held {
			held = false
			close(entered)
			<-leave
		}
	}}})
	b.mustPut(t, nil, []byte("one"))
	synced := make(chan error)
	go func() { synced <- b.Sync() }()
	<-entered
	if !b.dirty() {
		t.Error("clean before the sync has ended")
	}
	b.mustPut(t, nil, []byte("two"))
	close(leave)
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	if !b.dirty() {
		t.Error("clean although an append came during the sync")
	}
	if err := b.Sync(); err != nil || b.dirty() {
		t.Errorf("after another sync: %v, dirty %v", err, b.dirty())
	}
	syncs := faults.Syncs
	if err := b.Sync(); err != nil || faults.Syncs != syncs {
		t.Errorf("a sync with nothing to do: %v, %d syncs", err, faults.Syncs-syncs)
	}
}

func TestClosedSegmentsRefuseAppends(t *testing.T) {
	b := newBench(t, Options{})
	ref := b.mustPut(t, nil, []byte("one"))
	blob, err := b.Open(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.put(nil, []byte("two")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("append gives %v", err)
	}
	p := make([]byte, 3)
	if _, err := blob.ReadAt(p, 0); err != nil || string(p) != "one" {
		t.Errorf("an open blob reads %q, %v", p, err)
	}
	if err := blob.Close(); err != nil {
		t.Error(err)
	}
}

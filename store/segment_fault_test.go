package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// segFaults is a disk that takes room bytes and fails syncs when told to.
type segFaults struct {
	mu       sync.Mutex
	room     int64
	writeErr error
	syncErr  error
	dirErr   error
	syncs    int
}

func (d *segFaults) disk() segDisk {
	return segDisk{writeAt: d.writeAt, datasync: d.datasync, syncDir: d.syncDir}
}

func (d *segFaults) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// writeAt writes what there is room for, as the system does before ENOSPC. Room is taken by the
// bytes written, not by the file's length.
func (d *segFaults) writeAt(f *os.File, p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int(min(d.room, int64(len(p))))
	if d.writeErr == nil {
		return f.WriteAt(p, off)
	}
	d.room -= int64(n)
	if n, err := f.WriteAt(p[:n], off); err != nil || n == len(p) {
		return n, err
	}
	return n, &os.PathError{Op: "write", Path: f.Name(), Err: d.writeErr}
}

func (d *segFaults) datasync(f *os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	if d.syncErr != nil {
		return d.syncErr
	}
	return segDatasync(f)
}

func (d *segFaults) syncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dirErr != nil {
		return d.dirErr
	}
	return segSyncDir(dir)
}

func TestFullDiskAtEveryByteLeavesNothing(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		faults := &segFaults{}
		b := newSegBench(t, segOptions{size: 16 << 10, disk: faults.disk()})
		first := bytes.Repeat([]byte("a"), 100)
		ref := b.mustPut(t, nil, first)
		body := bytes.Repeat([]byte("b"), 150)
		for room := range int64(segRecordHead + 3 + len(body)) {
			faults.set(func() { faults.writeErr, faults.room = cause, room })
			if _, err := b.put([]byte("env"), body); !errors.Is(err, cause) || !strings.Contains(err.Error(), "append to segment") {
				t.Fatalf("append with room for %d bytes gives %v", room, err)
			}
			if room%50 == 0 {
				b.crash()
				b.start(t)
			}
			segWantTwin(t, b, map[BlobRef]segTwin{ref: {body: first, seq: 1}})
		}
		faults.set(func() { faults.writeErr = nil })
		next := b.mustPut(t, []byte("env"), body)
		b.crash()
		b.start(t)
		b.wantBody(t, next, body)
		segWantTwin(t, b, map[BlobRef]segTwin{ref: {body: first, seq: 1}, next: {env: []byte("env"), body: body, seq: 2}})
	}
}

func TestFullDiskForZerosAheadIsNoError(t *testing.T) {
	faults := &segFaults{}
	b := newSegBench(t, segOptions{disk: faults.disk()})
	body := bytes.Repeat([]byte("b"), 4096)
	b.mustPut(t, nil, body)
	size := int64(segRecordHead + len(body))
	for b.end+size <= b.zeroed {
		b.mustPut(t, nil, body)
	}
	faults.set(func() { faults.writeErr, faults.room = syscall.ENOSPC, size+100 })
	ref := b.mustPut(t, nil, body)
	if info, err := os.Stat(b.files.path(1)); err != nil || info.Size() != b.end {
		t.Errorf("the file has %d bytes (%v), want %d", info.Size(), err, b.end)
	}
	b.wantBody(t, ref, body)
}

func TestFullDiskForOwnSegmentLeavesNoFile(t *testing.T) {
	faults := &segFaults{}
	b := newSegBench(t, segOptions{size: 4096, disk: faults.disk()})
	for _, room := range []int64{0, 10, segFileHead, segFileHead + 20, segFileHead + 3000} {
		faults.set(func() { faults.writeErr, faults.room = syscall.ENOSPC, room })
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
	faults.set(func() { faults.writeErr = nil })
	b.wantBody(t, b.mustPut(t, nil, make([]byte, 3000)), make([]byte, 3000))
	b.wantBody(t, b.mustPut(t, nil, make([]byte, 10)), make([]byte, 10))
}

func TestFailedSyncEndsAppendsForGood(t *testing.T) {
	small, large := make([]byte, 100), make([]byte, 3000)
	for name, failing := range map[string]func(b *segBench, d *segFaults) error{
		"sync": func(b *segBench, d *segFaults) error { return b.sync() },
		"seal": func(b *segBench, d *segFaults) error {
			for range 100 {
				if _, err := b.put(nil, small); err != nil {
					return err
				}
			}
			return nil
		},
		"own segment": func(b *segBench, d *segFaults) error {
			_, err := b.put(nil, large)
			return err
		},
		"directory": func(b *segBench, d *segFaults) error {
			d.syncErr, d.dirErr = nil, syscall.EIO
			_, err := b.put(nil, large)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults := &segFaults{}
			b := newSegBench(t, segOptions{size: 4096, disk: faults.disk()})
			ref := b.mustPut(t, nil, small)
			faults.syncErr = syscall.EIO
			if err := failing(b, faults); !errors.Is(err, errSegFailed) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("the failing sync gives %v", err)
			}
			faults.syncErr, faults.dirErr = nil, nil
			syncs := faults.syncs
			if err := b.sync(); !errors.Is(err, errSegFailed) {
				t.Errorf("a later sync gives %v", err)
			}
			for _, body := range [][]byte{small, large} {
				if _, err := b.put(nil, body); !errors.Is(err, errSegFailed) {
					t.Errorf("a later append gives %v", err)
				}
			}
			b.wantBody(t, ref, small)
			if err := b.close(); !errors.Is(err, errSegFailed) {
				t.Errorf("close gives %v", err)
			}
			if faults.syncs != syncs {
				t.Error("a sync was tried again")
			}
		})
	}
}

func TestFailedDirectorySyncAtRemove(t *testing.T) {
	faults := &segFaults{}
	b := newSegBench(t, segOptions{size: 4096, disk: faults.disk()})
	ref := b.mustPut(t, nil, make([]byte, 3000))
	faults.dirErr = syscall.EIO
	if err := b.remove(ref.Segment); !errors.Is(err, errSegFailed) {
		t.Errorf("remove gives %v", err)
	}
	if err := b.remove(ref.Segment); !errors.Is(err, errSegFailed) {
		t.Errorf("remove after the failure gives %v", err)
	}
}

func TestAppendDuringSyncStaysDirty(t *testing.T) {
	faults := &segFaults{}
	disk := faults.disk()
	entered, leave := make(chan struct{}), make(chan struct{})
	held := true
	disk.datasync = func(f *os.File) error {
		if strings.HasSuffix(f.Name(), segSuffix) && held {
			held = false
			close(entered)
			<-leave
		}
		return faults.datasync(f)
	}
	b := newSegBench(t, segOptions{disk: disk})
	b.mustPut(t, nil, []byte("one"))
	synced := make(chan error)
	go func() { synced <- b.sync() }()
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
	if err := b.sync(); err != nil || b.dirty() {
		t.Errorf("after another sync: %v, dirty %v", err, b.dirty())
	}
	syncs := faults.syncs
	if err := b.sync(); err != nil || faults.syncs != syncs {
		t.Errorf("a sync with nothing to do: %v, %d syncs", err, faults.syncs-syncs)
	}
}

func TestClosedSegmentsRefuseAppends(t *testing.T) {
	b := newSegBench(t, segOptions{})
	ref := b.mustPut(t, nil, []byte("one"))
	blob, err := b.open(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.close(), b.close()); err != nil {
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

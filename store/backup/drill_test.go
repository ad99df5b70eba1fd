package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/objects"
	"github.com/mailstead/mailstead/store/segment"
)

// newBucket is a place in a bucket of an S3 server.
func newBucket(t *testing.T) objects.Place {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("mail"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("id\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	place, err := objects.At("s3://mail/host", objects.S3{Endpoint: server.URL, AccessKeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	return place
}

// readAll is an object as it is stored.
func readAll(t *testing.T, p objects.Place, name string) []byte {
	t.Helper()
	in, err := p.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func put(t *testing.T, p objects.Place, name string, data []byte) {
	t.Helper()
	if err := p.Put(t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

// drill makes a drill in a new directory.
func drill(t *testing.T, to *Target) (*DrillResult, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "drill")
	res, err := to.Drill(t.Context(), dir, quiet, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res, dir
}

// TestDrillNamesWhatIsWrong changes one bit of each object in turn, and removes it, in a directory
// and in a bucket. The objects of older backups do not matter.
func TestDrillNamesWhatIsWrong(t *testing.T) {
	dir, err := objects.At(t.TempDir(), objects.S3{})
	if err != nil {
		t.Fatal(err)
	}
	for kind, place := range map[string]objects.Place{"directory": dir, "bucket": newBucket(t)} {
		t.Run(kind, func(t *testing.T) {
			h := newHistory(t, 6)
			h.large = true
			to := &Target{Place: place, Temp: t.TempDir()}
			h.steps(20)
			old := backUp(t, to, h.source(), false, Full).ID
			h.steps(20)
			backUp(t, to, h.source(), true, Full)
			h.steps(20)
			backUp(t, to, h.source(), false, Incremental)
			h.steps(10)
			if err := to.Send(t.Context(), h.s); err != nil {
				t.Fatal(err)
			}
			number, err := h.s.CommitNumber()
			if err != nil {
				t.Fatal(err)
			}
			if res, _ := drill(t, to); len(res.Problems) > 0 || !res.Decrypted || res.Number != number || res.At.IsZero() {
				t.Fatalf("a sound backup, at %d: %+v", number, res)
			}
			newest := map[string]bool{} // objects that the newest backup has
			manifests, c, err := to.chainAt(t.Context(), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range manifests {
				for _, o := range m.Objects {
					newest[o.Name] = newest[o.Name] || m.ID != old
				}
			}
			for _, name := range c.batches {
				newest[name] = true
			}
			kinds := map[string]bool{}
			for name, matters := range newest {
				data := readAll(t, place, name)
				hurt := bytes.Clone(data)
				hurt[h.rnd.IntN(len(hurt))] ^= 4
				put(t, place, name, hurt)
				res, _ := drill(t, to)
				if named := strings.Contains(strings.Join(res.Problems, "\n"), name); matters && !named || !matters && len(res.Problems) > 0 {
					t.Errorf("%s is hurt: %q", name, res.Problems)
				}
				if matters {
					kind, _, _ := strings.Cut(name, "/")
					kinds[kind] = true
					if err := place.Delete(t.Context(), name); err != nil {
						t.Fatal(err)
					}
					if res, err := to.Drill(t.Context(), filepath.Join(t.TempDir(), "drill"), quiet, nil); err != nil || len(res.Problems) == 0 && !strings.HasPrefix(name, "entries/") {
						t.Errorf("%s is missing: %+v, %v", name, res, err)
					}
				}
				put(t, place, name, data)
			}
			for _, kind := range []string{"db", "segments", "open", "entries"} {
				if !kinds[kind] {
					t.Errorf("no object of the kind %s was tried", kind)
				}
			}
			if res, _ := drill(t, to); len(res.Problems) > 0 {
				t.Errorf("when all is as before: %q", res.Problems)
			}
		})
	}
}

// TestDrillFindsWhatWasDamagedBefore: the backup is what was stored, but the store was damaged when
// it was made.
func TestDrillFindsWhatWasDamagedBefore(t *testing.T) {
	h := newHistory(t, 8)
	to := newTarget(t, t.TempDir())
	h.steps(40)
	var blob store.BlobRef // it may have been moved since it was stored
	err := h.s.View(func(tx *store.Tx) error {
		sub, err := store.Submissions.Get(tx, h.subs[0].ID)
		blob = sub.Blob
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.s.Dir(), store.SegmentDir, segment.FileName(blob.Segment))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[int64(blob.Offset)+blob.Size()/2] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Run(t.Context(), h.source(), true, true); err != nil {
		t.Fatal(err)
	}
	if res, _ := drill(t, to); len(res.Problems) != 1 || !strings.Contains(res.Problems[0], h.subs[0].ID) {
		t.Errorf("the drill finds %q", res.Problems)
	}
}

// TestDrillChangesNothing: neither the place nor the store, and what look finds is in the result.
func TestDrillChangesNothing(t *testing.T) {
	h := newHistory(t, 9)
	to := newTarget(t, t.TempDir())
	h.steps(30)
	backUp(t, to, h.source(), false, Full)
	list := func() (names []string) {
		for o, err := range to.Place.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, o.Name)
		}
		return names
	}
	before, was := list(), digest(t, h.s)
	looked := false
	res, err := to.Drill(t.Context(), filepath.Join(t.TempDir(), "drill"), quiet, func(_ context.Context, st *store.Store) error {
		looked = true
		for name, sum := range digest(t, st) {
			if sum != was[name] {
				t.Errorf("bucket %s was restored with other contents", name)
			}
		}
		return errors.New("first\nsecond")
	})
	if err != nil || !looked || !slices.Equal(res.Problems, []string{"first", "second"}) {
		t.Errorf("%+v, %v", res, err)
	}
	if after := list(); !slices.Equal(before, after) {
		t.Errorf("the place had %q and has %q", before, after)
	}
	for name, sum := range digest(t, h.s) {
		if sum != was[name] {
			t.Errorf("bucket %s of the store has changed", name)
		}
	}
}

// TestDrillWithoutIdentity: of an encrypted backup the checksums are compared, nothing is restored,
// and a changed bit is found. With the identity everything is done.
func TestDrillWithoutIdentity(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory(t, 10)
	to := newTarget(t, t.TempDir())
	to.Recipients = []age.Recipient{id.Recipient()}
	h.steps(30)
	backUp(t, to, h.source(), false, Full)
	h.steps(10)
	made := backUp(t, to, h.source(), false, Incremental)
	if room, err := to.DrillRoom(t.Context()); err != nil || room != 0 {
		t.Errorf("room for nothing: %d, %v", room, err)
	}
	res, dir := drill(t, to)
	if res.Decrypted || len(res.Problems) > 0 || res.Number != made.Number || !res.At.Equal(made.At) || res.Messages != made.Messages {
		t.Errorf("without an identity: %+v of %+v", res, made)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was restored: %v", err)
	}
	manifests, err := to.manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		name := m.Objects[0].Name
		data := readAll(t, to.Place, name)
		hurt := bytes.Clone(data)
		hurt[h.rnd.IntN(len(hurt))] ^= 4
		put(t, to.Place, name, hurt)
		if res, _ := drill(t, to); len(res.Problems) != 1 || !strings.Contains(res.Problems[0], name) {
			t.Errorf("%s is hurt: %q", name, res.Problems)
		}
		put(t, to.Place, name, data)
	}
	to.Identities = []age.Identity{id}
	if res, _ := drill(t, to); !res.Decrypted || len(res.Problems) > 0 {
		t.Errorf("with the identity: %+v", res)
	}
}

// TestDrillRoomIsEnough: what a drill takes on the disk is no more than it says before, also for
// backups of versions that did not note how large their objects become.
func TestDrillRoomIsEnough(t *testing.T) {
	for seed := range uint64(6) {
		h := newHistory(t, 20+seed)
		h.large = seed%2 == 0
		to := newTarget(t, t.TempDir())
		h.steps(20 + h.rnd.IntN(40))
		backUp(t, to, h.source(), false, Full)
		for range h.rnd.IntN(3) {
			h.steps(20)
			backUp(t, to, h.source(), false, Incremental)
		}
		room, err := to.DrillRoom(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, dir := drill(t, to)
		var taken int64
		err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				info, err := e.Info()
				if err != nil {
					return err
				}
				taken += info.Size()
			}
			return err
		})
		if err != nil || taken == 0 || taken > room {
			t.Errorf("seed %d: a drill took %d bytes, and was to take up to %d: %v", seed, taken, room, err)
		}
		if room > 20*taken+64<<20 {
			t.Errorf("seed %d: a drill took %d bytes, far less than %d", seed, taken, room)
		}
	}
	for _, o := range []StoredObject{{Size: 100}, {Size: 70 << 20}} {
		if got := o.plainSize(); got < partBytes || got < o.Size {
			t.Errorf("an object of %d bytes, of unknown contents, may become %d", o.Size, got)
		}
	}
}

// A cuttingPlace ends a context when an object is opened for the n-th time, and refuses to read
// once err is set.
type cuttingPlace struct {
	objects.Place
	cut  func()
	left int
	err  error
}

func (p *cuttingPlace) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if p.err != nil && !strings.HasPrefix(name, "manifests/") {
		return nil, p.err
	}
	if p.left--; p.left == 0 {
		p.cut()
	}
	return p.Place.Open(ctx, name)
}

// TestDrillEnds: a drill ends with the cause of its context wherever it is, and with the error of a
// place that cannot be read. Neither is damage.
func TestDrillEnds(t *testing.T) {
	h := newHistory(t, 11)
	to := newTarget(t, t.TempDir())
	if _, err := to.Drill(t.Context(), filepath.Join(t.TempDir(), "drill"), quiet, nil); !errors.As(err, new(*RangeError)) {
		t.Errorf("without a backup: %v", err)
	}
	h.steps(30)
	backUp(t, to, h.source(), false, Full)
	why := errors.New("why it ends")
	place := &cuttingPlace{Place: to.Place}
	to.Place = place
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		place.cut, place.left = func() { cancel(why) }, n
		res, err := to.Drill(ctx, filepath.Join(t.TempDir(), "drill"), quiet, nil)
		cancel(nil)
		if place.left > 0 { // it was done before
			break
		}
		if !errors.Is(err, why) || res != nil {
			t.Errorf("cut at object %d: %+v, %v", n, res, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	res, err := to.Drill(ctx, filepath.Join(t.TempDir(), "drill"), quiet, func(context.Context, *store.Store) error {
		cancel(why)
		return errors.New("cut short")
	})
	if !errors.Is(err, why) || res != nil {
		t.Errorf("cut while it is looked at: %+v, %v", res, err)
	}
	place.err = errors.New("the place is away")
	if _, err := to.Drill(t.Context(), filepath.Join(t.TempDir(), "drill"), quiet, nil); !errors.Is(err, place.err) {
		t.Errorf("a place that is away: %v", err)
	}
}

// TestListReadsEachManifestOnce, also when others were added and deleted.
func TestListReadsEachManifestOnce(t *testing.T) {
	h := newHistory(t, 12)
	to := newTarget(t, t.TempDir())
	for range 3 {
		h.steps(3)
		backUp(t, to, h.source(), true, Full)
	}
	place := &cuttingPlace{Place: to.Place}
	to.Place = place
	opened := func() int {
		t.Helper()
		place.left = 0
		list, err := to.List(t.Context())
		if err != nil || len(list.Data) != 3 || !list.Data[0].Verified || list.Data[0].Bytes == 0 || !list.FirstAt.Equal(list.Data[0].At) {
			t.Fatalf("%+v, %v", list, err)
		}
		return -place.left
	}
	if n := opened(); n != 3 {
		t.Errorf("the first list opens %d objects", n)
	}
	if n := opened(); n != 0 {
		t.Errorf("the second list opens %d objects", n)
	}
	h.steps(3)
	backUp(t, to, h.source(), true, Full)
	manifests, err := to.manifests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Place.Delete(t.Context(), "manifests/"+manifests[0].ID); err != nil {
		t.Fatal(err)
	}
	if n := opened(); n != 1 {
		t.Errorf("after one more and one less it opens %d objects", n)
	}
}

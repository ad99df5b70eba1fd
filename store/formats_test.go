package store

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// oldStore unpacks a store written by a program from before rows had checksums.
func oldStore(t *testing.T) (dir string) {
	t.Helper()
	files, err := zip.OpenReader("testdata/before_formats.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestStoreOfBeforeFormats opens an old store: every row is read as it was written, also after each
// was rewritten.
func TestStoreOfBeforeFormats(t *testing.T) {
	dir := oldStore(t)
	wantJob := &Job{
		ID: "job_1", AccountID: "acc_1", Kind: "send", Key: "key", Lane: "lane", Args: json.RawMessage(`{"ID":"x"}`), State: JobQueued,
		Due: second(5), CreatedAt: second(4), Visible: true,
		Steps: []JobStep{{Name: "one", Status: JobQueued, At: second(3)}}, Resource: JobResource{"mailbox", "eu_1", "a@example.com"},
	}
	for turn := range 3 {
		s := openDir(t, dir, Options{Now: func() time.Time { return second(200) }})
		update(t, s, func(tx *Tx) error {
			job, err := Jobs.Get(tx, "job_1")
			if err != nil || !reflect.DeepEqual(job, wantJob) {
				t.Errorf("turn %d: job %+v, %v", turn, job, err)
			}
			sub, errSub := Submissions.Get(tx, "sub_1")
			out, errOut := Outgoings.Get(tx, "msg_1")
			mapped, errMap := Mappings.Get(tx, "map_1")
			event, errEvent := Events.Get(tx, "evt_1")
			told, errTold := Deliveries.Get(tx, "dlv_1")
			arrival, errArrival := Arrivals.Get(tx, "arr_1")
			if err := errors.Join(errSub, errOut, errMap, errEvent, errTold, errArrival); err != nil {
				t.Fatal(err)
			}
			if sub.Subject != "out" || out.Log[0].Host != "mx.example.net" || mapped.Provided != "<2@relay>" ||
				string(event.Data) != `{"a":1}` || told.DurationMS != 12 || arrival.To[0] != "a@example.com" {
				t.Errorf("turn %d: %+v %+v %+v %+v %+v %+v", turn, sub, out, mapped, event, told, arrival)
			}
			for uid, structure := range map[uint32]string{1: strings.Repeat("\x01", 3000), 2: "\x01\x02\x03"} {
				m, err := tx.Message(1, InboxID, uid)
				if err != nil || m.Keywords[1] != "ü" || !m.Received.Equal(second(int64(uid-1))) {
					t.Errorf("turn %d: %+v, %v", turn, m, err)
				}
				meta, err := tx.Meta(1, InboxID, uid)
				if err != nil || string(meta.Structure) != structure || meta.ThreadID != "thr_1" {
					t.Errorf("turn %d: %+v, %v", turn, meta, err)
				}
				copied, err := tx.CopyMessage(m, 2)
				if err != nil {
					return err
				}
				again, err := tx.Meta(1, 2, copied.UID)
				if err != nil || !reflect.DeepEqual(again, meta) {
					t.Errorf("turn %d: the copy's %+v, %v", turn, again, err)
				}
			}
			if _, err := tx.Message(1, InboxID, 3); !errors.Is(err, ErrNotFound) {
				t.Errorf("turn %d: a deleted message: %v", turn, err)
			}
			if root, known, err := tx.Thread(1, ThreadNode{2}); root != (ThreadNode{1}) || !known || err != nil {
				t.Errorf("turn %d: thread %x, %v, %v", turn, root, known, err)
			}
			if thread, found, err := tx.FindSubject(1, SubjectKey{7}); thread != (ThreadNode{1}) || !found || err != nil {
				t.Errorf("turn %d: subject %x, %v, %v", turn, thread, found, err)
			}
			return errors.Join(Jobs.Put(tx, job), Submissions.Put(tx, sub), Outgoings.Put(tx, out), Mappings.Put(tx, mapped),
				Events.Put(tx, event), Deliveries.Put(tx, told), Arrivals.Put(tx, arrival), tx.TouchThread(1, ThreadNode{2}))
		})
		closeTest(t, s) // which checks
	}
	for name, row := range readRows(t, filepath.Join(dir, DatabaseFile)) {
		if strings.HasPrefix(name, "job job_") && row[0] == '{' {
			t.Errorf("%s: %q", name, row)
		}
	}
}

// fillFields gives every field of a record a value that is not zero.
func fillFields(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		fillFields(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(second(int64(*n))))
			return
		}
		for i := range v.NumField() {
			fillFields(v.Field(i), n)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes(fmt.Appendf(nil, "%d", *n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fillFields(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(-*n))
	case reflect.Uint16, reflect.Uint32, reflect.Uint8:
		v.SetUint(uint64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		panic(v.Type())
	}
}

// checkFields writes a record with all of its fields, and with each of them alone, and reads it.
func checkFields[T any](t *testing.T, table *Table[T]) {
	t.Helper()
	if table.RowForm().Fields == nil {
		t.Errorf("%s is not binary", table.Name())
	}
	full, n := new(T), 0
	fillFields(reflect.ValueOf(full), &n)
	records := []*T{full, new(T)}
	for i := range reflect.TypeFor[T]().NumField() {
		one := new(T)
		reflect.ValueOf(one).Elem().Field(i).Set(reflect.ValueOf(full).Elem().Field(i))
		records = append(records, one)
	}
	for _, rec := range records {
		row, err := table.RowForm().Row([]byte("id"), rec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := table.RowForm().Record([]byte("id"), row)
		if err != nil || !reflect.DeepEqual(again, rec) {
			t.Errorf("%s: wrote %+v, read %+v, %v", table.Name(), rec, again, err)
		}
		if _, err := table.RowForm().Record([]byte("ie"), row); !errors.Is(err, ErrDamagedRow) {
			t.Errorf("%s: in another place: %v", table.Name(), err)
		}
	}
}

func TestEveryFieldIsKept(t *testing.T) {
	checkFields(t, Jobs)
	checkFields(t, Submissions)
	checkFields(t, Outgoings)
	checkFields(t, Mappings)
	checkFields(t, Events)
	checkFields(t, Deliveries)
}

// FuzzJobRow reads any bytes as the fields of a job: what is read is written and read as the same.
func FuzzJobRow(f *testing.F) { fuzzRecord(f, Jobs) }

// FuzzOutgoingRow is FuzzJobRow for rows of the sending log.
func FuzzOutgoingRow(f *testing.F) { fuzzRecord(f, Outgoings) }

func fuzzRecord[T any](f *testing.F, table *Table[T]) {
	full, n := new(T), 0
	fillFields(reflect.ValueOf(full), &n)
	for _, rec := range []*T{full, new(T)} {
		row, err := table.RowForm().Row(nil, rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(row[:len(row)-rowform.SumSize])
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		first, err := table.RowForm().Record(nil, table.RowForm().Sum.Seal(nil, bytes.Clone(row)))
		if err != nil {
			return
		}
		again, err := table.RowForm().Row(nil, first)
		if err != nil && row[0] == 1 { // JSON has times that no clock of ours shows
			return
		}
		if err != nil {
			t.Fatalf("%+v: %v", first, err)
		}
		second, err := table.RowForm().Record(nil, again)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("read %+v, written again %+v, %v", first, second, err)
		}
	})
}

// fullStore makes a store with rows in nearly every bucket.
func fullStore(t *testing.T, dir string, o Options) {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.KeepEntries(); err != nil {
		t.Fatal(err)
	}
	addMailbox(t, s, 1)
	for i := range int64(20) {
		m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(i), Keywords: []string{"Work"}}, fmt.Sprint("hello ", i))
		if i%5 == 0 {
			update(t, s, func(tx *Tx) error {
				long := &Meta{Structure: bytes.Repeat([]byte{1}, 3000), Preview: "long"}
				return tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: 2, Blob: m.Blob}, long)
			})
		}
	}
	b := NewTextBatch(1)
	var todo *TextWork
	view(t, s, func(tx *Tx) (err error) {
		todo, err = tx.TextWork(1, TextLimits{Most: 100, Each: 100, Bytes: 1 << 20, Message: 1 << 10})
		return err
	})
	for _, m := range todo.Messages {
		b.AddMessage(InboxPos{Received: m.Received, UID: m.UID, Num: m.Num})
		b.AddWord(fmt.Appendf(nil, "word%d", m.UID))
	}
	if err := s.AddText(b, todo.Done, nil); err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *Tx) error {
		for i := range byte(20) {
			if err := errors.Join(
				tx.JoinThread(1, ThreadNode{i, 1}, ThreadNode{i, 2}), tx.PutSubject(1, SubjectKey{i}, tx.Now(), ThreadNode{i, 1}),
				Jobs.Put(tx, &Job{ID: fmt.Sprint("job_", i), Kind: "k", State: JobQueued, Due: second(1), Args: json.RawMessage("{}")}),
				Events.Put(tx, &Event{ID: fmt.Sprint("evt_", i), AccountID: "acc_1", Data: json.RawMessage("{}")}),
				Outgoings.Put(tx, &Outgoing{ID: fmt.Sprint("msg_", i), AccountID: "acc_1", Subject: "subject", Log: []Attempt{{Code: 250}}}),
				Arrivals.Put(tx, &Arrival{ID: fmt.Sprint("arr_", i), Sender: "x@y"}),
			); err != nil {
				return err
			}
		}
		return tx.DeleteMessage(1, InboxID, 1)
	})
	if err := errors.Join(s.Check(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBitsInRows flips one bit of a value at each of 500 places, and every bit of the first
// byte of one value of each bucket, through bbolt, so that its pages are sound: the store does not
// open, or its check says so.
func TestFlippedBitsInRows(t *testing.T) {
	oneAtATime(t)
	dir, o := t.TempDir(), Options{noSync: true, lenient: true, Log: slog.New(slog.DiscardHandler)}
	fullStore(t, dir, o)
	path := filepath.Join(dir, DatabaseFile)
	type place struct{ bucket, key, value []byte }
	var places []place
	change := func(fn func(*bolt.Tx) error) {
		t.Helper()
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
		if err == nil {
			err = errors.Join(db.Update(fn), db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				if len(v) > 0 {
					places = append(places, place{bytes.Clone(name), bytes.Clone(k), bytes.Clone(v)})
				}
				return nil
			})
		})
	})
	flip := func(p place, at int, bit byte) {
		flipped := bytes.Clone(p.value)
		flipped[at] ^= bit
		change(func(tx *bolt.Tx) error { return tx.Bucket(p.bucket).Put(p.key, flipped) })
		if err := checkAll(dir, o); err == nil {
			t.Errorf("bit %02x of byte %d of %s %q, %x: nobody has noticed", bit, at, p.bucket, p.key, p.value)
		}
		change(func(tx *bolt.Tx) error { return tx.Bucket(p.bucket).Put(p.key, p.value) })
	}
	buckets := map[string]bool{}
	for _, p := range places {
		if !buckets[string(p.bucket)] {
			buckets[string(p.bucket)] = true
			for bit := byte(1); bit != 0; bit <<= 1 {
				flip(p, 0, bit)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(14, 3))
	flips := 150
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		flips = 5000
	}
	for range flips {
		p := places[rnd.IntN(len(places))]
		flip(p, rnd.IntN(len(p.value)), byte(1)<<rnd.IntN(8))
	}
	if err := checkAll(dir, o); err != nil {
		t.Errorf("with all bits as they were: %v", err)
	}
	t.Logf("%d rows in %d buckets", len(places), len(buckets))
}

// TestNewerStoreIsRefused: nothing of a store of a later format is changed.
func TestNewerStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{Program: "1.2.3"})
	err := s.setup(func(tx *Tx) error {
		b := engine.Bolt(tx)
		format, program, err := readMetaRow(b, formatKey)
		if format != storeFormat || string(program) != "1.2.3" || err != nil {
			t.Errorf("a new store is of format %d of %q, %v", format, program, err)
		}
		if err := b.DeleteBucket([]byte("template")); err != nil {
			return err
		}
		return putMetaRow(b, formatKey, storeFormat+1, []byte("9.8.7"))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	before := readRows(t, filepath.Join(dir, DatabaseFile))
	_, err = Open(dir, Options{})
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "use mailstead 9.8.7") {
		t.Errorf("error %v", err)
	}
	if !reflect.DeepEqual(before, readRows(t, filepath.Join(dir, DatabaseFile))) {
		t.Error("the refused store was changed")
	}
}

// TestOlderStoreIsAskedAbout: MayMigrate is called for an older store, which stays unchanged if it
// returns an error. It is not called for a store of the current format.
func TestOlderStoreIsAskedAbout(t *testing.T) {
	dir := oldStore(t)
	before := readRows(t, filepath.Join(dir, DatabaseFile))
	refused := errors.New("not now")
	asked := 0
	o := Options{MayMigrate: func(from, to uint32) error {
		if asked++; from != 1 || to != storeFormat {
			t.Errorf("asked about a migration from %d to %d", from, to)
		}
		return refused
	}}
	if _, err := Open(dir, o); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if !reflect.DeepEqual(before, readRows(t, filepath.Join(dir, DatabaseFile))) {
		t.Error("the refused store was changed")
	}
	refused = nil
	closeTest(t, openDir(t, dir, o))
	closeTest(t, openDir(t, dir, o)) // is of today's format
	closeTest(t, openDir(t, t.TempDir(), o))
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestMigrationGoesOn stops the migrations of an old store after each of their transactions: the
// next opening goes on, and the store is as one that nobody stopped.
func TestMigrationGoesOn(t *testing.T) {
	for stop := range 12 {
		dir := t.TempDir()
		s := openDir(t, dir, Options{})
		addMailbox(t, s, 1)
		for i := range int64(9) {
			addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(i), Flags: FlagFlagged * Flags(i%2)}, "x")
		}
		closeTest(t, s)
		s = openDir(t, dir, Options{})
		var want map[string][32]byte
		view(t, s, func(tx *Tx) (err error) {
			want, err = tx.Digest()
			return err
		})
		err := s.setup(func(tx *Tx) error { // as an old program left it
			b := engine.Bolt(tx)
			for _, name := range []string{"inbox_class", "inbox_mbx_class"} {
				if err := errors.Join(b.DeleteBucket([]byte(name))); err != nil {
					return err
				}
			}
			for _, name := range []string{"inbox", "inbox_mbx", "inbox_class", "inbox_mbx_class"} {
				if _, err := b.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return putMetaRow(b, formatKey, 1, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		for range stop {
			err := s.setup(func(tx *Tx) error {
				_, err := s.migrate(tx, "", 2)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openDir(t, dir, Options{})
		view(t, s, func(tx *Tx) error {
			have, err := tx.Digest()
			for name, sum := range want {
				if have[name] != sum {
					t.Errorf("stopped after %d: bucket %s differs", stop, name)
				}
			}
			return err
		})
		closeTest(t, s) // which checks
		_, err = Open(dir, Options{})
		if err != nil {
			t.Error(err)
		}
	}
}

// Contents is digest.Contents and NoContents digest.None, which this package cannot import.
var (
	Contents   func(dir string) (map[string]string, error)
	NoContents string
)

// TestEdgeRecordsBecomeRows stops the migration to format 9 after each of its transactions: the
// next opening goes on, and the contents stay the same.
func TestEdgeRecordsBecomeRows(t *testing.T) {
	const domains = 7
	id := func(i int) string { return fmt.Sprint("dom_", i) }
	for stop := range 9 {
		dir := t.TempDir()
		s := openDir(t, dir, Options{})
		update(t, s, func(tx *Tx) (err error) {
			for i := range domains {
				d := &Domain{ID: id(i), AccountID: "acc_1", Name: fmt.Sprintf("d%d.test", i), EdgeRecords: map[string]string{}}
				for n := range i {
					d.EdgeRecords[fmt.Sprintf("TXT n%d.%s 00ff", n, d.Name)] = fmt.Sprint("purpose ", n)
				}
				err = errors.Join(err, Domains.Put(tx, d))
			}
			return err
		})
		err := s.setup(func(tx *Tx) error { // as an old program left it
			b := engine.Bolt(tx)
			return errors.Join(b.DeleteBucket([]byte(EdgeRecords.Name())), putMetaRow(b, formatKey, 8, nil))
		})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		before, err := Contents(dir)
		if err != nil || before[EdgeRecords.Name()] == NoContents {
			t.Fatal(before, err)
		}
		same := func(when string) {
			t.Helper()
			if after, err := Contents(dir); err != nil || !maps.Equal(before, after) {
				t.Errorf("stopped after %d: %s the contents are %v, were %v, %v", stop, when, after, before, err)
			}
		}
		s = openDir(t, dir, Options{Unmigrated: true})
		for range stop {
			err := s.setup(func(tx *Tx) error {
				_, err := s.migrate(tx, "", 3)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		same("then")
		s = openDir(t, dir, Options{})
		view(t, s, func(tx *Tx) error {
			for i := range domains {
				d, err := Domains.Get(tx, id(i))
				if err != nil || d.EdgeRecords != nil {
					t.Errorf("stopped after %d: domain %d has %v, %v", stop, i, d.EdgeRecords, err)
				}
				n := 0
				for r := range EdgeRecordsOf(tx, id(i)) {
					want := EdgeRecord{DomainID: id(i), RecordID: fmt.Sprintf("TXT n%d.d%d.test 00ff", n, i), Purpose: fmt.Sprint("purpose ", n)}
					if *r != want {
						t.Errorf("stopped after %d: %+v, want %+v", stop, r, want)
					}
					n++
				}
				if n != i {
					t.Errorf("stopped after %d: domain %d has %d rows", stop, i, n)
				}
			}
			return nil
		})
		closeTest(t, s) // which checks
		same("at the end")
	}
}

// TestCacheKnowsPlaces: a record's bytes in another record's place are not that record, though they
// were decoded before.
func TestCacheKnowsPlaces(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	update(t, s, func(tx *Tx) error { return Events.Put(tx, &Event{ID: "evt_1", AccountID: "acc_1"}) })
	update(t, s, func(tx *Tx) error {
		if _, err := Events.Read(tx, "evt_1"); err != nil {
			return err
		}
		row := bytes.Clone(engine.NamedBucket(tx, "event").Get([]byte("evt_1")))
		for i := range 3 * engine.RecordSlots {
			id := fmt.Sprint("evt_x", i)
			if err := engine.NamedBucket(tx, "event").Put([]byte(id), row); err != nil {
				return err
			}
			if e, err := Events.Read(tx, id); !errors.Is(err, ErrDamagedRow) {
				t.Fatalf("%s: %+v, %v", id, e, err)
			}
			if err := engine.NamedBucket(tx, "event").Delete([]byte(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestUnknownFormsAreNamed: rows of forms to come are no damage.
func TestUnknownFormsAreNamed(t *testing.T) {
	seal := func(row ...byte) []byte { return Jobs.RowForm().Sum.Seal([]byte("job_1"), row) }
	for name, c := range map[string]struct {
		row  []byte
		want error
	}{
		"form":       {seal(3, 1), ErrNewer},
		"version":    {seal(2, 2), ErrNewer},
		"more":       {append(seal(), 0), ErrDamagedRow},
		"cut short":  {seal(2, 1, 40, 'x'), ErrDamagedRow},
		"no version": {seal(2), ErrDamagedRow},
		"nothing":    {nil, ErrDamagedRow},
		"only a sum": {seal(), ErrDamagedRow},
		"bad JSON":   {seal(1, '{'), ErrDamagedRow},
		"old JSON":   {[]byte(`{"ID":`), ErrDamagedRow},
		"fields":     {seal(append([]byte{2, 1}, bytes.Repeat([]byte{0}, 40)...)...), ErrNewer},
		"large time": {seal(append([]byte{2, 1, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 8)...)...), ErrDamagedRow},
	} {
		if _, err := Jobs.Decode([]byte("job_1"), c.row); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "job job_1") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := Jobs.RowForm().Row(nil, &Job{Due: time.Date(math.MaxInt16, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a time of the year 32767 was written")
	}
}

// BenchmarkRow writes and reads the row of a job as fields and as JSON.
func BenchmarkRow(b *testing.B) {
	job := &Job{
		ID: "job_01k9x2v7wq3c8m5n6p7r8s9t0v", AccountID: "acc_01k9x2v7wq3c8m5n6p7r8s9t0v", Kind: "deliver", Lane: "mx.example.net",
		Args: json.RawMessage(`{"outgoing":"msg_01k9x2v7wq3c8m5n6p7r8s9t0v"}`), State: JobRunning, Due: second(1), Attempt: 1, Max: 30,
		Jitter: 7, CreatedAt: second(0), StartedAt: second(1), UpdatedAt: second(1),
	}
	for name, rows := range map[string]rowform.Records{"fields": *Jobs.RowForm(), "json": {Sum: Jobs.RowForm().Sum, New: Jobs.RowForm().New}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row, err := rows.Row([]byte(job.ID), job)
				if err == nil {
					_, err = rows.Record([]byte(job.ID), row)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestEntriesOfAnOlderFormat: a copy of an older store takes the entries that the older program
// wrote, and is migrated only then.
func TestEntriesOfAnOlderFormat(t *testing.T) {
	const old = storeFormat - 1
	s, dir := openDir(t, t.TempDir(), Options{}), t.TempDir()
	addMailbox(t, s, 1)
	if err := errors.Join(s.KeepEntries(), s.setup(func(tx *Tx) error { return putMetaRow(engine.Bolt(tx), formatKey, old, []byte("0.9")) })); err != nil {
		t.Fatal(err)
	}
	n, err := s.CommitNumber()
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error { return engine.Bolt(tx).CopyFile(filepath.Join(dir, DatabaseFile), 0o600) })
	if err != nil {
		t.Fatal(err)
	}
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(1)}, "x")
	list, err := s.Entries(n, 1<<20)
	if err != nil || len(list) == 0 {
		t.Fatal(len(list), err)
	}
	want := digest(t, s)
	closeTest(t, s)

	formatOf := func(s *Store) (format uint32) {
		view(t, s, func(tx *Tx) (err error) {
			format, _, err = readMetaRow(engine.Bolt(tx), formatKey)
			return err
		})
		return format
	}
	c := openDir(t, dir, Options{Unmigrated: true})
	for _, e := range list {
		if err := c.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if f := formatOf(c); f != old {
		t.Errorf("the store that takes entries is of format %d, want %d", f, old)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = openDir(t, dir, Options{Program: "1.0"})
	if f := formatOf(c); f != storeFormat {
		t.Errorf("opened again, it is of format %d, want %d", f, storeFormat)
	}
	have := digest(t, c)
	for name, sum := range want {
		if name != bucketMeta && have[name] != sum {
			t.Errorf("bucket %s differs", name)
		}
	}
	closeTest(t, c)
}

func digest(t *testing.T, s *Store) (sums map[string][32]byte) {
	t.Helper()
	view(t, s, func(tx *Tx) (err error) {
		sums, err = tx.Digest()
		return err
	})
	return sums
}

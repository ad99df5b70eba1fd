package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/rowform"
)

// TestUnknownJobsStopAlone has, in one lane, jobs whose rows are damaged or of a newer version, one
// with arguments and one of a kind that nobody knows, each of them first in the lane, and some that
// a crash has cut: the others are done, and these stay and are named once.
func TestUnknownJobsStopAlone(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(s)
	nothing := func(context.Context, *store.Job) (Writes, error) { return nil, nil }
	for _, kind := range []string{"k", "unknown", "again"} {
		q.Handle(Kind{Name: kind, Work: nothing})
	}
	q.Every("again", time.Hour)
	ids := map[string]string{}
	add := func(name string, n New) {
		update(t, q, func(tx *store.Tx) error {
			j, err := q.Add(tx, n)
			if err == nil {
				ids[name] = j.ID
			}
			return err
		})
	}
	add("newer", New{Kind: "k", Lane: "lane"})
	add("damaged", New{Kind: "k", Lane: "lane"})
	add("args", New{Kind: "k", Lane: "lane", Args: "a text"})
	add("kind", New{Kind: "unknown", Lane: "lane"})
	add("cut", New{Kind: "k", Lane: "lane"})
	add("recurring", New{Kind: "again", Key: recurringKey, Due: s.Now().Add(time.Hour)})
	for i := range 5 {
		add(fmt.Sprint("good", i), New{Kind: "k", Lane: "lane", Args: i})
	}
	update(t, q, func(tx *store.Tx) error {
		j, err := store.Jobs.Get(tx, ids["cut"])
		if err != nil {
			return err
		}
		j.State = store.JobRunning
		return store.Jobs.Put(tx, j)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(dir, store.DatabaseFile), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, sum := tx.Bucket([]byte("job")), rowform.SumOf("job")
		damaged := bytes.Clone(b.Get([]byte(ids["damaged"])))
		damaged[len(damaged)/2] ^= 4
		newer := func(name string) error { return b.Put([]byte(ids[name]), sum.Seal([]byte(ids[name]), []byte{9, 1})) }
		return errors.Join(newer("newer"), newer("cut"), newer("recurring"), b.Put([]byte(ids["damaged"]), damaged))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}

	s, err = store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), ids["newer"]) || !strings.Contains(err.Error(), ids["damaged"]) {
			t.Errorf("the check does not name them: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	q = newQueue(s)
	var log bytes.Buffer
	var mu sync.Mutex
	q.Log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))
	done := make(chan int, 10)
	q.Handle(Kind{Name: "k", Work: func(_ context.Context, j *store.Job) (Writes, error) {
		n, err := Args[int](j)
		if err != nil {
			return nil, Permanent(err)
		}
		return func(tx *store.Tx, _ *store.Job) error {
			tx.After(func() { done <- n })
			return nil
		}, nil
	}})
	q.Handle(Kind{Name: "again", Work: nothing})
	q.Every("again", time.Hour)
	start(t, q)
	for range 5 {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("the others wait; unread %v", q.Unread())
		}
	}
	update(t, q, func(tx *store.Tx) error {
		_, err := q.Add(tx, New{Kind: "k", Lane: "lane", Args: 7})
		return err
	})
	if n := <-done; n != 7 {
		t.Errorf("did %d", n)
	}
	have := map[string]error{}
	for _, u := range q.Unread() {
		have[u.ID] = u.Reason
	}
	for name, want := range map[string]error{
		"newer": store.ErrNewer, "cut": store.ErrNewer, "recurring": store.ErrNewer, "damaged": store.ErrDamagedRow, "args": ErrArgs,
	} {
		if !errors.Is(have[ids[name]], want) {
			t.Errorf("%s: unread %v, want %v", name, have[ids[name]], want)
		}
	}
	if have[ids["kind"]] == nil || len(have) != 6 {
		t.Errorf("unread: %v of %v", have, ids)
	}
	mu.Lock()
	defer mu.Unlock()
	for name, id := range ids {
		if n := strings.Count(log.String(), "job_id="+id); n > 1 || n == 0 && have[id] != nil {
			t.Errorf("%s is %d times in the log:\n%s", name, n, log.String())
		}
	}
	if err := s.View(func(tx *store.Tx) error {
		j, err := store.Jobs.Get(tx, ids["args"])
		if err == nil && (j.State != store.JobQueued || j.Attempt != 0 || !j.Due.After(tx.Now().Add(time.Minute))) {
			t.Errorf("the job with unknown arguments is %+v", j)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// jobsService is a service with a running queue that has two kinds: "seen", which takes ten
// seconds, and "unseen".
func jobsService(t *testing.T) *service.Service {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	q := jobs.NewQueue(st)
	q.Log = log
	s := service.New(st, q, keys, core.Config{Log: log})
	q.Handle(jobs.Kind{Name: "seen", Visible: true, PerLane: 9, Work: func(ctx context.Context, j *store.Job) (jobs.Writes, error) {
		time.Sleep(10 * time.Second)
		switch string(j.Args) {
		case `"coded"`:
			return nil, jobs.Permanent(core.Errorf("zone_conflict", "Remove the MX record %s first.", "mx.example."))
		case `"plain"`:
			return nil, jobs.Permanent(errors.New("dial 10.0.0.1: secret things"))
		}
		return func(_ *store.Tx, j *store.Job) error {
			j.Result = json.RawMessage(`{"ok":true}`)
			return nil
		}, nil
	}})
	q.Handle(jobs.Kind{Name: "unseen", Work: func(context.Context, *store.Job) (jobs.Writes, error) { return nil, nil }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := errors.Join(<-ended, st.Check())
		s.Close()
		if err := errors.Join(err, st.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func addJob(t *testing.T, s *service.Service, n jobs.New) string {
	t.Helper()
	var id string
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		j, err := s.Core.Queue.Add(tx, n)
		if err == nil {
			id = j.ID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

var jobsReader = core.Actor{AccountID: "acc_00000000000000000000000001"}

func TestJobOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsService(t)
		id := addJob(t, s, jobs.New{
			AccountID: jobsReader.AccountID, Kind: "seen", CreatedBy: "usr_1", Steps: []string{"one"}, Total: 4, Lane: "x",
			Resource: store.JobResource{Type: "domain", ID: "dom_1", Name: "example.com"},
		})
		time.Sleep(10*time.Second + time.Millisecond)
		out, err := s.GetJob(t.Context(), jobsReader, service.GetJobIn{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		have, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		want := `{"id":"` + id + `","job_id":"` + id + `","type":"seen","status":"completed","status_detail":null,` +
			`"progress":{"completed":0,"total":4,"percent":0},"steps":[{"name":"one","status":"queued","error":null,"at":null}],` +
			`"resource":{"type":"domain","id":"dom_1","name":"example.com"},"result":{"ok":true},"error":null,"attempts":1,` +
			`"next_attempt_at":null,"created_by":"usr_1","created_at":"2000-01-01T00:00:00.000Z","started_at":"2000-01-01T00:00:00.000Z",` +
			`"updated_at":"2000-01-01T00:00:10.000Z","completed_at":"2000-01-01T00:00:10.000Z"}`
		if string(have) != want {
			t.Errorf("have %s\nwant %s", have, want)
		}
	})
}

func TestJobErrorsHideWhatIsNotForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsService(t)
		coded := addJob(t, s, jobs.New{AccountID: jobsReader.AccountID, Kind: "seen", Args: "coded"})
		plain := addJob(t, s, jobs.New{AccountID: jobsReader.AccountID, Kind: "seen", Args: "plain"})
		time.Sleep(time.Minute)
		for id, want := range map[string]core.JobFailure{
			coded: {Code: "zone_conflict", Message: "Remove the MX record mx.example. first."},
			plain: {Code: "internal_error", Message: "The attempt failed. See the log of this installation."},
		} {
			out, err := s.GetJob(t.Context(), jobsReader, service.GetJobIn{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			if out.Status != "error" || out.Error == nil || *out.Error != want {
				t.Errorf("have %s %+v, want %+v", out.Status, out.Error, want)
			}
		}
	})
}

func TestJobLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsService(t)
		id := addJob(t, s, jobs.New{AccountID: jobsReader.AccountID, Kind: "seen"})
		for _, tc := range []struct {
			wait   int
			took   time.Duration
			status string
		}{{3, 3 * time.Second, "in_progress"}, {30, 7 * time.Second, "completed"}, {30, 0, "completed"}} {
			began := time.Now()
			out, err := s.GetJob(t.Context(), jobsReader, service.GetJobIn{ID: id, Wait: &tc.wait})
			if err != nil {
				t.Fatal(err)
			}
			if out.Status != tc.status || time.Since(began) != tc.took {
				t.Errorf("wait %d: %s after %v, want %s after %v", tc.wait, out.Status, time.Since(began), tc.status, tc.took)
			}
		}
	})
}

func TestJobsOfOthersAreNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsService(t)
		later := time.Now().Add(time.Hour)
		foreign := addJob(t, s, jobs.New{AccountID: "acc_00000000000000000000000002", Kind: "seen"})
		unseen := addJob(t, s, jobs.New{AccountID: jobsReader.AccountID, Kind: "unseen", Due: later})
		for _, id := range []string{foreign, unseen, "job_none"} {
			_, err := s.GetJob(t.Context(), jobsReader, service.GetJobIn{ID: id})
			if e, ok := core.AsError(err); !ok || e.Code != "not_found" {
				t.Errorf("get %s: %v", id, err)
			}
			_, err = s.ListJobs(t.Context(), jobsReader, service.ListJobsIn{JobID: id})
			if e, ok := core.AsError(err); !ok || e.Code != "not_found" {
				t.Errorf("list %s: %v", id, err)
			}
		}
		out, err := s.ListJobs(t.Context(), jobsReader, service.ListJobsIn{})
		if err != nil || len(out.Page.Data) != 0 {
			t.Errorf("list: %+v, %v", out, err)
		}
	})
}

func TestJobFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := jobsService(t)
		add := func(r store.JobResource, due time.Time) string {
			return addJob(t, s, jobs.New{AccountID: jobsReader.AccountID, Kind: "seen", Resource: r, Due: due})
		}
		domain := add(store.JobResource{Type: "domain", ID: "dom_1", Name: "example.com"}, time.Time{})
		user := add(store.JobResource{Type: "email_user", ID: "eu_1", Name: "ann@example.com"}, time.Time{})
		time.Sleep(time.Minute)
		other := add(store.JobResource{Type: "domain", ID: "dom_2", Name: "ample.com"}, time.Now().Add(time.Hour))
		two := 2
		for _, tc := range []struct {
			in   service.ListJobsIn
			want []string
		}{
			{service.ListJobsIn{}, []string{other, user, domain}},
			{service.ListJobsIn{Status: "queued"}, []string{other}},
			{service.ListJobsIn{Status: "completed"}, []string{user, domain}},
			{service.ListJobsIn{Type: "seen"}, []string{other, user, domain}},
			{service.ListJobsIn{Type: "domain_setup"}, nil},
			{service.ListJobsIn{Domain: "Example.com."}, []string{user, domain}},
			{service.ListJobsIn{Domain: "dom_2"}, []string{other}},
			{service.ListJobsIn{CreatedAfter: &core.Time{Time: time.Now().Add(-time.Second)}}, []string{other}},
			{service.ListJobsIn{Query: page.Query{Limit: &two}}, []string{other, user}},
		} {
			out, err := s.ListJobs(t.Context(), jobsReader, tc.in)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, j := range out.Page.Data {
				have = append(have, j.ID)
			}
			if len(have) != len(tc.want) {
				t.Errorf("%+v: have %v, want %v", tc.in, have, tc.want)
				continue
			}
			for i := range have {
				if have[i] != tc.want[i] {
					t.Errorf("%+v: have %v, want %v", tc.in, have, tc.want)
				}
			}
		}
		out, err := s.ListJobs(t.Context(), jobsReader, service.ListJobsIn{JobID: domain})
		if err != nil || out.Job == nil || out.Job.ID != domain {
			t.Errorf("by id: %+v, %v", out, err)
		}
	})
}

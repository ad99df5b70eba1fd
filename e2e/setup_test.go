package e2e

import "testing"

// The sandbox registrar's books outlive the process: what it has sold is taken, and whose it is
// stays known.
func TestSandboxRegistrarOutlivesAKill(t *testing.T) {
	i := newInstance(t, "http = \"127.0.0.1:0\"\nsmtp = \"off\"\nsubmission = \"off\"\nimap = \"off\"\ndns = \"127.0.0.1:0\"\n[registrar]\nsandbox = {}\n")
	offer := func() (out struct {
		Available  bool
		Price      float64
		Registrar  string
		CheckedVia string `json:"checked_via"`
	}) {
		i.want(200, "GET", "/v1/domains/search?q=bakery.com", nil, &out)
		return out
	}
	buy := func() (id string) {
		var job struct {
			JobID    string `json:"job_id"`
			Status   string
			Resource struct{ ID string }
		}
		i.want(202, "POST", "/v1/domains/setup", map[string]any{"domain": "bakery.com", "register": true, "price": 11}, &job)
		i.until("the setup has ended", func() bool {
			i.want(200, "GET", "/v1/jobs/"+job.JobID+"?wait=5", nil, &job)
			return job.Status == "completed"
		})
		var d struct{ Status, Source, Registrar string }
		i.want(200, "GET", "/v1/domains/"+job.Resource.ID, nil, &d)
		if d.Status != "complete" || d.Source != "registered" || d.Registrar != "sandbox" {
			t.Errorf("domain %+v", d)
		}
		return job.Resource.ID
	}
	if o := offer(); !o.Available || o.Price != 11 || o.Registrar != "sandbox" || o.CheckedVia != "registrar" {
		t.Fatalf("offer %+v", o)
	}
	id := buy()
	i.kill()
	i.start()
	if o := offer(); o.Available {
		t.Errorf("after the kill it is for sale again: %+v", o)
	}
	if again := buy(); again != id {
		t.Errorf("another domain: %s, then %s", id, again)
	}
}

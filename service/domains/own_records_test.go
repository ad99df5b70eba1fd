package domains_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/internal/soak"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// importMany gives a domain n custom records.
func (w *edgeWorld) importMany(id string, n int) {
	w.t.Helper()
	var file strings.Builder
	for i := range n {
		fmt.Fprintf(&file, "r%d 300 IN TXT %q\n", i, strings.Repeat("v", 200))
	}
	out, err := w.Zones.ImportZone(w.t.Context(), w.who, zones.ImportZoneIn{DomainID: id, ZoneFile: file.String()})
	if err != nil || out.Imported != n {
		w.t.Fatalf("%+v, %v", out, err)
	}
}

// undo undoes the newest change of the custom records of a domain.
func (w *edgeWorld) undo(id string) {
	w.t.Helper()
	list, err := w.Zones.ListZoneChanges(w.t.Context(), w.who, zones.ListZoneChangesIn{DomainID: id})
	if err == nil {
		_, err = w.Zones.UndoZoneChange(w.t.Context(), w.who, zones.UndoZoneChangeIn{DomainID: id, ID: list.Data[0].ID})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// wantNothingLeft checks that no record of ours is at the provider or noted, and that the records
// of others are there.
func (w *edgeWorld) wantNothingLeft(strangers []string) {
	w.t.Helper()
	if ours, theirs := w.edge.Ours("edge.test"), w.edge.Strangers("edge.test"); len(ours) != 0 || !slices.Equal(theirs, strangers) {
		w.t.Errorf("left are %d of ours, and %q of others", len(ours), theirs)
	}
	err := w.Core.Store.View(func(tx *store.Tx) error {
		for r := range store.EdgeRecords.All(tx) {
			w.t.Errorf("%+v is noted still", r)
			break
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// credentialAt adds a credential for a DNS provider.
func (w *edgeWorld) credentialAt(provider, token string) string {
	w.t.Helper()
	c, err := w.Edge.CreateDNSCredential(w.t.Context(), w.who, edge.CreateDNSCredentialIn{Provider: provider, Name: token, DNSSecrets: edge.DNSSecrets{Token: &token}})
	if err != nil {
		w.t.Fatal(err)
	}
	return c.ID
}

func (w *edgeWorld) move(id, credential string) {
	w.t.Helper()
	if _, err := w.Domains.UpdateDomain(w.t.Context(), w.who, domains.UpdateDomainIn{DomainID: id, DNSCredentialID: &credential}); err != nil {
		w.t.Fatal(err)
	}
}

// What we made stays ours if a domain moves to another credential for the same provider, since it
// may be the same zone. What is noted for a move that failed, or for a former credential, is
// forgotten.
func TestAMoveAtTheSameProviderKeepsWhatIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.Tokens["bad"], w.edge.Tokens["good"] = "edit", "edit"
		first, bad, good := w.mustCredential(), w.credentialAt(store.DomainProviderHetzner, "bad"), w.credentialAt(store.DomainProviderHetzner, "good")
		id, why := w.connectWith(first, false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		w.create(id, "x", "TXT", "x")
		w.settle()
		changes := w.edge.Changes
		w.edge.Set(func() { delete(w.edge.Tokens, "bad") })
		w.move(id, bad)
		w.settle()
		if d := w.stored(id); d.Move != nil || d.EdgePlace != 0 || d.DNSCredentialID != first {
			t.Errorf("the move to a bad credential: %+v, place %d, %s", d.Move, d.EdgePlace, d.StatusDetail)
		}
		err := w.Core.Store.View(func(tx *store.Tx) error {
			if n := len(ownRows(tx, id)); n != 2*(len(managed)+1) {
				t.Errorf("%d rows after a move that failed", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.create(id, "y", "TXT", "y")
		w.settle()
		w.wantNoted(id)
		w.move(id, good)
		w.settle()
		if d := w.stored(id); d.Move != nil || d.EdgePlace != 2 || d.DNSCredentialID != good || w.edge.Changes != changes+1 {
			t.Errorf("the move to a good credential: %+v, place %d, %d changes", d.Move, d.EdgePlace, w.edge.Changes-changes)
		}
		w.wantNoted(id)
		w.wantOurs([]string{"TXT x.edge.test x", "TXT y.edge.test y"})
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.wantNothingLeft([]string{})
	})
}

// A crash is what one leaves behind: a copy of the data directory, and the zones at the provider.
type crash struct {
	dir     string
	zones   func() // restores them
	deleted bool   // the domain was being deleted
}

// What is ours at a provider takes several transactions to note. Whichever of them is the last
// before a crash, afterwards the provider has exactly the records that the domain needs, they are
// noted, and none is left when the domain is deleted.
func TestACrashForgetsNoRecord(t *testing.T) {
	if testing.Short() {
		t.Skip("it goes on after each of many transactions")
	}
	for _, provider := range []string{store.DomainProviderHetzner, store.DomainProviderCloudflare} {
		t.Run(provider, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crashEverywhere(t, provider) })
		})
	}
}

func crashEverywhere(t *testing.T, provider string) {
	var mu sync.Mutex // of what follows
	var crashes []crash
	keeps, deleted := false, false
	dir, edge := filepath.Join(t.TempDir(), "data"), servicetest.NewEdge("edge.test")
	committed := func(time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if !keeps {
			return
		}
		c := crash{filepath.Join(t.TempDir(), "data"), edge.Keep(), deleted}
		if err := os.CopyFS(c.dir, os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		crashes = append(crashes, c)
	}
	edge.Meddle = func(call string) error { // a crash between a change there and the next transaction
		mu.Lock()
		defer mu.Unlock()
		if call == "applied" && keeps {
			crashes = append(crashes, crash{crashes[len(crashes)-1].dir, edge.Keep(), deleted})
		}
		return nil
	}
	edge.Add("edge.test", "TXT", "edge.test", "somebody's")
	edge.Add("edge.test", "A", "shop.edge.test", "192.0.2.1")
	strangers := edge.Strangers("edge.test")
	edge.Tokens["second"] = "edit"

	w, end := newEdgeWorldIn(t, dir, store.Options{Committed: committed}, edge)
	id, why := w.connectWith(w.credentialAt(provider, servicetest.EdgeToken), false)
	if why != "" {
		t.Fatal(why)
	}
	second := w.credentialAt(provider, "second")
	w.settle()
	servicetest.Update(t, w.Service, func(tx *store.Tx) error { // an open claim would end during the test
		d, err := store.Domains.Get(tx, id)
		if err != nil {
			return err
		}
		d.Claim = store.ClaimProven
		return store.Domains.Put(tx, d)
	})
	for _, step := range []func(){
		func() { w.importMany(id, 250) }, // more than one transaction writes
		func() { w.move(id, second) },
		func() { w.undo(id) },
		func() { w.undo(id) },
		func() {
			mu.Lock()
			deleted = true
			mu.Unlock()
			if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		mu.Lock()
		keeps = true
		mu.Unlock()
		step()
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		keeps = false
		mu.Unlock()
		w.settle()
	}
	w.wantNothingLeft(strangers)
	end()
	edge.Meddle = nil

	every := soak.Size(5, 1) // of the crashes one is tried
	for n, c := range crashes {
		if n%every != 0 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
			t.Fatal(err)
		}
		c.zones()
		w, end := newEdgeWorldIn(t, dir, store.Options{}, edge)
		w.settle()
		if !c.deleted {
			list, err := w.Zones.ListCustomDNSRecords(t.Context(), w.who, zones.ListCustomDNSRecordsIn{DomainID: id})
			if err != nil {
				t.Fatal(err)
			}
			if ours := len(edge.Ours("edge.test")); ours != len(managed)+len(list.Records) {
				t.Errorf("%d records are there, want %d", ours, len(managed)+len(list.Records))
			}
			w.wantNoted(id)
		}
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil && !c.deleted {
			t.Error(err)
		}
		w.settle()
		w.wantNothingLeft(strangers)
		end()
		if t.Failed() {
			t.Fatalf("after crash %d of %d", n+1, len(crashes))
		}
	}
	t.Logf("%d crashes", len(crashes))
}

// A deletion that has given up at a provider says what remains there, wherever a crash was. Either
// our records are gone or the job names them, also if the provider accepts the credential again.
func TestACrashForgetsNotWhatRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of crashes
		var crashes []string
		keeps := false
		dir, edge := filepath.Join(t.TempDir(), "data"), servicetest.NewEdge("edge.test")
		committed := func(time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if !keeps {
				return
			}
			to := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
				t.Error(err)
			}
			crashes = append(crashes, to)
		}
		w, end := newEdgeWorldIn(t, dir, store.Options{Committed: committed}, edge)
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		w.create(id, "own", "TXT", "x")
		w.settle()
		zones := edge.Keep()
		mu.Lock()
		keeps = true
		mu.Unlock()
		edge.Set(func() { clear(edge.Tokens) })
		job, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		keeps = false
		mu.Unlock()
		end()
		told := 0
		for n, from := range crashes {
			zones()
			edge.Set(func() { edge.Tokens[servicetest.EdgeToken] = "edit" })
			to := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			w, end := newEdgeWorldIn(t, to, store.Options{}, edge)
			time.Sleep(time.Hour)
			synctest.Wait()
			if _, err := w.Domains.DomainByID(id); err == nil { // it was before the deletion
				end()
				continue
			}
			j := getJob(t, w.Service, w.who, job.JobID)
			step, left := j.Steps[1], len(edge.Ours("edge.test"))
			switch {
			case j.Status != "completed" || step.Name != "edge_records":
				t.Errorf("after crash %d of %d the job is %+v", n+1, len(crashes), j)
			case left == 0 && step.Status == "completed":
			case step.Status == "error" && strings.Contains(*step.Error, "MX edge.test") && strings.Contains(*step.Error, "1 of your own"):
				told++
			default:
				t.Errorf("after crash %d of %d, %d records remain, and the step is %+v", n+1, len(crashes), left, step)
			}
			end()
		}
		if told == 0 || told == len(crashes) {
			t.Errorf("%d of %d crashes were after it gave up", told, len(crashes))
		}
	})
}

// A dead credential for the provider to which a domain moves does not keep our records at the
// present one.
func TestDeletionErasesBothPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.Tokens["second"] = "edit"
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		second := w.credentialAt(store.DomainProviderCloudflare, "second")
		w.edge.Set(func() {
			w.edge.Meddle = func(call string) error {
				if call == "records" { // the move does not end
					return servicetest.ErrNoAnswer
				}
				return nil
			}
		})
		w.move(id, second)
		synctest.Wait()
		w.edge.Set(func() { w.edge.Meddle = nil; delete(w.edge.Tokens, "second") })
		job, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id})
		if err != nil {
			t.Fatal(err)
		}
		w.settle()
		j := getJob(t, w.Service, w.who, job.JobID)
		if step := j.Steps[1]; j.Status != "completed" || step.Status != "error" || !strings.Contains(*step.Error, "Cloudflare") || strings.Contains(*step.Error, "Hetzner") {
			t.Errorf("job %+v", j)
		}
		if left := w.edge.Ours("edge.test"); len(left) != 0 {
			t.Errorf("left: %s", left)
		}
	})
}

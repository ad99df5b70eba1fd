package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

const importedValues = 1000 // of the zone file whose import is killed; five transactions

// importZone kills a server that imports a zone file, or that removes what an import before has
// left. The zone then has all values of the file or none, and no row of an import that did not end
// stays.
func (w *killWorld) importZone(t *testing.T, name string, n int) bool {
	dir := t.TempDir()
	out, err := exec.Command(w.path, "init", "--data", dir, "--owner-email", "owner@example.org", "--json").Output()
	var made struct{ Token string }
	if err != nil || json.Unmarshal(out, &made) != nil {
		t.Fatalf("init: %v %s", err, out)
	}
	i := rig.Prepare(t, dir, made.Token, "--outbound", "capture")
	i.Program = w.path
	i.Start()
	id := i.AddDomain("example.test")
	i.Want(200, "PUT", "/v1/domains/"+id+"/zone/own/A", map[string]any{"values": []string{"192.0.2.1"}}, nil)
	i.Stop()

	var file strings.Builder
	for k := range importedValues {
		fmt.Fprintf(&file, "r%d 300 IN A 192.0.2.2\n", k)
	}
	killed := func(point string, passing int) bool {
		i.Env = []string{fmt.Sprintf("MAILSTEAD_KILL_AT=%s:%d", point, passing)}
		if i.Launch() {
			importInto(t, i, id, file.String())
		}
		for end := time.Now().Add(5 * time.Second); !i.Died(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				i.Kill()
				return false
			}
		}
		_ = i.Cmd.Wait() // by the signal
		if i.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the server ended with %v", i.Cmd.ProcessState)
		}
		i.Cmd, i.Env = nil, nil
		return true
	}
	if name == "zone.swept" && !killed("zone.part", 4) || !killed(name, n) {
		return false
	}
	i.Start()
	values := func() int {
		var zone struct {
			Records []struct {
				Source string
				Values []string
			}
		}
		i.Want(200, "GET", "/v1/domains/"+id+"/zone", nil, &zone)
		count := 0
		for _, set := range zone.Records {
			if set.Source == "custom" {
				count += len(set.Values)
			}
		}
		return count
	}
	if got := values(); got != 1 {
		t.Errorf("%d values are there after an import that did not end", got)
	}
	importInto(t, i, id, file.String())
	if got := values(); got != importedValues+1 {
		t.Errorf("imported again, %d values are there", got)
	}
	i.Check()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	err = st.View(func(tx *store.Tx) error {
		if rows := len(slices.Collect(store.CustomRecords.All(tx))); rows != importedValues+1 {
			t.Errorf("%d rows are there", rows)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return true
}

// importInto asks a server that may die to import a zone file.
func importInto(t *testing.T, i *rig.Instance, id, file string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+i.Ready.HTTP+"/v1/domains/"+id+"/zone/import", bytes.NewReader([]byte(file)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "text/dns")
	r.Header.Set("Authorization", "Bearer "+i.Token)
	answer, err := i.HTTP.Do(r)
	if err == nil {
		answer.Body.Close()
	}
}

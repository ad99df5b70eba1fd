package faults

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestRequestLogSurvivesKills: a kill -9 loses at most the requests of the last ten seconds, also
// right behind a write, and neither it nor damaged files keep the server from starting.
func TestRequestLogSurvivesKills(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	dir := filepath.Join(i.Dir, "requests")
	onDisk := func(id string) (found bool) {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				content, _ := os.ReadFile(path)
				found = found || bytes.Contains(content, []byte(id))
			}
			return nil
		})
		return found
	}
	ids := map[string]bool{}
	for round := range 3 {
		var id string
		for range 50 {
			resp := get(i, "/v1/account")
			id = resp.Header.Get("X-Request-Id")
			ids[id] = true
		}
		began := time.Now()
		i.Until("the requests are written", func() bool { return onDisk(id) })
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("round %d: the requests were written after %s", round, took)
		}
		i.Kill()
		if round == 1 { // the end of a row that was cut off
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					err = appendTo(path, "\x00\x00\x01\x00cut")
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		i.Start()
		if n := countRequests(i, ids); n != len(ids) {
			t.Errorf("round %d: %d of %d requests are left", round, n, len(ids))
		}
	}

	// Whatever is in its place, the server starts and works.
	for _, spoil := range []func() error{
		func() error { return os.RemoveAll(dir) },
		func() error { return os.WriteFile(dir, []byte("no directory"), 0o600) },
	} {
		i.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		i.Start()
		if resp := get(i, "/v1/account"); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	i.Stop()
	if out, code := rig.Run(t, "check", "--data", i.Dir); code != 0 {
		t.Errorf("check: %d %s", code, out)
	}
}

// get asks for a path with the token of the instance.
func get(i *rig.Instance, path string) *http.Response {
	i.T.Helper()
	r, err := http.NewRequestWithContext(i.T.Context(), http.MethodGet, "http://"+i.Ready.HTTP+path, nil)
	if err != nil {
		i.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+i.Token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		i.T.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// appendTo appends text to a file.
func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, text)
	if err != nil {
		return err
	}
	return f.Close()
}

// countRequests counts the requests in the request log that have one of the ids.
func countRequests(i *rig.Instance, ids map[string]bool) (n int) {
	i.T.Helper()
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				ID string `json:"request_id"`
			}
			Pagination struct{ Cursor string }
		}
		i.Want(http.StatusOK, http.MethodGet, "/v1/requests?operation=get_account&limit=100"+cursor, nil, &page)
		for _, row := range page.Data {
			if ids[row.ID] {
				n++
			}
		}
		if page.Pagination.Cursor == "" {
			return n
		}
		cursor = "&cursor=" + page.Pagination.Cursor
	}
}

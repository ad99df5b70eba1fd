package requests_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/requests"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
	"github.com/mailstead/mailstead/store/requestlog"
)

// A room is a service whose disk, clock and log the test sees.
type room struct {
	*servicetest.Sandbox
	t     testing.TB
	dir   string
	owner core.Actor
	free  atomic.Int64
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

func newRoom(t testing.TB) *room {
	t.Helper()
	r := &room{t: t, dir: t.TempDir(), log: new(lockedBuffer)}
	r.free.Store(1 << 40)
	o := store.Options{
		Now:  func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) },
		Room: func(string) (free, total int64, err error) { return r.free.Load(), 1 << 41, nil },
	}
	var end func()
	r.Sandbox, end = servicetest.NewIn(t, r.dir, o, func(c *core.Config) { c.Log = slog.New(slog.NewTextHandler(r.log, nil)) })
	t.Cleanup(end)
	r.owner = servicetest.Actor(r.Owner)
	return r
}

// record records a request of an account and returns its id.
func (r *room) record(account string, change func(*requests.Row)) string {
	row := requests.Row{
		ID: r.Core.NewRequestID(), At: r.Core.Now(), Method: "GET", Path: "/v1/account", Operation: "get_account", Status: 200, TokenID: "tok_1", TokenName: "deploy", IP: "192.0.2.7",
	}
	if change != nil {
		change(&row)
	}
	r.Requests.Record(account, row)
	return row.ID
}

// list lists the ids of the requests that fit, from all pages.
func (r *room) list(who core.Actor, in requests.ListRequestsIn) (out []string) {
	r.t.Helper()
	for {
		p, err := r.Requests.ListRequests(r.t.Context(), who, in)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, row := range p.Data {
			out = append(out, row.RequestID)
		}
		if p.Pagination.Cursor == nil {
			return out
		}
		in.Cursor = *p.Pagination.Cursor
	}
}

// TestFiltersAndPages looks for a few of many requests: every page is bounded, and together they
// have them all, newest first.
func TestFiltersAndPages(t *testing.T) {
	r := newRoom(t)
	var rare, of []string
	for i := range 6000 {
		id := r.record(r.Owner.AccountID, func(row *requests.Row) {
			switch {
			case i%1500 == 7:
				row.Operation, row.Status, row.TokenID, row.ClientID = "send_email", 400, "tok_2", "mine"
				row.Method, row.Path = "POST", "/v1/email-users/eu_1/inbox/send"
			case i%100 == 0:
				row.Path = "/v1/send_email/400/tok_2/mine" // the same texts, elsewhere in the row
				row.TokenName = "POST eu_1"
			case i == 3001:
				row.TokenID, row.Status = "", 503
			}
		})
		of = append(of, id)
		if i%1500 == 7 {
			rare = append([]string{id}, rare...)
		}
	}
	status, refused, failed := 400, 4, 5
	for name, in := range map[string]requests.ListRequestsIn{
		"operation": {Operation: "send_email"}, "status": {Status: &status}, "token": {TokenID: "tok_2"}, "client's id": {RequestID: "mine"},
		"method": {Method: "POST"}, "a part of the path": {Path: "/eu_1/"}, "class of statuses": {StatusClass: &refused},
		"all": {Operation: "send_email", Method: "POST", Path: "eu_1", Status: &status, StatusClass: &refused, TokenID: "tok_2", Via: "token", RequestID: "mine"},
	} {
		if got := r.list(r.owner, in); fmt.Sprint(got) != fmt.Sprint(rare) {
			t.Errorf("%s: %v, want %v", name, got, rare)
		}
	}
	for _, in := range []requests.ListRequestsIn{{Via: "dashboard"}, {StatusClass: &failed}} {
		if got := r.list(r.owner, in); len(got) != 1 || got[0] != of[3001] {
			t.Errorf("%+v: %v, want %s", in, got, of[3001])
		}
	}
	if got := r.list(r.owner, requests.ListRequestsIn{Via: "token"}); len(got) != len(of)-1 {
		t.Errorf("with a token: %d", len(got))
	}
	if got := r.list(r.owner, requests.ListRequestsIn{RequestID: of[17]}); len(got) != 1 || got[0] != of[17] {
		t.Errorf("the server's id: %v", got)
	}
	if got := r.list(r.owner, requests.ListRequestsIn{}); len(got) != len(of) || got[0] != of[len(of)-1] || got[len(of)-1] != of[0] {
		t.Errorf("%d of %d requests", len(got), len(of))
	}
	if got := r.list(r.owner, requests.ListRequestsIn{Operation: "none"}); got != nil {
		t.Errorf("%v", got)
	}
	five := 5
	p, err := r.Requests.ListRequests(t.Context(), r.owner, requests.ListRequestsIn{Query: page.Query{Limit: &five}})
	if err != nil || len(p.Data) != 5 || !p.Pagination.HasMore {
		t.Fatalf("%+v, %v", p, err)
	}
	other := requests.ListRequestsIn{Query: page.Query{Cursor: *p.Pagination.Cursor}, Operation: "send_email"}
	if _, err := r.Requests.ListRequests(t.Context(), r.owner, other); !servicetest.HasCode(err, "invalid_cursor") {
		t.Errorf("a cursor of another list: %v", err)
	}
}

// TestOwnersRequestsAreTheOwnersAlone, and those of an account are of that account.
func TestOwnersRequestsAreTheOwnersAlone(t *testing.T) {
	r := newRoom(t)
	owners := r.record(r.Owner.AccountID, func(row *requests.Row) { row.Owner = true })
	admins := r.record(r.Owner.AccountID, nil)
	admin := r.owner
	admin.Role = "admin"
	stranger := servicetest.Actor(r.Account(t, "other@example.test"))
	for name, c := range map[string]struct {
		who  core.Actor
		sees string
	}{
		"owner": {r.owner, admins + " " + owners}, "admin": {admin, admins}, "owner of another account": {stranger, ""},
	} {
		if got := strings.Join(r.list(c.who, requests.ListRequestsIn{}), " "); got != c.sees {
			t.Errorf("%s: %s, want %s", name, got, c.sees)
		}
		for _, id := range []string{owners, admins} {
			out, err := r.Requests.GetRequest(t.Context(), c.who, requests.RequestIn{ID: id})
			if strings.Contains(c.sees, id) != (err == nil) || err != nil && !servicetest.HasCode(err, "not_found") || err == nil && out.RequestID != id {
				t.Errorf("%s: %s is %+v, %v", name, id, out, err)
			}
		}
	}
	for _, id := range []string{"", "x", "req_", "req_x", "../" + admins, r.Core.NewRequestID(), strings.Replace(admins, "req", "usr", 1)} {
		if out, err := r.Requests.GetRequest(t.Context(), r.owner, requests.RequestIn{ID: id}); !servicetest.HasCode(err, "not_found") {
			t.Errorf("%q is %+v, %v", id, out, err)
		}
	}
}

// TestRowShowsWhatWasRecorded, and null for what was not.
func TestRowShowsWhatWasRecorded(t *testing.T) {
	r := newRoom(t)
	full := r.record(r.Owner.AccountID, func(row *requests.Row) {
		row.ClientID, row.Duration, row.ErrorCode, row.Body, row.Answer = "mine", 12, "invalid_json", []byte(`{"length":3}`), []byte(`{"error":{"code":"invalid_json"}}`)
	})
	bare := r.record(r.Owner.AccountID, func(row *requests.Row) { row.TokenID, row.TokenName = "", "" })
	out, err := r.Requests.GetRequest(t.Context(), r.owner, requests.RequestIn{ID: full})
	if err != nil {
		t.Fatal(err)
	}
	if *out.ClientRequestID != "mine" || out.DurationMS != 12 || *out.ErrorCode != "invalid_json" || string(out.Body) != `{"length":3}` || string(out.Answer) != `{"error":{"code":"invalid_json"}}` ||
		*out.Token != (requests.RequestToken{ID: "tok_1", Name: "deploy"}) || out.IP != "192.0.2.7" || !out.At.Equal(r.Core.Now()) {
		t.Errorf("%+v", out)
	}
	out, err = r.Requests.GetRequest(t.Context(), r.owner, requests.RequestIn{ID: bare})
	if err != nil || out.ClientRequestID != nil || out.Token != nil || out.ErrorCode != nil || string(out.Body) != "null" || string(out.Answer) != "null" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestFloodIsBounded: when more requests come than are written, further ones are dropped and
// counted, and later ones are recorded again.
func TestFloodIsBounded(t *testing.T) {
	r := newRoom(t)
	body := bytes.Repeat([]byte("1"), requests.MaxShown)
	for range 5000 {
		r.record(r.Owner.AccountID, func(row *requests.Row) { row.Body = body })
	}
	if n := len(r.list(r.owner, requests.ListRequestsIn{})); n < 1000 || n > 2000 { // 16 MiB of them
		t.Errorf("%d large requests were kept", n)
	}
	for range 30_000 {
		r.record(r.Owner.AccountID, nil)
	}
	if n := len(r.list(r.owner, requests.ListRequestsIn{Operation: "get_account"})); n < 20_000 || n > 22_000 {
		t.Errorf("%d requests were kept", n)
	}
	last := r.record(r.Owner.AccountID, nil)
	if got := r.list(r.owner, requests.ListRequestsIn{RequestID: last}); len(got) != 1 {
		t.Errorf("after the flood: %v", got)
	}
	if r.log.count("were dropped") != 2 {
		t.Error("the log does not have each loss once")
	}
}

// TestFullDiskAndDamageHarmNothing: rows are lost, the log says so once, and the next are written
// when the disk has room and the directory is sound again.
func TestFullDiskAndDamageHarmNothing(t *testing.T) {
	r := newRoom(t)
	dir := filepath.Join(r.dir, requestlog.Dir)
	r.free.Store(100 << 20)
	for range 3 {
		r.record(r.Owner.AccountID, nil)
		if got := r.list(r.owner, requests.ListRequestsIn{}); got != nil {
			t.Errorf("on a full disk: %v", got)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the log was begun on a full disk")
	}
	r.free.Store(1 << 40)
	first := r.record(r.Owner.AccountID, nil)
	if got := r.list(r.owner, requests.ListRequestsIn{}); len(got) != 1 {
		t.Errorf("with room again: %v", got)
	}
	if r.log.count("not written to the request log") != 1 || r.log.count("written to the request log again") != 1 {
		t.Error("the log does not have each change once")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, []byte("no directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.record(r.Owner.AccountID, nil)
	if _, err := r.Requests.ListRequests(t.Context(), r.owner, requests.ListRequestsIn{}); err == nil {
		t.Error("a broken log is listed")
	}
	if err := r.Requests.Prune(t.Context()); err != nil {
		t.Errorf("prune: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	last := r.record(r.Owner.AccountID, nil)
	if got := r.list(r.owner, requests.ListRequestsIn{}); len(got) != 1 || got[0] != last || last == first {
		t.Errorf("after the damage: %v", got)
	}
}

// TestRowsAreWrittenSoon: Run writes rows while nobody asks for them, and the rest at its end.
func TestRowsAreWrittenSoon(t *testing.T) {
	r := newRoom(t)
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { r.Requests.Run(ctx) })
	id := r.record(r.Owner.AccountID, nil)
	for began := time.Now(); !r.isOnDisk(id); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("not written within ten seconds")
		}
	}
	id = r.record(r.Owner.AccountID, nil)
	stop()
	ended.Wait()
	if !r.isOnDisk(id) {
		t.Error("the last row was lost")
	}
}

// isOnDisk reports whether a file of the log has the text.
func (r *room) isOnDisk(text string) bool {
	found := false
	_ = filepath.WalkDir(filepath.Join(r.dir, requestlog.Dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			content, _ := os.ReadFile(path)
			found = found || bytes.Contains(content, []byte(text))
		}
		return nil
	})
	return found
}

// TestOldRequestsGo: after 7 days requests are not shown, and deleted; those of deleted accounts go
// with them, and all if none are to be kept.
func TestOldRequestsGo(t *testing.T) {
	r := newRoom(t)
	old := r.record(r.Owner.AccountID, func(row *requests.Row) {
		row.At = r.Core.Now().Add(-7*24*time.Hour - time.Second)
		row.ID = recordid.First("req", row.At)
	})
	gone := r.record("acc_gone", nil)
	if got := r.list(r.owner, requests.ListRequestsIn{}); got != nil {
		t.Errorf("%v", got)
	}
	if _, err := r.Requests.GetRequest(t.Context(), r.owner, requests.RequestIn{ID: old}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("an old request: %v", err)
	}
	if !r.isOnDisk(old) || !r.isOnDisk(gone) {
		t.Fatal("not written")
	}
	if _, err := r.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if r.isOnDisk(old) || r.isOnDisk(gone) {
		t.Error("not deleted")
	}
	young := r.record(r.Owner.AccountID, nil)
	if got := r.list(r.owner, requests.ListRequestsIn{}); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if err := r.Requests.DropAccount(r.Owner.AccountID); err != nil || r.isOnDisk(young) {
		t.Errorf("dropped: %v", err)
	}
	young = r.record(r.Owner.AccountID, nil)
	if got := r.list(r.owner, requests.ListRequestsIn{}); len(got) != 1 {
		t.Errorf("%v", got)
	}
	r.Core.ChangeSettings(func(now *core.Settings) { now.Retention.Requests = 0 })
	if got := r.list(r.owner, requests.ListRequestsIn{}); got != nil || r.Requests.On() {
		t.Errorf("turned off: %v", got)
	}
	if err := r.Requests.Prune(t.Context()); err != nil || r.isOnDisk(young) {
		t.Errorf("turned off: %v", err)
	}
}

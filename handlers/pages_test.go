package handlers

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A shelf is a long list with rows that come and go.
type shelf struct {
	path, field string
	add         func(name string)
	remove      func(n int) // the n-th of those that were added
}

// TestWalkOverAThousandRows pages through lists while rows come and go: nothing that stays is
// skipped or seen twice.
func TestWalkOverAThousandRows(t *testing.T) {
	if testing.Short() {
		t.Skip("it does one thing after the other, many times")
	}
	b := newSandbox(t, nil)
	ann := b.box("ann")
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	put := 0
	inbox := shelf{
		path: "/v1/inbox?limit=50", field: "subject",
		add: func(name string) {
			how := mail{Received: start.Add(time.Duration(put/4) * time.Second)} // four share each instant
			b.Put(t, "ann@boxes.test", "Subject: "+name+"\n\nx\n", how)
			put++
		},
		remove: func(n int) { b.remove(fmt.Sprintf("/v1/email-users/%s/inbox/%d", ann, n+1)).is(200) },
	}
	one := inbox
	one.path = "/v1/email-users/" + ann + "/inbox?limit=50"
	suppressions := shelf{
		path: "/v1/suppressions?limit=50", field: "email",
		add:    func(name string) { b.post("/v1/suppressions", map[string]any{"email": name + "@far.test"}).is(201) },
		remove: func(n int) { b.remove(fmt.Sprintf("/v1/suppressions/row%d@far.test", n)).is(200) },
	}
	t.Run("inbox of all", func(t *testing.T) { inbox.walk(t, b.client, 0) })
	t.Run("inbox of one", func(t *testing.T) { one.walk(t, b.client, put) })
	t.Run("suppressions", func(t *testing.T) { suppressions.walk(t, b.client, 0) })
}

// walk fills the shelf, of which offset rows were added before, and reads it page by page. After
// each page rows come, and the page's last row and some from anywhere go.
func (s shelf) walk(t *testing.T, c *client, offset int) {
	const rows = 1000
	for n := range rows {
		s.add(fmt.Sprintf("row%d", offset+n))
	}
	random := rand.New(rand.NewPCG(1, 2))
	seen, gone := map[string]int{}, map[string]bool{}
	remove := func(name string) {
		var n int
		if _, err := fmt.Sscanf(name, "row%d", &n); err == nil && n >= offset && !gone[name] {
			gone[name] = true
			s.remove(n)
		}
	}
	pages := 0
	for cursor, more := "", true; more; pages++ {
		r := c.get(s.path + "&cursor=" + url.QueryEscape(cursor)).is(200)
		names := r.list("data", s.field)
		for i := range names {
			names[i] = strings.TrimSuffix(names[i], "@far.test")
			seen[names[i]]++
		}
		cursor, more = r.text("pagination.cursor"), r.text("pagination.has_more") == "true"
		remove(names[len(names)-1])
		for i := range 4 {
			s.add(fmt.Sprintf("new%d-%d-%d", offset, pages, i))
			remove(fmt.Sprintf("row%d", offset+random.IntN(rows)))
		}
	}
	if pages < 19 || len(gone) < 80 {
		t.Errorf("the walk had %d pages, while %d rows went", pages, len(gone))
	}
	for n := range rows {
		name := fmt.Sprintf("row%d", offset+n)
		if times := seen[name]; times > 1 || times == 0 && !gone[name] {
			t.Errorf("%s was seen %d times", name, times)
		}
	}
}

package api

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/hetzner/hetznertest"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// fullWalks are the walks that make soak NAME=walks adds to those of CI.
var fullWalks = []string{"accounts", "agents", "consent", "dialogs", "docs", "frame", "host", "inuse", "language", "lasting", "lists", "long", "mail", "mailbox",
	"operator", "people", "reading", "requests", "sending", "truth", "zone"}

// TestDashboard walks through the dashboard with a real browser on the real program; the walks are
// web/test/*.test.mjs. MAILSTEAD_SHOTS names a folder for pictures of its pages, MAILSTEAD_WALK the
// walks to run, with commas between. Without either the walks are brief: some do less, and
// fullWalks are left out. It takes the longest, and of tests that wait for the others' turn the
// last of the package goes on first: so it is in this file.
func TestDashboard(t *testing.T) {
	t.Parallel()
	node, chromium := rig.Peer(t, "node"), rig.Peer(t, "chromium-headless-shell")
	if !rig.IsFile(rig.FromRoot("web/node_modules/.made")) {
		install := exec.Command(rig.Peer(t, "sh"), rig.FromRoot(".ci/web"), "modules")
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("install what the walks need: %v\n%s", err, out)
		}
	}
	const password = "the cat sat on the mat"
	i := newDashboardInstance(t, password)
	crowded := ""
	if os.Getenv("MAILSTEAD_SOAK") == "1" {
		crowded = crowd(i, "crowd.test", 1_000_000)
	}
	long := addLongLists(i)
	cert, key, _ := rig.SelfSigned(t, "localhost")
	fresh, welcome := newFreshInstance(t, "--ca-file", cert)
	pocket, pocketWelcome := newFreshInstance(t) // whose first run is on a phone
	var files []string
	for walk := range strings.SplitSeq(cmp.Or(os.Getenv("MAILSTEAD_WALK"), "*"), ",") {
		found, err := filepath.Glob(rig.FromRoot("web/test/" + walk + ".test.mjs"))
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no walk %q: %v", walk, err)
		}
		files = append(files, found...)
	}
	brief := ""
	if os.Getenv("MAILSTEAD_WALK") == "" && os.Getenv("MAILSTEAD_SOAK") != "1" && os.Getenv("MAILSTEAD_SHOTS") == "" {
		brief = "1"
		files = slices.DeleteFunc(files, func(file string) bool {
			return slices.Contains(fullWalks, strings.TrimSuffix(filepath.Base(file), ".test.mjs"))
		})
	}
	limit := 28 * time.Minute
	if os.Getenv("MAILSTEAD_LISTS") == "full" {
		limit = 90 * time.Minute
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	env := append(os.Environ(), "MAILSTEAD_URL=http://"+i.Ready.HTTP, "MAILSTEAD_SMTP="+i.Ready.SMTP, "MAILSTEAD_TOKEN="+i.Token,
		"MAILSTEAD_BRIEF="+brief, "MAILSTEAD_CROWDED="+crowded, "MAILSTEAD_LONG="+long, "MAILSTEAD_CERT="+cert, "MAILSTEAD_KEY="+key, "MAILSTEAD_DIR="+i.Dir, "MAILSTEAD_BIN="+i.Cmd.Path, "MAILSTEAD_FRESH_URL=http://"+fresh.Ready.HTTP, "MAILSTEAD_FRESH_SMTP="+fresh.Ready.SMTP,
		"MAILSTEAD_FRESH_DIR="+fresh.Dir, "MAILSTEAD_FRESH_WELCOME="+welcome,
		"MAILSTEAD_POCKET_URL=http://"+pocket.Ready.HTTP, "MAILSTEAD_POCKET_SMTP="+pocket.Ready.SMTP, "MAILSTEAD_POCKET_WELCOME="+pocketWelcome,
		"MAILSTEAD_IMAP="+i.Ready.IMAP, "MAILSTEAD_OWNER=owner@example.org", "MAILSTEAD_PASSWORD="+password, "MAILSTEAD_CHROMIUM="+chromium)
	var wg sync.WaitGroup
	for _, walks := range halves(files) {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, node, "--test-reporter=spec", "--input-type=module", "--eval", "import '"+strings.Join(walks, "'; import '")+"'")
			cmd.Env = env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v", err)
			}
			t.Logf("%s", out)
		})
	}
	wg.Wait()
}

// halves deals files of walks out to two browsers, by their size: with a browser for each, every
// file would wait for its start.
func halves(files []string) [][]string {
	size := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(size(b), size(a)) })
	var out [2][]string
	var total [2]int64
	for _, file := range files {
		n := 0
		if total[1] < total[0] {
			n = 1
		}
		out[n], total[n] = append(out[n], file), total[n]+size(file)
	}
	return slices.DeleteFunc(out[:], func(walks []string) bool { return len(walks) == 0 })
}

// newDashboardDNS is a DNS provider that has domains whose mail goes elsewhere.
func newDashboardDNS() http.Handler {
	dns := hetznertest.New("walk-token")
	for _, zone := range []string{"kept-wide.test", "kept-phone.test", "stays-wide.test", "stays-phone.test"} {
		dns.AddZone(zone, "primary")
		dns.Put(zone, "@", "MX", 300, "10 mx.before.example.")
		dns.Put(zone, "www", "A", 300, "192.0.2.7")
	}
	return dns
}

// newDashboardInstance is a sandbox that sells pretend domains and knows a DNS provider, and whose
// owner has a password.
func newDashboardInstance(t *testing.T, password string) *rig.Instance {
	dns := httptest.NewServer(newDashboardDNS())
	t.Cleanup(dns.Close)
	i := rig.Start(t, rig.GenerousLimits+"[registrar.sandbox]\n"+fmt.Sprintf("[hetzner]\nbase_url = %q\n", dns.URL+"/v1"))
	if _, code := rig.Run(t, "user", "reset-password", "--data", i.Dir, "--user", "owner@example.org", "--password", password); code != 0 {
		t.Fatal("the owner's password could not be set")
	}
	return i
}

var welcomeLink = regexp.MustCompile(`welcome +(http://\S+)`)

// newFreshInstance is a sandbox that starts in an empty directory, with a relay that refuses gone@
// for good and later@ for now, and the link that its first start prints.
func newFreshInstance(t *testing.T, args ...string) (i *rig.Instance, welcome string) {
	host, port, err := net.SplitHostPort(newPicky(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n", host, port)
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	i = rig.StartExisting(t, dir, "", append([]string{"--outbound", "relay"}, args...)...)
	i.Until("the first start has printed its link", func() bool {
		said, err := os.ReadFile(i.Log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if found := welcomeLink.FindSubmatch(said); found != nil {
			welcome = string(found[1])
		}
		return welcome != ""
	})
	return i, welcome
}

// crowd makes a mailbox with so many messages in its INBOX, all but one of them written straight
// into the stopped store, and gives its address.
func crowd(i *rig.Instance, domain string, messages int) string {
	i.T.Helper()
	i.AddDomain(domain)
	box := "full@" + domain
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": box}, nil)
	rig.DeliverFrom(i.T, i.Ready.SMTP, "stranger@far.test", box, "From: Stranger <stranger@far.test>\r\nTo: "+box+"\r\nSubject: One of very many\r\n\r\nHello.\r\n")
	i.Stop()
	st, err := store.Open(i.Dir, store.Options{})
	if err != nil {
		i.T.Fatal(err)
	}
	defer st.Close()
	const batch = 500
	began := time.Now()
	for done := 1; done < messages; done += batch {
		if err := st.Update(func(tx *store.Tx) error { return copyFirst(tx, box, done, min(batch, messages-done)) }); err != nil {
			i.T.Fatal(err)
		}
	}
	i.T.Logf("%d messages were written in %s", messages, time.Since(began))
	if err := st.Close(); err != nil {
		i.T.Fatal(err)
	}
	i.Start()
	return box
}

// copyFirst adds n copies of the first message of a mailbox, a second apart, into the past.
func copyFirst(tx *store.Tx, box string, from, n int) error {
	b, err := store.MailboxByEmail.Get(tx, box)
	if err != nil {
		return err
	}
	first, err := tx.Message(b.Num, store.InboxID, 1)
	if err != nil {
		return err
	}
	meta, err := tx.Meta(b.Num, store.InboxID, 1)
	if err != nil {
		return err
	}
	for k := from; k < from+n; k++ {
		m := *first
		m.UID, m.ModSeq, m.Received = 0, 0, first.Received.Add(-time.Duration(k)*time.Second)
		if err := tx.AddMessage(&m, meta); err != nil {
			return err
		}
	}
	return nil
}

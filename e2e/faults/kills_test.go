package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/digest"
)

// killAreas says of each area of kill points which way of using the program passes them.
var killAreas = map[string]func(*killWorld, *testing.T, string, int) bool{
	"accept": (*killWorld).load, "backup": (*killWorld).load, "commit": (*killWorld).load, "compact": (*killWorld).load,
	"copy": (*killWorld).load, "deletion": (*killWorld).load, "delivery": (*killWorld).load, "drill": (*killWorld).drill, "entry": (*killWorld).load,
	"filing": (*killWorld).load, "inbox": (*killWorld).load, "jobs": (*killWorld).load, "object": (*killWorld).load,
	"segment": (*killWorld).load, "spool": (*killWorld).load, "submit": (*killWorld).load, "text": (*killWorld).load,
	"webhook": (*killWorld).load,
	"key":     (*killWorld).initialise, "migrate": (*killWorld).migrate, "rehearse": (*killWorld).swap, "restore": (*killWorld).restore, "rotate": (*killWorld).rotate, "swap": (*killWorld).swap,
	"scan": (*killWorld).scanZone, "zone": (*killWorld).importZone,
}

// killPoints reads the names of all points from the sources, sorted.
func killPoints(t *testing.T) (names []string) {
	t.Helper()
	at := map[string]string{}
	err := filepath.WalkDir(rig.FromRoot("."), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != rig.FromRoot(".") && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "data" || name == "e2e") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			of, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := of.X.(*ast.Ident); !ok || pkg.Name != "killpoint" {
				return true
			}
			place := fset.Position(call.Pos()).String()
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok || of.Sel.Name != "At" {
				t.Errorf("%s: a kill point needs a name that stands there", place)
				return true
			}
			name, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if at[name] != "" {
				t.Errorf("%s and %s are both called %s", at[name], place, name)
			}
			at[name] = place
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(at))
}

// TestKillPointsAreNamed: each kill point has a name of its own, and a test passes it.
func TestKillPointsAreNamed(t *testing.T) {
	names := killPoints(t)
	for _, name := range names {
		area, _, _ := strings.Cut(name, ".")
		if !regexp.MustCompile(`^[a-z]+\.[a-z_]+$`).MatchString(name) || killAreas[area] == nil {
			t.Errorf("%s is not the name of a point in an area of killAreas", name)
		}
	}
	if len(names) < 50 {
		t.Errorf("only %d kill points were found", len(names))
	}
}

// TestKillPoints ends the program at named points of its write paths, under a mixed load. Nothing
// that was acknowledged is lost or there twice, the store is whole, and the next start serves. The
// points of a day follow those of the day before; make soak-kills takes each of them three times.
func TestKillPoints(t *testing.T) {
	t.Parallel()
	names := killPoints(t)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "0"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if seed == 0 {
		seed = dayOfCommit()
	}
	rnd := rand.New(rand.NewPCG(seed, 7))
	type kill struct {
		name string
		n    int
	}
	passings, err := strconv.Atoi(cmp.Or(os.Getenv("MAILSTEAD_PASSINGS"), "3"))
	if err != nil || passings < 1 || passings > 3 {
		t.Fatalf("MAILSTEAD_PASSINGS is 1 to 3: %v", err)
	}
	var kills []kill
	if only := os.Getenv("MAILSTEAD_POINTS"); only != "" {
		for _, name := range names {
			if matched, err := regexp.MatchString(only, name); err != nil {
				t.Fatal(err)
			} else if matched {
				times := []int{1, 2, 3 + rnd.IntN(18)}
				if area, _, _ := strings.Cut(name, "."); area == "key" || area == "migrate" || area == "rotate" || area == "swap" || area == "rehearse" { // commands pass them seldom
					times[2] = 3
				}
				for _, n := range times[:passings] {
					kills = append(kills, kill{name, n})
				}
			}
		}
	} else {
		for k := range 2 {
			kills = append(kills, kill{names[(int(seed%1e6)*2+k)%len(names)], 1 + rnd.IntN(6)})
		}
	}
	w := newKillWorld(t)
	var mu sync.Mutex
	died, seldom := 0, 0
	t.Run("at", func(t *testing.T) {
		for _, k := range kills {
			t.Run(fmt.Sprintf("%s:%d", k.name, k.n), func(t *testing.T) {
				t.Parallel()
				area, _, _ := strings.Cut(k.name, ".")
				reached := killAreas[area](w, t, k.name, k.n)
				if !reached && k.n > 1 { // it is passed less often than that
					mu.Lock()
					seldom++
					mu.Unlock()
					reached = killAreas[area](w, t, k.name, 1)
				}
				if !reached {
					t.Fatal("the program never came there")
				}
				mu.Lock()
				died++
				mu.Unlock()
			})
		}
	})
	t.Logf("seed %d: %d points of %d, %d kills, %d of them at a point's first passing, as there are no more", seed, len(kills), len(names), died, seldom)
}

// dayOfCommit is the day of the last commit, counted from 1970.
func dayOfCommit() uint64 {
	out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
	seconds, _ := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64)
	if err != nil || seconds == 0 {
		return 1
	}
	return seconds / 86400
}

// A killWorld is what all kills share: a store to begin with, its backups, and those outside.
type killWorld struct {
	path  string // of the program
	relay *rig.FakeSMTP
	hook  *rig.WebhookReceiver

	once             sync.Once
	base, backups    string // data directory and backups, to be copied
	token            string
	ann, bob, doomed string // ids

	keys keyBase
}

func newKillWorld(t *testing.T) *killWorld {
	t.Helper()
	path, err := rig.BinaryWithKillPoints()
	if err != nil {
		t.Fatal(err)
	}
	w := &killWorld{path: path, hook: rig.NewWebhookReceiver(t), base: t.TempDir(), backups: t.TempDir()}
	w.keys = keyBase{hook: rig.NewWebhookReceiver(t), dir: t.TempDir(), backups: t.TempDir()}
	w.relay = rig.NewFakeSMTP(t, true, func(n int) string { return fmt.Sprintf("250 Ok id-%d", n) })
	w.relay.MayBeCut = true
	return w
}

func (w *killWorld) config(backups string) string {
	host, port, _ := strings.Cut(w.relay.Addr, ":")
	return rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\n[backup]\nto=%q\n", host, port, backups)
}

// prepare makes the store that each kill under load begins with: with backups, mail of several
// segments, all but one of the runs that are merged, and a domain that is to be deleted.
func (w *killWorld) prepare(t *testing.T) {
	t.Helper()
	w.once.Do(func() {
		if err := os.WriteFile(filepath.Join(w.base, "mailstead.toml"), []byte(w.config(w.backups)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(w.path, "init", "--data", w.base, "--owner-email", "owner@example.org", "--json").Output()
		var made struct{ Token string }
		if err = cmp.Or(err, json.Unmarshal(out, &made)); err != nil {
			t.Fatal(err)
		}
		w.token = made.Token
		i := w.instance(t, w.base)
		i.Start()
		i.AddDomain("example.test")
		w.ann, w.bob = i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "battery staple")
		i.AddMailbox("cam@example.test", "correct horse")
		w.doomed = i.AddDomain("doomed.test")
		for n := range 3 {
			i.AddMailbox(fmt.Sprintf("user%d@doomed.test", n), "correct horse")
		}
		w.hook.Subscribe(i, "email.received")
		for run := range 7 { // mail of a second is indexed together
			for n := range 3 {
				for _, to := range []string{"ann@example.test", "cam@example.test", fmt.Sprintf("user%d@doomed.test", n)} {
					if err := rig.Transmit(i.Ready.SMTP, to, bulk(fmt.Sprintf("early %d %d", run, n), 2000)); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(1300 * time.Millisecond) // so that the next mail is indexed in a run of its own
		}
		i.Stop()
	})
	if w.doomed == "" {
		t.Fatal("there is no store to begin with")
	}
}

// instance is the program with kill points on a data directory, not started.
func (w *killWorld) instance(t *testing.T, dir string) *rig.Instance {
	t.Helper()
	i := rig.Prepare(t, dir, w.token, "--ca-file", w.hook.CAFile, "--outbound", "relay")
	i.Program = w.path
	return i
}

// run runs a command that is to be killed, and tells whether it was.
func (w *killWorld) run(t *testing.T, name string, n int, args ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.path, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("MAILSTEAD_KILL_AT=%s:%d", name, n))
	out, err := cmd.CombinedOutput()
	killed := cmd.ProcessState != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && ctx.Err() == nil
	if !killed && err != nil {
		t.Errorf("%v: %v, %s", args, err, out)
	}
	if killed && !strings.Contains(string(out), "killed at "+name) {
		t.Errorf("%v was killed elsewhere: %s", args, out)
	}
	return killed
}

// initialise kills `init`. After it a second one makes the account, or the first has made it.
func (w *killWorld) initialise(t *testing.T, name string, n int) bool {
	dir := t.TempDir()
	if !w.run(t, name, n, "init", "--data", dir, "--owner-email", "owner@example.org", "--json") {
		return false
	}
	var made struct{ Token string }
	out, code := rig.Run(t, "init", "--data", dir, "--owner-email", "owner@example.org", "--json")
	if code != 0 {
		out, code = rig.Run(t, "token", "create", "--data", dir, "--user", "owner@example.org", "--permissions", "read,write,admin", "--json")
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("after the kill: %d %s", code, out)
	}
	i := rig.StartExisting(t, dir, made.Token)
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("served")); err != nil {
		t.Fatal(err)
	}
	if got := subjects(i, box); got != "served" {
		t.Errorf("the inbox: %s", got)
	}
	i.Check()
	return true
}

// migrate kills a migration. The next start goes on with it, and the store has what it had.
func (w *killWorld) migrate(t *testing.T, name string, n int) bool {
	dir := t.TempDir()
	unzip(t, rig.FromRoot("store/testdata/before_formats.zip"), dir)
	before := digestsOf(t, dir)
	if !w.run(t, name, n, "check", "--data", dir) {
		return false
	}
	w.migrated(t, dir, before)
	return true
}

// migrated demands that a store has what it had, in today's format.
func (w *killWorld) migrated(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	if out, code := rig.Run(t, "check", "--data", dir); code != 0 {
		t.Errorf("check: %s", out)
	}
	after := digestsOf(t, dir)
	for bucket, digest := range before {
		if after[bucket] != digest {
			t.Errorf("after the migration %s has other contents", bucket)
		}
	}
}

func digestsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	digests, err := digest.Contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	return digests
}

// swap kills `rehearse --swap`. A second one succeeds, and keeps what there was before.
func (w *killWorld) swap(t *testing.T, name string, n int) bool {
	dir := t.TempDir()
	unzip(t, rig.FromRoot("store/testdata/before_formats.zip"), dir)
	before := digestsOf(t, dir)
	if !w.run(t, name, n, "rehearse", "--data", dir, "--swap", "--json") {
		return false
	}
	r := rehearse(t, dir, "--swap")
	w.migrated(t, dir, before)
	for bucket, digest := range digestsOf(t, r.Path) {
		if was := before[bucket]; was != "" && was != digest {
			t.Errorf("the store that was kept has other contents of %s", bucket)
		}
	}
	return true
}

// restore kills `restore`. A second one to the same directory restores everything.
func (w *killWorld) restore(t *testing.T, name string, n int) bool {
	w.prepare(t)
	whole, dir := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "killed")
	if out, code := rig.Run(t, "restore", "--data", whole, "--from", w.backups); code != 0 {
		t.Fatal(out)
	}
	if !w.run(t, name, n, "restore", "--data", dir, "--from", w.backups) {
		return false
	}
	over := rig.IsFile(filepath.Join(dir, store.DatabaseFile)) // it comes last: the restore was over
	if out, code := rig.Run(t, "restore", "--data", dir, "--from", w.backups); code != 0 && !over {
		t.Fatalf("the second restore: %s", out)
	}
	if !maps.Equal(digestsOf(t, dir), digestsOf(t, whole)) {
		t.Error("the second restore has made another store")
	}
	if out, code := rig.Run(t, "check", "--data", dir); code != 0 {
		t.Errorf("check: %s", out)
	}
	return true
}

// TestFaultsAreHeldByTests: each row of docs/faults.md and of docs/security.md names tests, and
// they exist.
func TestFaultsAreHeldByTests(t *testing.T) {
	have := map[string]bool{}
	err := filepath.WalkDir(rig.FromRoot("."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, header := range map[string]string{"docs/faults.md": "| fault", "docs/security.md": "| threat"} {
		text, err := os.ReadFile(rig.FromRoot(file))
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, header) {
				continue
			}
			rows++
			tests := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(line, -1)
			if len(tests) == 0 {
				t.Errorf("%s: no test holds %s", file, line)
			}
			for _, m := range tests {
				if !have[m[1]] {
					t.Errorf("%s: there is no %s", file, m[1])
				}
			}
		}
		if rows < 15 {
			t.Errorf("%s: %d rows", file, rows)
		}
	}
}

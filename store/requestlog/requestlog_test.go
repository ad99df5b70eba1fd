package requestlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// noon is when the rows of the tests begin.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// made returns rows with the numbers from first on, one a second.
func made(first, n int) (out []Row) {
	for i := first; i < first+n; i++ {
		out = append(out, Row{
			ID: fmt.Sprintf("req_%06d", i), At: noon.Add(time.Duration(i) * time.Second), Method: "POST", Path: "/v1/domains/connect", Operation: "connect_domains",
			Status: 200, Duration: int64(i), TokenID: "tok_1", TokenName: "deploy", IP: "192.0.2.7", Owner: i%2 == 0, Body: []byte(`{"domains":["a.test"]}`),
		})
	}
	return out
}

func add(t testing.TB, l *Log, account string, list []Row) {
	t.Helper()
	if err := l.Append(account, list[0].At, list); err != nil {
		t.Fatal(err)
	}
}

// ids returns the ids of an account's rows, newest first.
func ids(t testing.TB, l *Log, account string) (out []string) {
	t.Helper()
	err := l.Walk(account, "", func(_ string, row []byte) bool {
		if r, err := Decode(row); err == nil {
			out = append(out, r.ID)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lastFile returns the path of an account's newest file.
func lastFile(t testing.TB, dir, account string) string {
	t.Helper()
	names, err := fileNames(filepath.Join(dir, Dir, account))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	return filepath.Join(dir, Dir, account, names[len(names)-1])
}

// TestRowsAreReadNewestFirst writes rows in batches, with a restart between, and reads them in
// parts.
func TestRowsAreReadNewestFirst(t *testing.T) {
	dir := t.TempDir()
	all := made(0, 2500)
	for i := 0; i < len(all); i += 100 {
		add(t, Open(dir), "acc_1", all[i:i+100])
	}
	add(t, Open(dir), "acc_2", made(9000, 1))
	l := Open(dir)
	var got []Row
	for from, more := "", true; more; {
		n := 0
		more = false
		err := l.Walk("acc_1", from, func(position string, row []byte) bool {
			if n == 70 {
				more = true
				return false
			}
			n++
			from = position
			r, err := Decode(row)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, *r)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(got)
	if fmt.Sprint(got) != fmt.Sprint(all) {
		t.Errorf("%d rows, from %+v to %+v", len(got), got[0], got[len(got)-1])
	}
	if none := ids(t, l, "acc_3"); none != nil {
		t.Errorf("an account without requests has %v", none)
	}
}

// TestLogOfAnAccountIsBounded: the newest rows stay, in at most so many files and bytes.
func TestLogOfAnAccountIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir)
	const n = maxFiles*maxRows + 1500
	for i := 0; i < n; i += 500 {
		add(t, l, "acc_1", made(i, 500))
	}
	got := ids(t, l, "acc_1")
	if len(got) > maxFiles*maxRows || len(got) < (maxFiles-1)*maxRows || got[0] != fmt.Sprintf("req_%06d", n-1) {
		t.Errorf("%d rows, the newest %s", len(got), got[0])
	}
	large := made(n, 300)
	for i := range large {
		large[i].Body, large[i].Answer = bytes.Repeat([]byte("b"), 8<<10), bytes.Repeat([]byte("a"), 8<<10)
	}
	add(t, l, "acc_1", large)
	names, err := fileNames(filepath.Join(dir, Dir, "acc_1"))
	if err != nil || len(names) != maxFiles {
		t.Fatalf("%d files, %v", len(names), err)
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, Dir, "acc_1", name)); err != nil || info.Size() > maxBytes+maxRow+lenSize {
			t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
		}
	}
	if err := l.Append("acc_1", noon, []Row{{ID: "req_x", At: noon, Body: make([]byte, maxRow)}}); err == nil {
		t.Error("a row that is too large was written")
	}
	add(t, l, "acc_1", made(n+300, 1))
	if got := ids(t, l, "acc_1"); got[0] != fmt.Sprintf("req_%06d", n+300) || got[1] != fmt.Sprintf("req_%06d", n+299) {
		t.Errorf("after a refused row: %v", got[:2])
	}
}

// TestEndOfACrashIsCutOff: what a killed process or a full disk has left of a row does not get in
// the way of those that follow.
func TestEndOfACrashIsCutOff(t *testing.T) {
	for _, left := range []string{"", "\x00", "\x00\x00\x00\x00\x00\x00", "\x00\x00\x01\x00abc", "\xff\xff\xff\xff", strings.Repeat("\x00", 5000)} {
		dir := t.TempDir()
		add(t, Open(dir), "acc_1", made(0, 3))
		f, err := os.OpenFile(lastFile(t, dir, "acc_1"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(left); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		l := Open(dir)
		if got := ids(t, l, "acc_1"); len(got) != 3 {
			t.Errorf("%q: before the next row %v", left, got)
		}
		add(t, l, "acc_1", made(3, 2))
		if got := ids(t, l, "acc_1"); len(got) != 5 || got[0] != "req_000004" {
			t.Errorf("%q: %v", left, got)
		}
	}
}

// TestDamageStaysInItsRow: a flipped bit loses a row, or those behind it in the file if it is in a
// length, and new rows are written and read.
func TestDamageStaysInItsRow(t *testing.T) {
	dir := t.TempDir()
	add(t, Open(dir), "acc_1", made(0, 5))
	path := lastFile(t, dir, "acc_1")
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range sound {
		damaged := bytes.Clone(sound)
		damaged[at] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		l := Open(dir)
		if got := ids(t, l, "acc_1"); len(got) >= 5 || slices.ContainsFunc(got, func(id string) bool { return !strings.HasPrefix(id, "req_00000") }) {
			t.Fatalf("bit flipped in byte %d: %v", at, got)
		}
		add(t, l, "acc_1", made(5, 1))
		if got := ids(t, l, "acc_1"); got[0] != "req_000005" {
			t.Fatalf("bit flipped in byte %d: after another row %v", at, got)
		}
	}
}

// TestBrokenDirectoriesAreErrors: a file in the place of a directory, and one that has changed
// under the log, are errors of Append alone, until they are gone.
func TestBrokenDirectoriesAreErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Dir), []byte("no directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := Open(dir)
	if err := l.Append("acc_1", noon, made(0, 1)); err == nil {
		t.Error("rows were written below a file")
	}
	if _, err := l.Find("acc_1", "req_000000", noon); err == nil {
		t.Error("a row was looked for below a file")
	}
	if err := os.Remove(filepath.Join(dir, Dir)); err != nil {
		t.Fatal(err)
	}
	add(t, l, "acc_1", made(0, 2))
	if err := os.Truncate(lastFile(t, dir, "acc_1"), 10); err != nil {
		t.Fatal(err)
	}
	if err := l.Append("acc_1", noon, made(2, 1)); err == nil {
		t.Error("rows were written behind a hole")
	}
	add(t, l, "acc_1", made(3, 1))
	if got := ids(t, l, "acc_1"); len(got) != 1 || got[0] != "req_000003" {
		t.Errorf("%v", got)
	}
	for _, account := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a\x00"} {
		if err := l.Append(account, noon, made(0, 1)); err == nil {
			t.Errorf("%q is taken for an account", account)
		}
	}
}

// TestFindReadsFewFiles: a row is found by its id, also one of a request that took long; an id of
// another account is not.
func TestFindReadsFewFiles(t *testing.T) {
	l := Open(t.TempDir())
	for i := 0; i < 5000; i += 500 {
		list := made(i, 500)
		if i == 3000 {
			list[7].ID, list[7].At = "req_slow", noon.Add(time.Second)
		}
		if err := l.Append("acc_1", list[len(list)-1].At, list); err != nil {
			t.Fatal(err)
		}
	}
	for id, at := range map[string]time.Time{"req_000000": noon, "req_000999": noon.Add(999 * time.Second), "req_004999": noon.Add(4999 * time.Second), "req_slow": noon.Add(time.Second)} {
		if r, err := l.Find("acc_1", id, at); err != nil || r == nil || r.ID != id {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
		if r, err := l.Find("acc_2", id, at); r != nil || err != nil {
			t.Errorf("%s of another account: %+v, %v", id, r, err)
		}
	}
	if r, err := l.Find("acc_1", "req_0009", noon); r != nil || err != nil {
		t.Errorf("the start of an id: %+v, %v", r, err)
	}
}

// TestOldFilesArePruned: a file goes when all its rows are old, and a dropped account keeps
// nothing.
func TestOldFilesArePruned(t *testing.T) {
	dir := t.TempDir()
	l := Open(dir)
	for i := 0; i < 3000; i += 1000 {
		add(t, l, "acc_1", made(i, 1000))
	}
	add(t, l, "acc_2", made(0, 1))
	for _, c := range []struct{ seconds, left int }{{0, 3000}, {999, 3000}, {1001, 2000}, {2999, 1000}, {3000, 0}} {
		if err := l.Prune("acc_1", noon.Add(time.Duration(c.seconds)*time.Second)); err != nil {
			t.Fatal(err)
		}
		if got := ids(t, l, "acc_1"); len(got) != c.left {
			t.Errorf("after %d seconds %d rows are left, want %d", c.seconds, len(got), c.left)
		}
	}
	if list, err := l.Accounts(); err != nil || !slices.Equal(list, []string{"acc_2"}) {
		t.Errorf("%v, %v", list, err)
	}
	add(t, l, "acc_1", made(4000, 2))
	if err := l.Drop("acc_1"); err != nil {
		t.Fatal(err)
	}
	add(t, l, "acc_1", made(5000, 1))
	if got := ids(t, l, "acc_1"); len(got) != 1 || len(ids(t, l, "acc_2")) != 1 {
		t.Errorf("%v", got)
	}
}

// FuzzFile reads any file, and writes behind what is sound of it.
func FuzzFile(f *testing.F) {
	dir := f.TempDir()
	add(f, Open(dir), "acc_1", made(0, 3))
	sound, err := os.ReadFile(lastFile(f, dir, "acc_1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sound)
	f.Add(sound[:len(sound)-3])
	f.Add([]byte{0, 0, 0, 1, 2})
	f.Fuzz(func(t *testing.T, content []byte) {
		path := lastFile(t, dir, "acc_1")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l := Open(dir)
		before := ids(t, l, "acc_1")
		add(t, l, "acc_1", made(7, 1))
		after := ids(t, l, "acc_1")
		if len(after) != len(before)+1 || after[0] != "req_000007" || !slices.Equal(after[1:], before) {
			t.Errorf("%v, and with another row %v", before, after)
		}
		if err := l.Drop("acc_1"); err != nil {
			t.Fatal(err)
		}
		add(t, l, "acc_1", made(0, 1))
	})
}

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// tooLarge has transactions that exceed each of the limits.
var tooLarge = []struct {
	name string
	fn   func(*Tx) error
}{
	{"bytes", func(tx *Tx) error { return putText(tx, "s", 2000) }},
	{"writes", func(tx *Tx) error {
		for range 11 {
			if err := putAccount(tx, 9); err != nil {
				return err
			}
		}
		return nil
	}},
	{"steps", func(tx *Tx) error {
		for range 20 {
			for range Accounts.All(tx) {
				continue
			}
		}
		return nil
	}},
}

func TestLargeTransactionFailsAndNamesItsNumbersAndItsCaller(t *testing.T) {
	db := openTest(t, Options{MaxBytes: 1000, MaxWrites: 10, MaxSteps: 15})
	for n := range uint32(3) {
		update(t, db, func(tx *Tx) error { return putAccount(tx, n+1) })
	}
	for _, c := range tooLarge {
		err := db.Update(c.fn)
		if !errors.Is(err, ErrTooMuch) || !strings.Contains(err.Error(), "TestLargeTransactionFails") || !strings.Contains(err.Error(), "writes of 10") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if got := len(accountNums(t, db)); got != 3 {
		t.Errorf("%d accounts, want the 3 of before", got)
	}
}

func TestLargeTransactionIsToldOfOnceInProduction(t *testing.T) {
	var log bytes.Buffer
	db := openDir(t, t.TempDir(), Options{MaxWrites: 10, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		update(t, db, tooLarge[1].fn)
	}
	if n := strings.Count(log.String(), "a large transaction"); n != 1 || !strings.Contains(strings.ReplaceAll(log.String(), `"`, ""), "function=store/engine.") {
		t.Errorf("told %d times: %s", n, &log)
	}
}

// TestEveryFunctionRunsTwiceInTests: the writes of the first run, and what it passed to After, are
// undone.
func TestEveryFunctionRunsTwiceInTests(t *testing.T) {
	db := openTest(t, Options{})
	runs, after := 0, 0
	update(t, db, func(tx *Tx) error {
		runs++
		tx.After(func() { after++ })
		for range Accounts.All(tx) {
			t.Error("the first run was not undone")
		}
		return putAccount(tx, 1)
	})
	if runs != 2 || after != 1 {
		t.Errorf("%d runs, %d of them told, want 2 and 1", runs, after)
	}
}

func TestBatchEndsWhenEnoughIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, Options{})
		sizes := map[int]int{} // number of transactions by commit
		var fns []func(*Tx) error
		for i := range 12 {
			fns = append(fns, func(tx *Tx) error {
				commit := tx.b.ID()
				tx.After(func() { sizes[commit]++ })
				return putText(tx, fmt.Sprint(i), 1<<20)
			})
		}
		for i, err := range batch(t, db, fns...) {
			if err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		}
		if len(sizes) < 3 {
			t.Errorf("12 MiB and more were written in %d commits: %v", len(sizes), sizes)
		}
	})
}

func TestReportHasTheLargestTransactions(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(ReportEnv, dir)
	db := openTest(t, Options{})
	for _, n := range []int{20_000, 40_000, 30_000} {
		update(t, db, func(tx *Tx) error { return putText(tx, "s", n) })
	}
	closeTest(t, db)
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if n := strings.Count(string(text), "bytes\t"); err != nil || n != 2 || !strings.Contains(string(text), "TestReportHasTheLargest") {
		t.Errorf("%v: %d lines, want 2: %s", err, n, text)
	}
}

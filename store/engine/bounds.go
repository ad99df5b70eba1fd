package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"
)

// What one transaction may be at most. Everybody else's writes wait for it.
const (
	maxTxBytes  = 4 << 20 // of keys and values written
	maxTxWrites = 5_000
	maxTxSteps  = 20_000 // of cursors
)

// batchBytes ends a batch: what is written beyond it goes into the next commit.
const batchBytes = 4 << 20

// strictEnv makes a program that a test starts as strict as the test is; "0" makes even a test
// lenient.
const strictEnv = "MAILSTEAD_STRICT"

// ReportEnv names a directory: each process adds its largest and its longest transactions to a file
// there.
const ReportEnv = "MAILSTEAD_TX_REPORT"

// Strict tells whether transactions are checked: in every test, and in programs that tests start.
// Benchmarks measure what runs in production.
func Strict() bool {
	switch os.Getenv(strictEnv) {
	case "1":
		return true
	case "0":
		return false
	}
	if flag.Lookup("test.v") == nil { // as testing.Testing says, whose package is large
		return false
	}
	bench := flag.Lookup("test.bench")
	return bench == nil || bench.Value.String() == ""
}

// exempt are functions that may be over the bounds for now, each with who will mend it. A name fits
// as part of any function that a transaction came from.
var exempt = []string{}

// A txCost is what a transaction has cost.
type txCost struct {
	bytes, writes, steps int
	took                 time.Duration
}

func (c *txCost) add(more txCost) {
	c.bytes += more.bytes
	c.writes += more.writes
	c.steps += more.steps
	c.took += more.took
}

// bounds are what the transactions of a store are held to.
type bounds struct {
	most   txCost
	fail   bool            // else the log is told
	warned map[string]bool // functions that the log was told of; the committer's
}

func (b *bounds) over(c txCost) bool {
	return c.bytes > b.most.bytes || c.writes > b.most.writes || c.steps > b.most.steps
}

// checkBounds checks a transaction that has run. Where large ones fail it returns ErrTooMuch, with
// the numbers and the caller.
func (db *DB) checkBounds(w *write, c txCost) error {
	if !db.bounds.over(c) {
		return nil
	}
	from := w.caller()
	if db.bounds.fail {
		for _, name := range exempt {
			if strings.Contains(from, name) {
				return nil
			}
		}
		return fmt.Errorf("%w: %d bytes of at most %d, %d writes of %d, %d cursor steps of %d, in %s", ErrTooMuch,
			c.bytes, db.bounds.most.bytes, c.writes, db.bounds.most.writes, c.steps, db.bounds.most.steps, from)
	}
	if !db.bounds.warned[from] {
		db.bounds.warned[from] = true
		db.log.Warn("a large transaction made others wait", "bytes", c.bytes, "writes", c.writes, "steps", c.steps,
			"took", c.took, "function", from)
	}
	return nil
}

// Large tells whether the transaction has done a third of what it may at most, so that one that
// does many things ends and leaves the rest to another.
func (tx *Tx) Large() bool {
	most := tx.db.bounds.most
	return 3*tx.bytes > most.bytes || 3*tx.writes > most.writes || 3*tx.steps > most.steps
}

// Over tells whether the transaction has done more than it may, so that one that does many things
// or none refuses.
func (tx *Tx) Over() bool {
	return tx.db.bounds.over(txCost{bytes: tx.bytes, writes: tx.writes, steps: tx.steps})
}

// callers gives the functions that have called Update, or what calls UpdateFor, the innermost
// first.
func callers() []uintptr {
	pcs := make([]uintptr, 24)
	return pcs[:runtime.Callers(4, pcs)]
}

// caller names the transaction's function and, where they are known, the next four that asked for
// it.
func (w *write) caller() string {
	const module = "github.com/mailstead/mailstead/"
	name := func(s string) string { return strings.TrimPrefix(s, module) }
	out := []string{name(runtime.FuncForPC(reflect.ValueOf(w.of).Pointer()).Name())}
	if len(w.from) == 0 {
		return out[0]
	}
	for frames := runtime.CallersFrames(w.from); len(out) < 5; {
		f, more := frames.Next()
		if f.Function != "" {
			out = append(out, name(f.Function))
		}
		if !more {
			break
		}
	}
	return strings.Join(out, " < ")
}

// A txReport writes down each transaction that is larger or longer than all before it.
type txReport struct {
	path string // "": nothing is written
	most map[string]int64
}

// reportFrom is from where on a transaction is worth writing down; times are in microseconds.
var reportFrom = map[string]int64{"bytes": 16 << 10, "writes": 100, "steps": 500, "function_us": 2_000, "batch_us": 2_000, "commit_us": 2_000}

func newTxReport() txReport {
	dir := os.Getenv(ReportEnv)
	if dir == "" {
		return txReport{}
	}
	return txReport{filepath.Join(dir, fmt.Sprintf("%d.tsv", os.Getpid())), map[string]int64{}}
}

// function notes one transaction.
func (r *txReport) function(w *write, c txCost) {
	if r.path == "" {
		return
	}
	r.note("bytes", int64(c.bytes), w.caller)
	r.note("writes", int64(c.writes), w.caller)
	r.note("steps", int64(c.steps), w.caller)
	r.note("function_us", c.took.Microseconds(), w.caller)
}

// note adds a line: what, how much, program, functions.
func (r *txReport) note(what string, n int64, from func() string) {
	if r.path == "" || n <= max(r.most[what], reportFrom[what]) {
		return
	}
	r.most[what] = n
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // a report must not disturb what it reports on
	}
	defer f.Close()
	fmt.Fprintf(f, "%s\t%d\t%s\t%s\n", what, n, filepath.Base(os.Args[0]), from())
}

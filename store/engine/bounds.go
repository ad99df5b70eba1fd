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

// The default limits of one transaction. While a transaction runs, all other writers wait.
const (
	maxTxBytes  = 4 << 20 // total length of the keys and values written
	maxTxWrites = 5_000
	maxTxSteps  = 20_000 // cursor steps
)

// batchBytes is how many bytes of keys and values one commit carries: once a batch has written that
// many, its other transactions go into the next commit.
const batchBytes = 4 << 20

// strictEnv is an environment variable. If it is "1", transactions over the limits fail in a
// program that a test starts, as they do in the test. If it is "0", they do not even fail in the
// test.
const strictEnv = "MAILSTEAD_STRICT"

// ReportEnv is an environment variable with the path of a directory. Each process appends its
// largest and its slowest transactions to a file there.
const ReportEnv = "MAILSTEAD_TX_REPORT"

// AreLimitsStrict reports whether transactions over the limits fail. They do in every test, and in
// programs that tests start, but not in benchmarks, which measure what runs in production.
func AreLimitsStrict() bool {
	switch os.Getenv(strictEnv) {
	case "1":
		return true
	case "0":
		return false
	}
	if flag.Lookup("test.v") == nil { // like testing.Testing, without importing that large package
		return false
	}
	bench := flag.Lookup("test.bench")
	return bench == nil || bench.Value.String() == ""
}

// exemptFunctions lists functions that may exceed the limits for now. Each has a comment that says
// how this will be mended. A transaction is exempt if the name of a function in its call chain
// contains one of these names.
var exemptFunctions = []string{}

// A txCost counts what a transaction has written and read, and how long it ran.
type txCost struct {
	bytes, writes, steps int
	took                 time.Duration // duration of the function
}

func (c *txCost) add(more txCost) {
	c.bytes += more.bytes
	c.writes += more.writes
	c.steps += more.steps
	c.took += more.took
}

// bounds are the limits on the transactions of a store.
type bounds struct {
	limits txCost
	fail   bool            // a transaction over the limits fails; otherwise it is only logged
	warned map[string]bool // functions already logged; used by the committer only
}

func (b *bounds) exceededBy(c txCost) bool {
	return c.bytes > b.limits.bytes || c.writes > b.limits.writes || c.steps > b.limits.steps
}

// checkBounds checks the cost of a transaction that has run. If the cost is over the limits and
// bounds.fail is set, it returns ErrTooMuch with the numbers and the caller. If bounds.fail is not
// set, it only logs the function, once for each function.
func (db *DB) checkBounds(w *queuedWrite, c txCost) error {
	if !db.bounds.exceededBy(c) {
		return nil
	}
	from := w.callChain()
	if db.bounds.fail {
		for _, name := range exemptFunctions {
			if strings.Contains(from, name) {
				return nil
			}
		}
		return fmt.Errorf("%w: %d bytes of at most %d, %d writes of %d, %d cursor steps of %d, in %s", ErrTooMuch,
			c.bytes, db.bounds.limits.bytes, c.writes, db.bounds.limits.writes, c.steps, db.bounds.limits.steps, from)
	}
	if !db.bounds.warned[from] {
		db.bounds.warned[from] = true
		db.log.Warn("a large transaction made others wait", "bytes", c.bytes, "writes", c.writes, "steps", c.steps,
			"took", c.took, "function", from)
	}
	return nil
}

// IsLarge reports whether the transaction has used more than a third of any limit. A function that
// handles many items stops then and leaves the rest to another transaction.
func (tx *Tx) IsLarge() bool {
	most := tx.db.bounds.limits
	return 3*tx.bytes > most.bytes || 3*tx.writes > most.writes || 3*tx.steps > most.steps
}

// IsOverLimits reports whether the transaction exceeds any limit. A function that must do all of
// its work or none calls IsOverLimits, and then refuses the work itself.
func (tx *Tx) IsOverLimits() bool {
	return tx.db.bounds.exceededBy(txCost{bytes: tx.bytes, writes: tx.writes, steps: tx.steps})
}

// callStack returns the call stack above Update or UpdateFor, the innermost function first.
func callStack() []uintptr {
	pcs := make([]uintptr, 24)
	return pcs[:runtime.Callers(4, pcs)]
}

// callChain names the transaction's function and, if they were recorded, up to four of its callers,
// the innermost first.
func (w *queuedWrite) callChain() string {
	const module = "github.com/mailstead/mailstead/"
	name := func(s string) string { return strings.TrimPrefix(s, module) }
	out := []string{name(runtime.FuncForPC(reflect.ValueOf(w.logAs).Pointer()).Name())}
	if len(w.callers) == 0 {
		return out[0]
	}
	for frames := runtime.CallersFrames(w.callers); len(out) < 5; {
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

// A txReport appends a line to a file for each transaction that is larger or slower than all
// earlier ones.
type txReport struct {
	path    string           // "": no report is written
	largest map[string]int64 // the largest value of each measure so far
}

// reportThresholds has, for each measure, the value above which it is reported. Times are in
// microseconds.
var reportThresholds = map[string]int64{"bytes": 16 << 10, "writes": 100, "steps": 500, "function_us": 2_000, "batch_us": 2_000, "commit_us": 2_000}

func newTxReport() txReport {
	dir := os.Getenv(ReportEnv)
	if dir == "" {
		return txReport{}
	}
	return txReport{filepath.Join(dir, fmt.Sprintf("%d.tsv", os.Getpid())), map[string]int64{}}
}

// recordCost reports the cost of one transaction.
func (r *txReport) recordCost(w *queuedWrite, c txCost) {
	if r.path == "" {
		return
	}
	r.record("bytes", int64(c.bytes), w.callChain)
	r.record("writes", int64(c.writes), w.callChain)
	r.record("steps", int64(c.steps), w.callChain)
	r.record("function_us", c.took.Microseconds(), w.callChain)
}

// record appends a line with the measure, its value, the program and the call chain, if the value
// is the largest so far and above reportThresholds.
func (r *txReport) record(measure string, value int64, callChain func() string) {
	if r.path == "" || value <= max(r.largest[measure], reportThresholds[measure]) {
		return
	}
	r.largest[measure] = value
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // a failing report must not disturb the server
	}
	defer f.Close()
	fmt.Fprintf(f, "%s\t%d\t%s\t%s\n", measure, value, filepath.Base(os.Args[0]), callChain())
}

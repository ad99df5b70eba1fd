package mailindex

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// TestNothingIsNotedForNobody: while OnCommit has no function, a write to an INBOX costs one look
// at a pointer.
func TestNothingIsNotedForNobody(t *testing.T) {
	db, err := engine.Open(filepath.Join(t.TempDir(), "test.db"), engine.Options{Log: slog.Default(), Now: time.Now, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	e, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Bolt(e).Rollback() }()
	tx := &Tx{Tx: e} // without an index, which recording a change would need
	if n := testing.AllocsPerRun(100, func() { tx.recordInboxChange(1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

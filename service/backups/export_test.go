package backups

import (
	"testing"

	"github.com/mailstead/mailstead/store"
)

// Sample returns the messages of a store that a drill reads.
func Sample(t *testing.T, st *store.Store) []store.Message {
	t.Helper()
	held, err := st.Holdings()
	if err != nil {
		t.Fatal(err)
	}
	list, err := sampleMessages(st, held.Messages)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

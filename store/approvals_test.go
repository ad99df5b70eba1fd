package store

import (
	"errors"
	"fmt"
	"testing"
)

// TestApprovalKeepsItsMessage: the bytes that somebody is to approve stay when its submission ends,
// and are found when compaction has moved them.
func TestApprovalKeepsItsMessage(t *testing.T) {
	s := compactStore(t, Options{})
	all := fill(t, s, 40)
	approval := func(id string) (a *Approval) {
		t.Helper()
		view(t, s, func(tx *Tx) (err error) { a, err = Approvals.Get(tx, id); return err })
		return a
	}
	update(t, s, func(tx *Tx) error {
		for n := 0; n < len(all); n += 4 {
			id := fmt.Sprint("apr_", n)
			if err := errors.Join(ApprovalBlobs.Ref(tx, all[n].Blob, id), Approvals.Put(tx, &Approval{ID: id, AccountID: "acc_1", Blob: all[n].Blob})); err != nil {
				return err
			}
		}
		return nil
	})
	deleteTest(t, s, all...)
	compact(t, s)
	if approval("apr_4").Blob == all[4].Blob {
		t.Error("it was not moved")
	}
	for n := 0; n < len(all); n += 4 {
		a := approval(fmt.Sprint("apr_", n))
		if got := readTest(t, s, a.Blob); got[:4] != fmt.Sprintf("%04d", n) {
			t.Errorf("approval %d has %.4q", n, got)
		}
		update(t, s, func(tx *Tx) error {
			return errors.Join(ApprovalBlobs.Unref(tx, a.Blob, a.ID), Approvals.Delete(tx, a.ID))
		})
	}
	compact(t, s)
	if n := len(s.seg.List()); n > 1 {
		t.Errorf("%d segments are left", n)
	}
}

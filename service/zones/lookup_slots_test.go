package zones_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// TestLookupSlotsOfAnAccount: lookups of one account that do not end hold up its own alone, and an
// import says so.
func TestLookupSlotsOfAnAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newZoneWorld(t, store.Options{})
		held, end := context.WithCancel(t.Context())
		for range 100 {
			go func() {
				_ = w.Zones.WithLookupSlot(held, w.who.AccountID, "", func() error {
					<-held.Done()
					return nil
				})
			}()
		}
		synctest.Wait()
		ran := false
		err := w.Zones.WithLookupSlot(t.Context(), "acc_other", "", func() error {
			ran = true
			return nil
		})
		if !ran || err != nil {
			t.Errorf("another account waits: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Zones.WithLookupSlot(short, w.who.AccountID, "", func() error { return nil }); err == nil {
			t.Error("one account has all slots")
		}
		if _, code := w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN TXT \"v=spf1 -all\"\n"}); code != "rate_limited" {
			t.Errorf("an import without a slot: %q", code)
		}
		end()
		synctest.Wait()
		if _, code := w.take(zones.ImportZoneIn{ZoneFile: "@ 300 IN TXT \"v=spf1 -all\"\n"}); code != "" {
			t.Errorf("an import with a slot: %q", code)
		}
	})
}

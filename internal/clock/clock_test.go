package clock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAdvanceWakesWhoIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := New(nil, -26*time.Hour)
		if got := c.Now(); !got.Equal(start.Add(-26 * time.Hour)) {
			t.Errorf("the clock shows %s", got)
		}
		soon, stop := c.At(c.Now().Add(time.Hour))
		defer stop()
		late, stopLate := c.At(c.Now().Add(48 * time.Hour))
		defer stopLate()
		past, stopPast := c.At(c.Now())
		defer stopPast()
		<-past
		c.Advance(24 * time.Hour)
		synctest.Wait()
		if !closed(soon) || closed(late) {
			t.Errorf("after a day: soon %v, late %v", closed(soon), closed(late))
		}
		time.Sleep(24*time.Hour - time.Millisecond)
		synctest.Wait()
		if closed(late) {
			t.Error("it was woken too early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !closed(late) {
			t.Error("it was not woken at its date")
		}
	})
}

func TestEveryTicksOnceForWhatWasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil, 0)
		tick, stop := c.Every(time.Hour)
		defer stop()
		c.Advance(100 * time.Hour)
		synctest.Wait()
		<-tick
		synctest.Wait()
		if len(tick) != 0 {
			t.Error("the hours that were passed tick one by one")
		}
		time.Sleep(time.Hour)
		<-tick
	})
}

// TestSetClockIsSeen: a waiter notices that the machine's clock was set, though no timer fires.
func TestSetClockIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Int64
		c := New(func() time.Time { return time.Now().Round(0).Add(time.Duration(set.Load())) }, 0)
		due, stop := c.At(c.Now().Add(365 * 24 * time.Hour))
		defer stop()
		set.Store(int64(366 * 24 * time.Hour))
		time.Sleep(maxSleep)
		synctest.Wait()
		if !closed(due) {
			t.Error("the date has come, and nobody was woken")
		}
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

package service

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store/storetest"
)

func TestListenersAreBounded(t *testing.T) {
	fs := newFeeds(storetest.Open(t))
	var open []*Feed
	fill := func(account string, user func(n int) string) (n int) {
		for {
			f, err := fs.Join(core.Actor{AccountID: account, UserID: user(n)})
			if err != nil {
				if e, ours := core.AsError(err); !ours || e.Code != "rate_limited" || e.RetryAfter <= 0 {
					t.Fatalf("one too many: %v", err)
				}
				return n
			}
			open = append(open, f)
			n++
		}
	}
	if n := fill("acc_1", func(int) string { return "usr_1" }); n != feedsOfUser {
		t.Errorf("one person has %d feeds, want %d", n, feedsOfUser)
	}
	if n := fill("acc_1", func(n int) string { return fmt.Sprint("usr_a", n) }); n != feedsOfAccount-feedsOfUser {
		t.Errorf("the others of the account have %d feeds, want %d", n, feedsOfAccount-feedsOfUser)
	}
	for account := 2; fs.count < feedsInAll; account++ {
		fill(fmt.Sprint("acc_", account), func(n int) string { return fmt.Sprint("usr_", account, "_", n) })
	}
	for _, f := range open {
		f.Close()
		f.Close() // a second Close does nothing
	}
	if fs.count != 0 || len(fs.byAccount) != 0 || len(fs.ofUser) != 0 {
		t.Errorf("after the last has left: %d feeds, %d accounts, %d users", fs.count, len(fs.byAccount), len(fs.ofUser))
	}
}

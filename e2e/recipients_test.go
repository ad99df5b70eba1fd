package e2e

import (
	"fmt"
	"net/smtp"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestManyRecipients sends messages to all mailboxes at once, six at a time, beside somebody else's
// mail, and kills the program while it files them. It runs with 1000 mailboxes by `make
// soak-recipients`.
func TestManyRecipients(t *testing.T) {
	mailboxes, kills := 120, 2
	full := os.Getenv("MAILSTEAD_SOAK") != ""
	if full {
		mailboxes, kills = 1000, 6
	}
	if testing.Short() {
		t.Skip("takes a while")
	}
	world := newResolver(t)
	i := newInstance(t, generousLimits, "--resolver", world.addr)
	world.delegate(i.ready.DNS)
	i.addDomain("other.test")
	i.addMailbox("ann@other.test", "correct horse")
	addresses := i.addMany(mailboxes)
	header := manyHeader(1000)
	t.Logf("each of six messages has %d bytes", len(header))

	stop, longest, others := make(chan struct{}), atomic.Int64{}, sync.WaitGroup{}
	count := atomic.Int64{}
	others.Go(func() { // somebody else's mail
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			took, err := send(i.ready.SMTP, "beside", "ann@other.test")
			if err != nil {
				t.Error(err)
				return
			}
			longest.Store(max(longest.Load(), int64(took)))
			count.Add(1)
		}
	})
	time.Sleep(5 * time.Second) // what they wait on this machine anyway
	alone, aloneCount := time.Duration(longest.Swap(0)), count.Swap(0)
	memory := 0
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				memory = max(memory, i.memory("RssAnon"))
			}
		}
	})
	want := map[string]bool{}
	began := time.Now()
	var senders sync.WaitGroup
	for n := range 6 {
		subject := fmt.Sprint("to many ", n)
		want[subject] = true
		senders.Go(func() {
			if _, err := send(i.ready.SMTP, subject+"\r\n"+header, addresses...); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	taken := time.Since(began)
	i.until("all is filed", func() bool { return i.hasAll("subject=to+many", len(want)*mailboxes) })
	filed := time.Since(began)
	close(stop)
	others.Wait()
	t.Logf("before, %d messages of others, of which the longest took %v", aloneCount, alone)
	t.Logf("six messages to %d mailboxes: taken after %v, filed after %v; beside them %d messages, of which the longest took %v; %d MiB of Go memory at most",
		mailboxes, taken, filed, count.Load(), time.Duration(longest.Load()), memory)
	if bound := 100 * time.Millisecond; full && time.Duration(longest.Load()) > bound {
		t.Errorf("others' mail waited %v, want at most %v", time.Duration(longest.Load()), bound)
	}
	if memory > 200 {
		t.Errorf("%d MiB of Go memory, want at most 200", memory)
	}

	for n := range kills {
		subject := fmt.Sprint("to many and killed ", n)
		if _, err := send(i.ready.SMTP, subject+"\r\n"+header, addresses...); err != nil {
			t.Fatal(err)
		}
		want[subject] = true
		time.Sleep(time.Duration(n) * 7 * time.Millisecond)
		i.kill()
		i.start()
		world.delegate(i.ready.DNS)
	}
	i.until("all is filed", func() bool { return i.hasAll("subject=to+many", len(want)*mailboxes) })
	i.eachOnce(want, addresses)
	i.check()
}

// manyHeader is the rest of a message with n addresses in To.
func manyHeader(n int) string {
	var to []string
	for k := range n {
		to = append(to, fmt.Sprintf("Somebody Number %04d <somebody%04d@many.test>", k, k))
	}
	return "To: " + strings.Join(to, ",\r\n ") + "\r\n"
}

// send hands a message over, and gives how long the answer to its end took. The subject may be
// followed by other fields.
func send(addr, subject string, to ...string) (time.Duration, error) {
	c, err := smtp.Dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Mail("bob@elsewhere.test"); err != nil {
		return 0, err
	}
	for _, address := range to {
		if err := c.Rcpt(address); err != nil {
			return 0, err
		}
	}
	w, err := c.Data()
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(w, "From: bob@elsewhere.test\r\nSubject: %s\r\n\r\nhello\r\n", strings.TrimSuffix(subject, "\r\n"))
	began := time.Now()
	err = w.Close()
	return time.Since(began), err
}

// addMany makes n mailboxes, a hundred in each domain.
func (i *instance) addMany(n int) (addresses []string) {
	i.t.Helper()
	for from := 0; from < n; from += 100 {
		domain := fmt.Sprintf("many%d.test", from/100)
		i.addDomain(domain)
		var users []map[string]string
		for k := from; k < min(n, from+100); k++ {
			users = append(users, map[string]string{"username": fmt.Sprintf("box%04d", k), "password": "correct horse"})
			addresses = append(addresses, fmt.Sprintf("box%04d@%s", k, domain))
		}
		var made struct {
			Created int
			Errors  []struct{ Code, Message string }
		}
		i.want(200, "POST", "/v1/email-users/bulk", map[string]any{"domain": domain, "users": users}, &made)
		if made.Created != len(users) {
			i.t.Fatalf("%d mailboxes were made: %v", made.Created, made.Errors[0])
		}
	}
	return addresses
}

// pages calls fn for each row of a list.
func (i *instance) pages(path string, fn func(mailbox, subject string)) (rows int) {
	i.t.Helper()
	type data struct{ Mailbox, Subject string }
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				data
				Event data `json:"data"`
			}
			Pagination struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		i.want(200, "GET", path+cursor, nil, &page)
		for _, r := range page.Data {
			rows++
			if r.Mailbox == "" {
				r.data = r.Event
			}
			fn(r.Mailbox, r.Subject)
		}
		if !page.Pagination.HasMore {
			return rows
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// hasAll tells whether a list of the account's inbox has n rows.
func (i *instance) hasAll(filter string, n int) bool {
	return i.pages("/v1/inbox?limit=100&"+filter, func(string, string) {}) >= n
}

// eachOnce fails unless each mailbox has one copy of each subject, and one event tells of it.
func (i *instance) eachOnce(subjects map[string]bool, addresses []string) {
	i.t.Helper()
	for what, path := range map[string]string{"copies": "/v1/inbox?limit=100", "events": "/v1/events?limit=100&type=email.received"} {
		seen := map[[2]string]int{}
		i.pages(path, func(mailbox, subject string) { seen[[2]string{mailbox, subject}]++ })
		wrong := 0
		for subject := range subjects {
			for _, address := range addresses {
				if n := seen[[2]string{address, subject}]; n != 1 {
					if wrong++; wrong < 5 {
						i.t.Errorf("%s: %d %s of %q", address, n, what, subject)
					}
				}
			}
		}
	}
}

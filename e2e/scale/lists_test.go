package scale

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// scaleGoal is what 99 of 100 pages of a list are to take at most, whatever the size of the store.
const scaleGoal = 10 * time.Millisecond

// A scaleList is a list of the API with its filters.
type scaleList struct {
	Name string
	path string
}

// lists gives every list of the API, with each of its filters, and such as leave nothing.
func (s *scale) lists(i *rig.Instance) []scaleList {
	i.T.Helper()
	var domain struct {
		Data []struct {
			ID   string `json:"domain_id"`
			Name string
		}
	}
	i.Want(200, "GET", "/v1/domains?q="+scaleDomain(1), nil, &domain)
	var thread struct {
		Data []struct {
			ThreadID string `json:"thread_id"`
		}
	}
	number := scaleMark(firstCopy + s.Messages/2)
	i.Want(200, "GET", "/v1/inbox?q="+number, nil, &thread)
	if len(domain.Data) == 0 || len(thread.Data) != 1 {
		i.T.Fatalf("%d domains, %d messages", len(domain.Data), len(thread.Data))
	}
	var event struct{ Data []struct{ ID string } }
	i.Want(200, "GET", "/v1/events?type=email.received", nil, &event)
	day := func(ago time.Duration) string { return s.FilledAt.Add(-ago).Format(time.DateOnly) }
	middle := "date_from=" + day(scaleSpan/2+24*time.Hour) + "&date_to=" + day(scaleSpan/2)

	var all []scaleList
	add := func(path string, queries ...string) {
		for _, q := range queries {
			name := strings.TrimSuffix(path+"?"+q, "?")
			name = strings.NewReplacer(s.Heaviest, "HEAVIEST", s.Light, "LIGHT", domain.Data[0].ID, "DOMAIN", s.Webhook, "WEBHOOK", thread.Data[0].ThreadID, "THREAD", number, "RARE", "/v1", "").Replace(name)
			all = append(all, scaleList{name, strings.TrimSuffix(path+"?"+q, "?")})
		}
	}
	far := func(path, query string) {
		var page struct{ Pagination struct{ Cursor *string } }
		i.Want(200, "GET", path+"?"+query, nil, &page)
		if page.Pagination.Cursor != nil {
			all = append(all, scaleList{strings.TrimPrefix(path, "/v1") + "?" + query + "&cursor=", path + "?" + query + "&cursor=" + url.QueryEscape(*page.Pagination.Cursor)})
		}
	}
	marks := []string{"", "is_read=false", "is_read=true", "is_flagged=true", "has_attachments=true", "exclude_warmup=true", "is_read=false&is_flagged=true&has_attachments=true", middle}
	add("/v1/inbox", marks...)
	add("/v1/inbox", "domain="+domain.Data[0].ID, "domain="+domain.Data[0].ID+"&is_flagged=true&has_attachments=true", "mailbox="+s.address(s.Mailboxes-1), "thread_id="+thread.Data[0].ThreadID)
	far("/v1/inbox", "date_to="+day(scaleSpan-48*time.Hour))
	far("/v1/inbox", "is_read=false&date_to="+day(scaleSpan-48*time.Hour))
	words := []string{"q=" + number, "q=market", "q=market+weekly+winter", "q=mark", "q=%22sender+number7%22", "q=nowhere", "from=s5@elsewhere.test", "from=nobody", "q=market&is_flagged=true", "q=market&" + middle,
		"q=is:unread", "q=market+is:unread+larger:100", "q=-market", "q=from:s5+subject:market", "q=-from:nobody", "q=in:all+has:attachment+before:" + day(scaleSpan/2)}
	add("/v1/inbox", words...)
	add("/v1/inbox", "q=market&domain="+domain.Data[0].ID, "q=nowhere&domain="+domain.Data[0].ID)
	far("/v1/inbox", "q=market&date_to="+day(scaleSpan-48*time.Hour))
	for _, box := range []string{s.Heaviest, s.Light} {
		add("/v1/email-users/"+box+"/inbox", marks...)
		add("/v1/email-users/"+box+"/inbox", words...)
	}
	add("/v1/messages", "", "status=bounced", "status=delivered", "status=complained", "mailbox="+s.address(s.Mailboxes-1), "domain="+domain.Data[0].Name,
		"recipient=r1@far1.test", "recipient=nobody@far.test", "date_to="+day(scaleSpan/2), middle, "status=bounced&"+middle,
		"sort=queued_at", "sort=queued_at&"+middle, "sort=queued_at&status=bounced", "status=queued", "status=held")
	add("/v1/messages/lookup", "original_message_id="+url.QueryEscape("<"+number+"@"+scaleDomain(0)+">"), "provider_message_id=x")
	add("/v1/events", "", "type=email.bounced", "type=domain.created", "created_after="+day(scaleSpan/2)+"T00:00:00Z", "event_id="+event.Data[0].ID)
	add("/v1/webhooks/"+s.Webhook+"/deliveries", "", "outcome=failed", "outcome=success", "event_type=email.bounced", "event_type=domain.created", "event_id="+event.Data[0].ID)
	add("/v1/domains", "", "status=complete", "status=error", "tag=tag3", "tag=none", "q=d0001", "q=nowhere", "dns_provider=builtin", "dns_provider=manual",
		"problems=true", "sort=-problems", "sort=domain", "sort=-domain", "sort=created_at")
	add("/v1/email-users", "", "domain="+scaleDomain(1), "status=active", "status=suspended", "q=m00001", "q=nowhere", "sort=email", "sort=-email", "sort=created_at", "sort=email&domain="+scaleDomain(1))
	add("/v1/domains/"+domain.Data[0].ID+"/email-users", "", "status=suspended", "q=nowhere")
	add("/v1/suppressions", "", "reason=manual", "reason=complaint")
	add("/v1/jobs", "", "status=error", "status=completed", "type=domain_setup", "type=none", "domain="+scaleDomain(1), "created_after="+day(scaleSpan/2)+"T00:00:00Z")
	for _, path := range []string{"/v1/webhooks", "/v1/auth/tokens", "/v1/account", "/v1/account/users", "/v1/account/usage", "/v1/email-user-templates", "/v1/export/formats", "/v1/health",
		"/v1/domains/" + domain.Data[0].ID, "/v1/domains/" + domain.Data[0].ID + "/dmarc-reports", "/v1/domains/" + domain.Data[0].ID + "/tls-reports", "/v1/domains/" + domain.Data[0].ID + "/custom-dns-records",
		"/v1/domains/" + domain.Data[0].ID + "/dns-status", "/v1/email-users/" + s.Light} {
		add(path, "")
	}
	return all
}

// A listTime is how long pages of a list took, in milliseconds.
type listTime struct {
	List     string
	P50, P99 float64
	Rows     int // on the page
}

// timeLists asks for every list so often.
func (s *scale) timeLists(i *rig.Instance, times int) (all []listTime) {
	i.T.Helper()
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for _, l := range s.lists(i) {
		if times > 3 {
			timePage(i, client, l.path, 10) // what only the first requests after a start take
		}
		took, text := timePage(i, client, l.path, times)
		rows := strings.Count(text, `"uid":`) + strings.Count(text, `"created_at":`)
		all = append(all, listTime{l.Name, milliseconds(took[len(took)/2]), milliseconds(took[(len(took)-1)*99/100]), rows})
	}
	return all
}

// timePage asks for a page so often, and gives how long that took each time, sorted, and the page.
func timePage(i *rig.Instance, client *http.Client, path string, times int) (took []time.Duration, page string) {
	i.T.Helper()
	for range times {
		began := time.Now()
		req, err := http.NewRequest("GET", "http://"+i.Ready.HTTP+path, nil)
		if err != nil {
			i.T.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+i.Token)
		resp, err := client.Do(req)
		if err != nil {
			i.T.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		took = append(took, time.Since(began))
		if err != nil || resp.StatusCode != http.StatusOK && !(resp.StatusCode == http.StatusNotFound && strings.Contains(path, "/lookup")) {
			i.T.Fatalf("%s: %s %s %v", path, resp.Status, text, err)
		}
		page = string(text)
	}
	slices.Sort(took)
	return took, page
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// overGoal says which lists took too long.
func overGoal(all []listTime) (over []string) {
	for _, l := range all {
		if l.P99 > milliseconds(scaleGoal) {
			over = append(over, fmt.Sprintf("%s: half within %.2f ms, 99 of 100 within %.2f ms", l.List, l.P50, l.P99))
		}
	}
	return over
}

// TestLargeLists: every list answers with and without each of its filters, and in time where the
// store is large. CI has a small store; make soak-lists has five million messages.
func TestLargeLists(t *testing.T) {
	besideOthers(t)
	s := largeStore(t, scaleSize(t, 3000))
	i := rig.StartExisting(t, s.data, s.Token)
	times := 3
	if s.Messages > 3000 {
		times = rig.NumberFrom(t, "MAILSTEAD_TIMES", 300)
	}
	if times > 3 {
		time.Sleep(5 * time.Second) // so that the work of the start is not measured
	}
	all := s.timeLists(i, times)
	for _, l := range all {
		t.Logf("%8.2f %8.2f %4d  %s", l.P50, l.P99, l.Rows, l.List)
	}
	if over := overGoal(all); len(over) > 0 && times > 3 {
		t.Errorf("over %s:\n%s", scaleGoal, strings.Join(over, "\n"))
	}
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A waiter waits for work that an operation of the API has begun, and shows its progress.
type waiter struct {
	apiCaller
	line  *progressLine
	pause func(time.Duration) error // waits for a time; returns an error if the command is to end
}

// Times of waiting.
const (
	pollInterval   = time.Second      // between two looks at a job or a domain
	lookAtDNSEvery = 15 * time.Second // between two questions to the DNS about a domain
)

// newWaiter returns a waiter that asks the running server: nothing goes on without one. timeout is
// how long it waits; 0 means without an end. The caller must call end.
func (e *env) newWaiter(ctx context.Context, account string, timeout time.Duration) (w *waiter, end func()) {
	cancel := context.CancelFunc(func() {})
	if timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it has not ended after %s; it goes on in the server", timeout))
	}
	w = &waiter{apiCaller: apiCaller{ctx: ctx, account: account, send: e.sendOverSocket}, line: e.newProgressLine()}
	w.pause = func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
	return w, func() {
		w.line.end()
		cancel()
	}
}

// wait waits for what the answer of an operation names, and returns the JSON of it as it ended: of
// a job, or of an object with the domains. It returns nil if the answer names nothing that goes on.
// The error says what failed.
func (w *waiter) wait(operation string, args, answer jsonObject) (json.RawMessage, error) {
	if id := answer.stringField("job_id"); id != "" {
		return w.waitForJob(id)
	}
	switch operation {
	case "verify_dns":
		return w.waitForDomain(fmt.Sprint(args["domain_id"]))
	case "connect_domains", "check_nameservers":
		return w.waitForDomains(answer)
	}
	return nil, nil
}

// waitForJob waits until a job has ended.
func (w *waiter) waitForJob(id string) (json.RawMessage, error) {
	for {
		text, err := w.call("get_job", jsonObject{"job_id": id, "wait": "2"})
		if err != nil {
			return nil, w.explain(err)
		}
		var job jsonObject
		if err := json.Unmarshal(text, &job); err != nil {
			return nil, err
		}
		switch status := job.stringField("status"); status {
		case store.JobCompleted:
			return text, nil
		case store.JobError, store.JobCancelled:
			return text, fmt.Errorf("the job %s of %s ended as %s%s", id, job.stringField("type"), status, reasonOf(job))
		}
		w.showJob(job)
		if err := w.pause(progressInterval); err != nil {
			return text, err
		}
	}
}

// explain replaces the error of a request that was cut short by the end of the time to wait.
func (w *waiter) explain(err error) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return err
}

// reasonOf returns ": MESSAGE" of the error of a job or a domain, or "" if it has none.
func reasonOf(o jsonObject) string {
	if failure, ok := o["error"].(map[string]any); ok {
		if message := jsonObject(failure).stringField("message"); message != "" {
			return ": " + message
		}
	}
	if detail := o.stringField("status_detail"); detail != "" {
		return ": " + detail
	}
	return ""
}

// showJob shows what a job does now.
func (w *waiter) showJob(job jsonObject) {
	task := strings.ReplaceAll(job.stringField("type"), "_", " ")
	steps, _ := job["steps"].([]any)
	for _, s := range steps {
		if step, ok := s.(map[string]any); ok && step["status"] == "in_progress" {
			task += ", " + strings.ReplaceAll(jsonObject(step).stringField("name"), "_", " ")
		}
	}
	if p, ok := job["progress"].(map[string]any); ok {
		done, _ := p["completed"].(float64)
		all, _ := p["total"].(float64)
		w.line.show(task, int64(done), int64(all))
		return
	}
	w.line.say(task + reasonOf(job) + " …")
}

// waitForDomains waits until all domains in the answer of connect_domains or check_nameservers are
// complete.
func (w *waiter) waitForDomains(answer jsonObject) (json.RawMessage, error) {
	list, _ := answer["domains"].([]any)
	out := struct {
		Domains []json.RawMessage `json:"domains"`
	}{[]json.RawMessage{}}
	var failed []error
	for _, one := range list {
		object, _ := one.(map[string]any)
		named := jsonObject(object)
		id := named.stringField("domain_id")
		if id == "" || named["status"] == "error" {
			failed = append(failed, domainError(named))
			continue
		}
		d, err := w.waitForDomain(id)
		if d != nil {
			out.Domains = append(out.Domains, d)
		}
		if err != nil {
			failed = append(failed, err)
		}
		if w.ctx.Err() != nil {
			break
		}
	}
	text, err := json.Marshal(out)
	return text, errors.Join(append(failed, err)...)
}

// waitForDomain waits until a domain is complete. Meanwhile it has the server look at the DNS, more
// often than the server does by itself.
func (w *waiter) waitForDomain(id string) (json.RawMessage, error) {
	for sinceLook := lookAtDNSEvery; ; sinceLook += pollInterval {
		text, err := w.call("get_domain", jsonObject{"domain_id": id})
		if refused := (*apiError)(nil); errors.As(err, &refused) && refused.status == http.StatusNotFound {
			return nil, fmt.Errorf("the domain %s was deleted", id)
		}
		if err != nil {
			return nil, w.explain(err)
		}
		var d jsonObject
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, err
		}
		name := d.stringField("domain")
		var look func() error
		switch status := d.stringField("status"); status {
		case store.DomainComplete:
			return text, nil
		case store.DomainError, store.DomainDeleting:
			return text, fmt.Errorf("the domain %s has the status %s%s", name, status, reasonOf(d))
		case store.DomainPendingNS:
			w.line.say(fmt.Sprintf("%s: waiting for its nameservers to be %s …", name, strings.Join(textsOf(d["nameservers"]), ", ")))
			look = func() error {
				_, err := w.call("check_nameservers", jsonObject{"domains": []string{name}})
				return err
			}
		case store.DomainPendingDNS:
			w.line.say(name + ": waiting for its DNS records …")
			look = func() error {
				_, err := w.call("verify_dns", jsonObject{"domain_id": id})
				return err
			}
		default:
			w.line.say(name + ": being set up …")
		}
		if look != nil && sinceLook >= lookAtDNSEvery {
			sinceLook = 0
			if err := look(); err != nil && !isNotReady(err) {
				return text, w.explain(err)
			}
			continue // it may be complete now
		}
		if err := w.pause(pollInterval); err != nil {
			return text, err
		}
	}
}

// isNotReady reports whether an error of verify_dns means that it is too early to ask.
func isNotReady(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && slices.Contains([]string{"records_not_ready", "domain_busy", "not_manual_domain"}, refused.code)
}

// textsOf returns the texts in a list of the API.
func textsOf(v any) (out []string) {
	list, _ := v.([]any)
	for _, one := range list {
		if text, ok := one.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

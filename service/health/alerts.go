package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// An Alert notifies the operator that a check is bad, or is ok again.
type Alert struct {
	Code    string `json:"code" words:"ours" example:"blocklist"` // The check, as in get_health.
	Status  string `json:"status" enum:"warning|error|ok"`
	Subject string `json:"subject" words:"ours" example:"192.0.2.10"`
	Message string `json:"message" words:"ours" example:"It is listed in zen.example, so many receivers refuse mail from it."`
	// What to do; null once it is ok again.
	Mend  *string   `json:"mend" words:"ours" example:"Find out at the list's site why, mend the cause, and ask the list to remove the address."`
	Since core.Time `json:"since"` // When it was first found.
}

// sendAlert sends an alert to the owner of the first account: as an event, as a post to the
// operator's URL and as a message.
func (s *Service) sendAlert(tx *store.Tx, owner *store.Account, a Alert) error {
	event, err := s.events.Emit(tx, owner.ID, events.EventHostAlert, events.About{}, a)
	if err != nil {
		return err
	}
	if err := s.events.PlanOperatorPost(tx, event); err != nil {
		return err
	}
	subject, text := a.Mail(s.Hostname())
	return alert.Plan(s.Core, tx, alert.HostMail{About: owner.ID, To: owner.Email, Subject: subject, Text: text})
}

// transientGrace is how long a check in transientChecks must be bad before it is reported.
const transientGrace = 5 * time.Minute

// transientChecks lists the checks that can fail for a moment, mostly because of other hosts.
var transientChecks = strings.Fields("clock resolver hostname_address ptr ports certificate nameservers port25_out blocklist relay queue backup")

// notifyOperator reports bad checks that were not reported yet, once for each subject, and checks
// that were reported and are ok again.
func (s *Service) notifyOperator(found map[string][]Check) error {
	bad := map[string]Check{}
	for _, list := range found {
		for _, c := range list {
			if c.Status == Warning || c.Status == Error {
				bad[store.AlertID(c.Code, c.Subject)] = c
			}
		}
	}
	some := len(bad) > 0
	var owner *store.Account
	err := s.Store.View(func(tx *store.Tx) (err error) {
		for range store.Alerts.All(tx) {
			some = true
			break
		}
		owner, err = core.FindAccount(tx, "")
		return err
	})
	if err != nil || !some {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		fresh := maps.Clone(bad)
		for _, a := range slices.Collect(store.Alerts.All(tx)) {
			c, still := bad[a.ID]
			if still {
				delete(fresh, a.ID)
				if err := s.reportBad(tx, owner, a, c); err != nil {
					return err
				}
				continue
			}
			if a.Status != "" {
				over := Alert{Code: a.Code, Status: OK, Subject: a.Subject, Message: "This is ok again.", Since: core.Time{Time: a.Since}}
				if err := s.sendAlert(tx, owner, over); err != nil {
					return err
				}
			}
			if err := store.Alerts.Delete(tx, a.ID); err != nil {
				return err
			}
		}
		for id, c := range fresh {
			if err := s.reportBad(tx, owner, &store.Alert{ID: id, Code: c.Code, Subject: c.Subject, Since: tx.Now()}, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// reportBad reports a bad check, unless it was reported already, or is in transientChecks and may
// soon be ok. A check that was a warning and is now an error is reported again.
func (s *Service) reportBad(tx *store.Tx, owner *store.Account, a *store.Alert, c Check) error {
	if a.Status == c.Status || a.Status == Error {
		return nil
	}
	if !slices.Contains(transientChecks, c.Code) || tx.Now().Sub(a.Since) >= transientGrace {
		a.Status = c.Status
		bad := Alert{Code: c.Code, Status: c.Status, Subject: c.Subject, Message: c.Message, Mend: c.Mend, Since: core.Time{Time: a.Since}}
		if err := s.sendAlert(tx, owner, bad); err != nil {
			return err
		}
	}
	return store.Alerts.Put(tx, a)
}

// problems says by the code of a check what is wrong if its result is bad. The title of an alert
// has it after the thing that was checked.
var problems = map[string]string{
	"data_directory":   "wrong file permissions",
	"disk_space":       "disk space is running out",
	"store":            "the store has failed",
	"clock":            "the clock is wrong",
	"resolver":         "DNS lookups fail",
	"hostname_address": "the DNS records of this host are wrong",
	"ptr":              "reverse DNS (PTR) is wrong",
	"ports":            "connections fail",
	"certificate":      "the TLS certificate needs attention",
	"nameservers":      "the nameserver does not answer",
	"domain_dns":       "DNS records are wrong",
	"port25_out":       "outgoing port 25 is blocked",
	"blocklist":        "listed on a block list",
	"relay":            "the relay does not work",
	"queue":            "the queue is stuck",
	"backup":           "backups fail",
	"backup_drill":     "the backup drill failed",
	"passwords":        "imported passwords are still in use",
	"sending_limits":   "sending has no limit",
	"settings":         "a setting is ignored",
	"objects":          "the bucket does not answer",
	"standby":          "the standby lags behind",
}

// title says in a line what an alert is about, such as "example.com: DNS records are wrong".
func (a Alert) title() string {
	problem, ok := problems[a.Code]
	if !ok {
		problem = strings.ReplaceAll(a.Code, "_", " ") + " needs attention"
	}
	if a.Status == OK {
		return fmt.Sprintf("Resolved: %s: %s", a.Subject, problem)
	}
	return fmt.Sprintf("%s: %s", a.Subject, problem)
}

// Mail returns the subject and text of an alert's message.
func (a Alert) Mail(host string) (subject, text string) {
	if a.Status == OK {
		return a.title(), fmt.Sprintf("The check %s of %s on %s is ok again.\n", a.Code, a.Subject, host)
	}
	text = fmt.Sprintf("%s on %s (%s)\n\n%s: %s\n", a.Subject, host, a.Code, a.Status, a.Message)
	if a.Mend != nil {
		text += "\nWhat to do: " + *a.Mend + "\n"
	}
	return a.title(), text + "\n`mailstead doctor` on the host shows every check.\n"
}

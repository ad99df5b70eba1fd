// Package alert queues messages from this host to people, about their account or about the host.
// Such a message must not be lost. It does not know how they are sent.
package alert

import (
	"strings"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Kind is the kind of the jobs that send alerts.
const Kind = "alert"

const (
	maxAlerts     = 50       // alerts in one message
	maxAlertBytes = 64 << 10 // bytes of all texts in one message
)

// A HostMail is a message from this host itself to a person, such as an alert or an invitation.
type HostMail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	About   string `json:"about,omitempty"` // the id of the account that the message is about
}

// Args are the arguments of an alert job: all alerts for one address that were raised before the
// message is sent.
type Args struct {
	Alerts  []HostMail `json:"alerts"`             // to the same address, about the same account
	LeftOut int        `json:"left_out,omitempty"` // how many alerts were dropped for lack of space
}

// Plan queues an alert. If a job with alerts for the same address and account still waits, Plan
// adds the alert to that job.
func Plan(c *core.Core, tx *store.Tx, l HostMail) error {
	lane := "alerts " + strings.ToLower(l.To) + " " + l.About
	for _, id := range store.JobsByLane.Keys(tx, store.LaneKey(lane)+"\x00", "") {
		waits, err := store.Jobs.Get(tx, id)
		if err != nil {
			return err
		}
		args, err := jobs.Args[Args](waits)
		if err != nil {
			break // a newer version of the program wrote the job
		}
		size := len(l.Subject) + len(l.Text)
		for _, a := range args.Alerts {
			size += len(a.Subject) + len(a.Text)
		}
		if len(args.Alerts) < maxAlerts && size <= maxAlertBytes {
			args.Alerts = append(args.Alerts, l)
		} else {
			args.LeftOut++
			tx.After(func() {
				c.Log.Warn("an alert was dropped: the queued message has no space for it", "account_id", l.About, "subject", l.Subject)
			})
		}
		if err := jobs.SetArgs(waits, args); err != nil {
			return err
		}
		return store.Jobs.Put(tx, waits)
	}
	_, err := c.Queue.Add(tx, jobs.New{Kind: Kind, Lane: lane, Args: Args{Alerts: []HostMail{l}}})
	return err
}

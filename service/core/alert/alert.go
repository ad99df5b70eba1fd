// Package alert plans letters to people that must not be lost: what they are to know of their
// account or of this host. It does not know how they are sent.
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
	mostInOne  = 50       // in one letter
	bytesInOne = 64 << 10 // of their texts
)

// A Letter is what this host writes to a person.
type Letter struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	About   string `json:"about,omitempty"` // the id of an account
}

// Args is the job of writing to one address what an account is to know: each alert that came
// while the letter waited.
type Args struct {
	Alerts  []Letter `json:"alerts"`             // to the same address, about the same account
	LeftOut int      `json:"left_out,omitempty"` // alerts that the letter has no room for
}

// Plan has a job send a letter that must not be lost. Past the limits of its kind it is late,
// and the alerts that come meanwhile go with it.
func Plan(c *core.Core, tx *store.Tx, l Letter) error {
	lane := "alerts " + strings.ToLower(l.To) + " " + l.About
	for _, id := range store.JobsByLane.Keys(tx, store.LaneKey(lane)+"\x00", "") {
		waits, err := store.Jobs.Get(tx, id)
		if err != nil {
			return err
		}
		args, err := jobs.Args[Args](waits)
		if err != nil {
			break // a newer version wrote it
		}
		size := len(l.Subject) + len(l.Text)
		for _, a := range args.Alerts {
			size += len(a.Subject) + len(a.Text)
		}
		if len(args.Alerts) < mostInOne && size <= bytesInOne {
			args.Alerts = append(args.Alerts, l)
		} else {
			args.LeftOut++
			tx.After(func() {
				c.Log.Warn("an alert has no room in the letter that waits", "account_id", l.About, "subject", l.Subject)
			})
		}
		if err := jobs.SetArgs(waits, args); err != nil {
			return err
		}
		return store.Jobs.Put(tx, waits)
	}
	_, err := c.Queue.Add(tx, jobs.New{Kind: Kind, Lane: lane, Args: Args{Alerts: []Letter{l}}})
	return err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/store"
)

func (p *Program) queueCommands() []*cli.Command {
	chosen := func(run func(ctx context.Context, e *env, o queueOptions) error) func(c *cli.Context, e *env) error {
		return func(c *cli.Context, e *env) error {
			o := queueOptions{account: c.String("account"), mailbox: c.String("mailbox"), domain: c.String("domain"), ids: c.Args().Slice(), yes: c.Bool("yes")}
			if len(o.ids) > 0 && c.Bool("all") {
				return config.Mistake(errors.New("give the ids of messages or --all, not both"))
			}
			if len(o.ids) == 0 && !c.Bool("all") {
				return config.Mistake(fmt.Errorf("name the messages by their ids, which `mailstead queue list` shows, or give --all: %s", usageLine(c.Command)))
			}
			return run(c.Context, e, o)
		}
	}
	flags := func(all string) []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "mailbox", Usage: "only messages of this mailbox"},
			&cli.StringFlag{Name: "domain", Usage: "only messages from this domain"},
			accountFlag(), jsonFlag(), &cli.BoolFlag{Name: "all", Usage: all},
		}
	}
	list := append(listFlags(), flags("")[:3]...)
	return []*cli.Command{
		p.command("list", "list the messages that wait to be sent, one for each recipient", "", func(c *cli.Context, e *env) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return runQueueList(c.Context, e, queueOptions{account: c.String("account"), mailbox: c.String("mailbox"), domain: c.String("domain")})
		}, list...),
		p.command("retry", "try to send messages now", "[ID…]", chosen(runQueueRetry), flags("all messages that wait")...),
		p.command("cancel", "take messages out of the queue; they are not sent", "[ID…]", chosen(runQueueCancel),
			append(flags("all messages that wait"), &cli.BoolFlag{Name: "yes", Usage: "do not ask before --all"})...),
	}
}

type queueOptions struct {
	account, mailbox, domain string
	ids                      []string // of messages; empty means all that match
	yes                      bool
}

// waitingStatuses are the statuses of messages that wait to be sent.
var waitingStatuses = []string{store.OutgoingQueued, store.OutgoingDeferred, store.OutgoingScheduled, store.OutgoingHeld}

// waiting returns the rows of the sending log of messages that wait to be sent, oldest first.
func (a *apiCaller) waiting(o queueOptions) ([]jsonObject, error) {
	rows := []jsonObject{}
	for _, status := range waitingStatuses {
		args := jsonObject{"status": status, "limit": "100"}
		if o.mailbox != "" {
			args["mailbox"] = o.mailbox
		}
		if o.domain != "" {
			args["domain"] = o.domain
		}
		list, err := a.list("list_messages", args)
		if err != nil {
			return nil, err
		}
		rows = append(rows, list...)
	}
	slices.SortStableFunc(rows, func(a, b jsonObject) int {
		return strings.Compare(a.stringField("queued_at"), b.stringField("queued_at"))
	})
	return rows, nil
}

// runQueueList prints the messages that wait to be sent.
func runQueueList(ctx context.Context, e *env, o queueOptions) error {
	return e.withAPI(ctx, o.account, func(a *apiCaller) error {
		rows, err := a.waiting(o)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"ID", "Status", "From", "To", "Queued", "Next try", "Tries", "Last answer"}, wide: []int{7, 2, 3}, empty: "No message waits."}
		for _, m := range rows {
			next := timeText(m["next_attempt_at"])
			if m["send_at"] != nil {
				next = timeText(m["send_at"])
			}
			t.add(m.stringField("id"), m.stringField("status"), m.stringField("sender"), m.stringField("recipient"), timeText(m["queued_at"]), next,
				fmt.Sprint(m["attempts"]), m.stringField("last_response"))
		}
		return e.printTable(listOf(rows), t)
	})
}

func runQueueRetry(ctx context.Context, e *env, o queueOptions) error {
	return e.withAPI(ctx, o.account, func(a *apiCaller) error { return e.changeQueue(a, o, "retry_message", "is tried now") })
}

func runQueueCancel(ctx context.Context, e *env, o queueOptions) error {
	return e.withAPI(ctx, o.account, func(a *apiCaller) error {
		if len(o.ids) == 0 && !o.yes {
			if err := e.confirm("This cancels all messages that wait, which then are not sent.", os.Stdin); err != nil {
				return err
			}
		}
		return e.changeQueue(a, o, "cancel_message", "is cancelled")
	})
}

// changeQueue calls an operation for each chosen message. If it fails for one, the others follow.
func (e *env) changeQueue(a *apiCaller, o queueOptions, operation, done string) error {
	ids := o.ids
	if len(ids) == 0 {
		rows, err := a.waiting(o)
		if err != nil {
			return err
		}
		for _, m := range rows {
			if operation == "cancel_message" || m["status"] == store.OutgoingQueued || m["status"] == store.OutgoingDeferred {
				ids = append(ids, m.stringField("id"))
			}
		}
	}
	changed, text := []jsonObject{}, ""
	var failed []error
	for _, id := range ids {
		m, err := a.get(operation, jsonObject{"id": id})
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
			continue
		}
		changed = append(changed, m)
		text += fmt.Sprintf("%s %s.\n", id, done)
	}
	if len(ids) == 0 {
		text = "No message waits.\n"
	}
	return errors.Join(append([]error{e.print(listOf(changed), text)}, failed...)...)
}

func (p *Program) logCommand() *cli.Command {
	return p.command("log", "show the sending log: what became of sent messages, newest first", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		o := logOptions{
			account: c.String("account"), limit: c.Int("limit"), follow: c.Bool("follow"),
			filters: jsonObject{"mailbox": c.String("mailbox"), "domain": c.String("domain"), "recipient": c.String("to"), "status": c.String("status")},
		}
		switch {
		case o.limit < 1:
			return config.Mistake(errors.New("--limit must be at least 1"))
		case o.follow && e.csv:
			return config.Mistake(errors.New("give --follow or --csv, not both"))
		case o.follow && !e.serverRuns():
			return fmt.Errorf("%w on %s: start it first", errNoServer, e.dir)
		}
		var err error
		o.since, err = parseSince(c.String("since"), time.Now())
		if err != nil {
			return err
		}
		return runLog(c.Context, e, o)
	}, append(listFlags(),
		&cli.StringFlag{Name: "mailbox", Usage: "only messages of this mailbox, by its address"},
		&cli.StringFlag{Name: "domain", Usage: "only messages from this domain"},
		&cli.StringFlag{Name: "to", Usage: "only messages to this address"},
		&cli.StringFlag{Name: "status", Usage: "only this status, such as delivered, deferred or bounced"},
		&cli.StringFlag{Name: "since", Usage: "only messages since then: a time span such as 30m, 1h or 7d, a day, or a time"},
		&cli.IntFlag{Name: "limit", Usage: "at most this many messages", Value: 50},
		&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "oldest first, then each new message and status as it comes; with --json an object on each line"},
		accountFlag())...)
}

type logOptions struct {
	account string
	filters jsonObject // of list_messages; texts that are "" do not filter
	since   time.Time  // zero: no limit
	limit   int
	follow  bool
}

// parseSince parses the value of --since: a time span before now, a day or a time. It returns the
// zero time for "".
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if span, err := config.ParseDuration(text); err == nil {
		return now.Add(-span), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, config.Mistake(fmt.Errorf("--since is %q; write a time span such as 30m, 1h or 7d, a day such as 2026-11-24, or a time such as 2026-11-24T12:00:00Z", text))
}

// runLog prints the sending log, newest first.
func runLog(ctx context.Context, e *env, o logOptions) error {
	args := jsonObject{"limit": "100"}
	for name, value := range o.filters {
		if value != "" {
			args[name] = value
		}
	}
	if !o.since.IsZero() {
		args["date_from"] = o.since.UTC().Format(time.DateOnly)
	}
	return e.withAPI(ctx, o.account, func(a *apiCaller) error {
		rows := []jsonObject{}
		for page := args; page != nil; {
			list, next, err := a.page("list_messages", page)
			if err != nil {
				return err
			}
			for _, m := range list {
				at, err := time.Parse(time.RFC3339Nano, m.stringField("queued_at"))
				if err != nil || at.Before(o.since) || len(rows) == o.limit {
					next = ""
					break
				}
				rows = append(rows, m)
			}
			page = nil
			if next != "" {
				page = args.withField("cursor", next)
			}
		}
		if mailbox, _ := args["mailbox"].(string); mailbox != "" && len(rows) == 0 {
			if _, err := a.findMailbox(mailbox); err != nil {
				return err
			}
		}
		if o.follow {
			return e.followLog(a, args, o.since, rows)
		}
		if len(rows) == o.limit && newPrinter(e.stdout).terminal {
			fmt.Fprintf(e.stderr, "The newest %d rows are shown; --limit shows more.\n", o.limit)
		}
		return e.printTable(listOf(rows), logTable(rows))
	})
}

// logTable returns rows of the sending log as a table.
func logTable(rows []jsonObject) *table {
	t := &table{heads: []string{"Time", "Status", "From", "To", "Subject", "Answer"}, wide: []int{5, 4, 2, 3}, empty: "No messages."}
	for _, m := range rows {
		t.add(timeText(m["queued_at"]), m.stringField("status"), m.stringField("sender"), m.stringField("recipient"), m.stringField("subject"), m.stringField("last_response"))
	}
	return t
}

// followLog prints rows of the sending log, which has the newest first, in the order of time. Until
// the command is interrupted, it then prints the rows that come, and those among the newest 100
// whose status changes.
func (e *env) followLog(a *apiCaller, args jsonObject, since time.Time, rows []jsonObject) error {
	before := since.UTC().Format(time.RFC3339Nano) // rows that are as old as this, and were not printed, do not come
	if len(rows) > 0 {
		before = rows[0].stringField("queued_at")
	}
	statuses := map[string]string{} // by the ids of the rows that were printed
	for first := true; ; first = false {
		slices.Reverse(rows)
		rows = slices.DeleteFunc(rows, func(m jsonObject) bool {
			status, printed := statuses[m.stringField("id")]
			return status == m.stringField("status") || !first && !printed && m.stringField("queued_at") <= before
		})
		t := logTable(rows)
		t.empty, t.headless = "", !first
		var err error
		for _, m := range rows {
			statuses[m.stringField("id")] = m.stringField("status")
			err = errors.Join(err, e.print(m, ""))
		}
		if !e.json {
			err = newPrinter(e.stdout).writeTable(t)
		}
		if err != nil {
			return err
		}
		select {
		case <-a.ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
		rows, _, err = a.page("list_messages", args)
		if err != nil && a.ctx.Err() == nil {
			return err
		}
	}
}

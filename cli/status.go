package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
)

func (p *Program) statusCommand() *cli.Command {
	return p.command("status", "show whether the server runs, its queue, its last backup, and what is wrong", "", func(c *cli.Context, e *env) error {
		if err := noArguments(c); err != nil {
			return err
		}
		return runStatus(c.Context, e)
	}, jsonFlag())
}

// serverStatus is the result of the command status: the answer of get_health, and what is known of
// the process.
type serverStatus struct {
	operator.Running
	Health *health.Health `json:"health"`
}

// runStatus shows the state of the running server. It returns an error if no server runs.
func runStatus(ctx context.Context, e *env) error {
	out := &serverStatus{Health: new(health.Health)}
	if err := e.askServer(ctx, operator.RunningPath, struct{}{}, &out.Running); err != nil {
		if !errors.Is(err, errNoServer) {
			return err
		}
		if _, missing := os.Stat(e.dir); missing != nil {
			s, settingsErr := e.offlineSettings()
			if settingsErr != nil {
				return settingsErr
			}
			return operator.RequireStore(e.dir, s, false)
		}
		return fmt.Errorf("no server runs on %s. Start it: `systemctl start mailstead`, or `mailstead serve --data %[1]s`", health.ShellWord(e.dir))
	}
	a := &apiCaller{ctx: ctx, send: e.sendOverSocket}
	text, err := a.call("get_health", nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, out.Health); err != nil {
		return err
	}
	return e.print(out, out.text(newPrinter(e.stdout)))
}

// text returns the state for people.
func (s *serverStatus) text(p *printer) string {
	var w strings.Builder
	h := s.Health
	uptime := time.Duration(s.UptimeSeconds) * time.Second
	fmt.Fprintf(&w, "%s, version %s, is running on %s for %s (process %d).\n\n", p.bold("Mailstead"), h.Version, h.Hostname, spanText(uptime), s.PID)
	var listeners []string
	for _, l := range s.Listeners {
		at := fmt.Sprint(l.Port)
		if l.Address != "" {
			at = net.JoinHostPort(l.Address, at)
		}
		listeners = append(listeners, l.Name+" "+at)
	}
	line := func(name, text string) { fmt.Fprintf(&w, "%-10s %s\n", name, text) }
	line("Listeners", strings.Join(listeners, ", "))
	queue := "empty"
	if h.Queue.Depth > 0 {
		queue = plural(int64(h.Queue.Depth), "recipient")
		if h.Queue.OldestSeconds != nil {
			queue += fmt.Sprintf(", the oldest for %s", spanText(time.Duration(*h.Queue.OldestSeconds)*time.Second))
		}
	}
	line("Queue", queue)
	store := fmt.Sprintf("%s in %s, %s free", plural(h.Store.Messages, "message"), bytesText(h.Store.Bytes), bytesText(h.Store.FreeBytes))
	if h.Store.ReadOnly {
		store += p.styled(sgrRed, ", takes no more writes")
	}
	line("Store", store)
	line("Backup", backupText(&h.Backup, p))
	bad, counts := []health.Check{}, map[string]int{}
	for _, c := range h.Checks {
		counts[c.Status]++
		if c.Status == health.Error || c.Status == health.Warning {
			bad = append(bad, c)
		}
	}
	line("Checks", fmt.Sprintf("%d ok, %s, %s", counts[health.OK], plural(int64(counts[health.Warning]), "warning"), plural(int64(counts[health.Error]), "error")))
	if len(bad) > 0 {
		w.WriteString("\n" + checksText(bad, p))
	}
	return w.String()
}

func backupText(b *health.BackupHealth, p *printer) string {
	switch {
	case b.Target == nil:
		return "not configured: set `to` in [backup] of mailstead.toml, or run `mailstead backup PLACE`"
	case b.AgeSeconds == nil:
		return "none yet to " + *b.Target
	}
	text := fmt.Sprintf("%s ago to %s", spanText(time.Duration(*b.AgeSeconds)*time.Second), *b.Target)
	if b.Verified != nil && *b.Verified {
		text += ", read back"
	}
	if b.Error != nil {
		text += p.styled(sgrRed, ". The last try failed: "+plainText(*b.Error))
	}
	return text
}

// plural returns a number with its noun.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "x") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

package health

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A check is one row of the table of checks. A live check is cheap and runs again for each request;
// the others run only in Run and Doctor.
type check struct {
	code string
	live bool // cheap, so it runs again for each request
	run  func(context.Context) []Check
}

// checks is the table of all checks, in the order in which they are shown.
func (s *Service) checks() []check {
	return []check{
		{"data_directory", false, s.checkDirectory},
		{"disk_space", true, s.checkDisk},
		{"store", true, s.checkStore},
		{"clock", false, s.checkClock},
		{"resolver", false, s.checkResolver},
		{"hostname_address", false, s.checkAddress},
		{"ptr", false, s.checkReverse},
		{"ports", false, s.checkPorts},
		{"certificate", false, s.checkCertificate},
		{"nameservers", false, s.checkNameservers},
		{"domain_dns", false, s.checkDomains},
		{"port25_out", false, s.checkPort25},
		{"blocklist", false, s.checkBlocklists},
		{"relay", false, s.checkRelays},
		{"queue", true, s.checkQueue},
		{"backup", true, s.checkBackup},
		{"backup_drill", true, s.checkDrill},
		{"passwords", false, s.checkPasswords},
		{"sending_limits", false, s.checkSendingLimits},
		{"settings", true, s.checkSettings},
		{"objects", false, skippedCheck("objects", "Messages are kept on the disk of this host alone.")},
		{"standby", false, skippedCheck("standby", "There is no standby.")},
	}
}

// okResult returns a check that is ok.
func okResult(code, subject, format string, args ...any) []Check {
	return []Check{{Code: code, Status: OK, Subject: subject, Message: fmt.Sprintf(format, args...)}}
}

// badResult returns a check that is a warning or an error. mend says what the operator must do.
func badResult(code, status, subject, message, mend string) []Check {
	return []Check{{Code: code, Status: status, Subject: subject, Message: message, Mend: &mend}}
}

// commandLine returns a command line of the program for this installation, quoted for a shell.
func (s *Service) commandLine(words ...string) string {
	dir, err := filepath.Abs(s.Store.Dir())
	if err != nil {
		dir = s.Store.Dir()
	}
	name := 1 // words of the command's name, before its flags and arguments
	if words[0] == "job" || words[0] == "settings" {
		name = 2
	}
	line := append(slices.Clone(words[:name]), append([]string{"--data", dir}, words[name:]...)...)
	for i, word := range line {
		line[i] = ShellWord(word)
	}
	return "`mailstead " + strings.Join(line, " ") + "`"
}

// checkSettings tells of settings in the store that do not hold.
func (s *Service) checkSettings(context.Context) (out []Check) {
	const code = "settings"
	for _, i := range s.Settings().Ignored {
		out = append(out, badResult(code, Warning, i.Key, "The value in the store is ignored: "+i.Why+".",
			"Remove it from the store with "+s.commandLine("settings", "unset", i.Key)+", or correct it there or in mailstead.toml.")...)
	}
	if out == nil {
		return okResult(code, "the settings in the store", "All of them hold.")
	}
	return out
}

// ShellWord quotes a text as one word of a shell command.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("/._-@", r) || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// A disk is running out if less than 1/lowDiskShare of it is free and less than lowDiskBytes bytes.
const (
	lowDiskShare = 10
	lowDiskBytes = 10 << 30
)

func (s *Service) checkDisk(context.Context) []Check {
	const code = "disk_space"
	dir := s.Store.Dir()
	disk, err := s.Store.Disk()
	switch free := fmt.Sprintf("%d MiB of %d MiB are free.", disk.Free>>20, disk.Total>>20); {
	case err != nil:
		return []Check{{Code: code, Status: Skipped, Subject: dir, Message: "The system does not tell how much of the disk is free."}}
	case disk.Full:
		return badResult(code, Error, dir, "The disk is full: new mail and other changes are refused, deletions are not. "+free,
			"Free space on the disk of "+dir+", or make it larger.")
	case disk.Free < min(disk.Total/lowDiskShare, lowDiskBytes):
		return badResult(code, Warning, dir, "The disk is running out. "+free, "Free space on the disk of "+dir+", or make it larger.")
	default:
		return okResult(code, dir, "%s", free)
	}
}

func (s *Service) checkStore(context.Context) (out []Check) {
	const code = "store"
	dir := s.Store.Dir()
	if err := s.Store.Failed(); err != nil {
		out = badResult(code, Error, dir, fmt.Sprintf("The store takes no more writes, and nothing is acknowledged: %v.", err),
			"Look for what is wrong with the disk (the system's log names it), and restart the server.")
	}
	if times, last := s.Store.DamageFound(); times > 0 {
		out = append(out, badResult(code, Error, dir, fmt.Sprintf("%d times something was read that is not what was written, the last time: %v.", times, last),
			"Stop the server, run "+s.commandLine("check")+", and restore what it names from a backup.")...)
	}
	if out == nil {
		return okResult(code, dir, "The store takes writes, and nothing damaged was read since the server was started.")
	}
	return out
}

// A clock detects when this host's clock was set, by comparing it with the monotonic clock.
type clock struct {
	start time.Time // with its monotonic reading

	mu  sync.Mutex
	off time.Duration // difference between the clock and the monotonic clock at the last check
	at  time.Time     // when the clock was last set; zero: it was not
	by  time.Duration // by how much the clock was last set
}

const (
	clockTolerance   = time.Minute    // a change of more than this is reported
	clockReportedFor = 24 * time.Hour // how long a change is reported
)

// check compares the clock's time with the time that has passed since start by the monotonic clock.
// It returns when and by how much the clock was last set; zeros if that was more than
// clockReportedFor ago.
func (c *clock) check(shows time.Time, passed time.Duration) (at time.Time, by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	off := shows.Round(0).Sub(c.start.Round(0)) - passed
	if moved := off - c.off; moved.Abs() > clockTolerance {
		c.at, c.by = shows, moved
	}
	c.off = off
	if c.at.IsZero() || shows.Sub(c.at) > clockReportedFor {
		return time.Time{}, 0
	}
	return c.at, c.by
}

func (s *Service) checkClock(context.Context) []Check {
	const code, subject = "clock", "the clock of this host"
	now := time.Now()
	at, by := s.clock.check(now, now.Sub(s.clock.start))
	if at.IsZero() {
		return okResult(code, subject, "It was not moved in the last day, or since the server was started.")
	}
	return badResult(code, Warning, subject, fmt.Sprintf("It was moved by %s, which was seen at %s.", by.Round(time.Second), at.UTC().Format(time.RFC3339)),
		"See that the clock is set by NTP (`timedatectl` or `chronyc tracking` tells). After a pause of the machine this is no mistake.")
}

// jobLateAfter is how late a job may start without a warning.
const jobLateAfter = time.Hour

// maxNamed is how many jobs or names a message lists.
const maxNamed = 10

func (s *Service) checkQueue(context.Context) (out []Check) {
	const code, subject = "queue", "the queue of jobs"
	unread := s.Queue.Unread()
	for _, u := range unread[:min(len(unread), maxNamed)] {
		out = append(out, badResult(code, Error, u.ID, fmt.Sprintf("This version of Mailstead cannot do the job: %v. It stays in the queue, and the others go on.", u.Reason),
			"Start the version of Mailstead that made the job, or a newer one; for a damaged row stop the server and run "+s.commandLine("check")+".")...)
	}
	if more := len(unread) - maxNamed; more > 0 {
		out = append(out, badResult(code, Error, subject, fmt.Sprintf("There are %d more jobs that this version of Mailstead cannot do.", more),
			"The log names each of them.")...)
	}
	out = append(out, s.checkParked()...)
	id, due, err := s.oldestDue(unread)
	switch late := s.Now().Sub(due); {
	case err != nil:
		out = append(out, badResult(code, Error, subject, fmt.Sprintf("It cannot be read: %v.", err), "Stop the server and run "+s.commandLine("check")+".")...)
	case id != "" && late > jobLateAfter:
		out = append(out, badResult(code, Warning, id, fmt.Sprintf("The oldest job has been due for %s.", late.Round(time.Minute)),
			"See in the log what its lane waits for; a next hop that takes little at a time has the others wait.")...)
	}
	if out == nil {
		return okResult(code, subject, "Every job that is due is done in time.")
	}
	return out
}

// oldestDue finds the job that is overdue the longest, except those that this version cannot run;
// "" if there is none.
func (s *Service) oldestDue(unread []jobs.UnreadJob) (id string, due time.Time, err error) {
	left := map[string]bool{}
	for _, u := range unread {
		left[u.ID] = true
	}
	err = s.Store.View(func(tx *store.Tx) error {
		for key, job := range store.JobsDue.Keys(tx, "", "") {
			if !left[job] {
				id, due = job, store.KeyTime(key)
				break
			}
		}
		return nil
	})
	return id, due, err
}

// checkSendingLimits checks whether a stolen password could send without limit.
func (s *Service) checkSendingLimits(context.Context) []Check {
	const code, subject = "sending_limits", "[limits]"
	l := s.Settings().Limits
	switch {
	case s.Config.Sandbox:
		return []Check{{Code: code, Status: Skipped, Subject: subject, Message: "The sandbox needs no limits on recipients."}}
	case l.RecipientsPerMailbox == 0 && l.RecipientsPerDomain == 0 && l.RecipientsPerAccount == 0:
		return badResult(code, Warning, subject, "No limit holds for how many recipients a mailbox, a domain or an account writes to in a day, so whoever steals a password can send any amount of spam.",
			"Set recipients_per_mailbox_per_day, new_recipients_per_mailbox_per_day and the others in [limits] of mailstead.toml.")
	}
	return okResult(code, subject, "The recipients that are written to in a day are limited.")
}

// checkPasswords names the mailboxes whose password is kept only as an imported hash, since their
// user has not logged in yet.
func (s *Service) checkPasswords(context.Context) []Check {
	const code, subject = "passwords", "imported password hashes"
	var names []string
	count := 0
	err := core.EachRow(s.Store, store.Mailboxes, func(mb *store.Mailbox) string { return mb.ID }, func(mb *store.Mailbox) {
		if mb.HashOnly() && !mb.Gone() {
			if count++; count <= maxNamed {
				names = append(names, mb.Email)
			}
		}
	})
	if err != nil {
		return s.storeErrorResult(code, subject, err)
	}
	if more := count - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if count > 0 {
		return badResult(code, Warning, subject, "Nothing but an imported hash is kept of the passwords of "+strings.Join(names, ", ")+"; until each of them has logged in once, mail programs cannot use SCRAM.",
			"Have these people sign in once with a mail program or in the dashboard, or set new passwords: "+s.commandLine("call", "update_email_user", `{"user_id":"eu_…","password":"…"}`)+".")
	}
	return okResult(code, subject, "No mailbox has an imported password hash alone.")
}

// suspiciousConnections is the number of connections, all from one private address, that is
// reported.
const suspiciousConnections = 50

// checkHiddenClients returns a warning if a proxy before this host seems to hide the clients'
// addresses.
func (s *Service) checkHiddenClients() []Check {
	const code, subject = "ports", "the clients of port 25"
	ip, n, one := s.Clients.OnlyAddress()
	if !one || n < suspiciousConnections {
		return nil
	}
	return badResult(code, Warning, subject, fmt.Sprintf("All %d connections since the start came from %s, so every limit and check of senders sees one client.", n, ip),
		fmt.Sprintf("If a proxy is there, have it send the PROXY protocol and set proxy_protocol = [%q]; if it is address translation, have it keep the addresses of clients.", ip))
}

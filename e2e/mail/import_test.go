package mail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// imported is what an import or an export prints.
type imported struct {
	Messages, Imported, Skipped, Failed int
	Mailboxes, Folders                  int
	Bytes                               int64
	Errors                              []struct{ Source, Message string }
}

// transfer runs an import or export, and gives what it prints.
func transfer(t *testing.T, code int, args ...string) (out imported) {
	t.Helper()
	text, got := rig.Run(t, append(args, "--json")...)
	if got != code {
		t.Fatalf("mailstead %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, text)
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// A kept message is what a Maildir says of one.
type keptMessage struct {
	text, flags string
	date        int64
}

// readMaildir gives the messages of each folder, in the order of their names.
func readMaildir(t *testing.T, dir string) map[string][]keptMessage {
	t.Helper()
	all := map[string][]keptMessage{}
	for _, path := range slices.Concat(rig.Glob(t, filepath.Join(dir, "cur", "*")), rig.Glob(t, filepath.Join(dir, ".*", "cur", "*"))) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Base(filepath.Dir(filepath.Dir(path)))
		if !strings.HasPrefix(folder, ".") {
			folder = ""
		}
		_, flags, _ := strings.Cut(filepath.Base(path), ":2,")
		all[folder] = append(all[folder], keptMessage{string(text), flags, info.ModTime().Unix()})
	}
	return all
}

// writeMaildirMessage writes a file of a Maildir.
func writeMaildirMessage(t *testing.T, dir, name, text string, date time.Time) {
	t.Helper()
	for _, sub := range []string{"cur", "new", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "cur", name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, date, date); err != nil {
		t.Fatal(err)
	}
}

// timedTransfer is transfer, and checks that an import of many messages takes at most 256 MiB and
// brings at least so many a second.
func timedTransfer(i *rig.Instance, least float64, args ...string) (out imported) {
	i.T.Helper()
	path, err := rig.Binary()
	if err != nil {
		i.T.Fatal(err)
	}
	var text, complaint bytes.Buffer
	cmd, began := exec.Command(path, append(args, "--json")...), time.Now()
	cmd.Stdout, cmd.Stderr = &text, &complaint
	if err := cmd.Start(); err != nil {
		i.T.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	command := 0.0 // not what Wait tells, which begins with the memory of this test
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-time.After(20 * time.Millisecond):
			command = max(command, rig.ProcStatus(cmd.Process.Pid)["VmHWM:"]/1024)
		}
	}
	if err == nil {
		err = json.Unmarshal(text.Bytes(), &out)
	}
	if err != nil {
		i.T.Fatalf("mailstead %s: %v: %s%s", strings.Join(args, " "), err, text.String(), complaint.String())
	}
	rate := float64(out.Imported) / time.Since(began).Seconds()
	server := rig.ProcStatus(i.Cmd.Process.Pid)["VmHWM:"] / 1024
	i.T.Logf("%d messages, %.0f a second; at most %.0f MiB in the server, %.0f MiB in the command", out.Imported, rate, server, command)
	if out.Imported > 10_000 && (rate < least || server > 256 || command > 256) {
		i.T.Errorf("an import is to bring at least %.0f messages a second, and to take at most 256 MiB", least)
	}
	return out
}

// TestImportAndExport: a Maildir comes in and goes out with the same bytes, flags and dates, also
// by way of mbox files, with a running server and without one.
func TestImportAndExport(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	i.AddDomain("boxes.test")
	for _, name := range []string{"ann", "bob", "cat"} {
		i.AddMailbox(name+"@boxes.test", "correct horse")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	random := rand.New(rand.NewPCG(2026, 10))
	folders := map[string]string{"": "", ".Sent Items": ".Sent", ".Work.Gr&APYA3w-e": ".Work.Gr&APYA3w-e", ".INBOX.Lists": ".Lists", ".Spam": ".Junk"}
	want := map[string][]keptMessage{}
	each := rig.NumberFrom(t, "MAILSTEAD_IMPORT", 200) / len(folders)
	n := 0
	for from, to := range folders {
		for range each {
			n++
			text := fmt.Sprintf("From: a%d@far.test\nSubject: number %d\n\n", n, n) + strings.Repeat("From here\n>From there\n\nx\xff\n", random.IntN(20))
			if n%7 == 0 {
				text += "no end of the line"
			}
			flags := ""
			for _, c := range "DFPRST" {
				if random.IntN(3) == 0 {
					flags += string(c)
				}
			}
			date := time.Unix(1_700_000_000+int64(n/2), 0) // two of each second
			name := fmt.Sprintf("%d.M%04d.host", date.Unix(), n)
			writeMaildirMessage(t, filepath.Join(source, from), name+":2,"+flags, text, date)
			want[to] = append(want[to], keptMessage{strings.ReplaceAll(text, "\n", "\r\n"), flags, date.Unix()})
		}
	}
	writeMaildirMessage(t, source, "1600000000.empty:2,", "", time.Unix(1_600_000_000, 0))

	// It comes in once, however often it is imported.
	data := []string{"--data", i.Dir}
	in := transfer(t, 1, append([]string{"import", "maildir", "--from", source, "--to", "ann@boxes.test"}, data...)...)
	if in.Messages != n+1 || in.Imported != n || in.Failed != 1 || in.Folders != len(folders) || len(in.Errors) != 1 || !strings.Contains(in.Errors[0].Source, "empty") {
		t.Fatalf("%+v", in)
	}
	if err := os.Remove(filepath.Join(source, "cur", "1600000000.empty:2,")); err != nil {
		t.Fatal(err)
	}
	if again := transfer(t, 0, append([]string{"import", "maildir", "--from", source, "--to", "ann@boxes.test"}, data...)...); again.Skipped != n || again.Imported+again.Failed != 0 {
		t.Fatalf("%+v", again)
	}
	if cat := timedTransfer(i, 3000, append([]string{"import", "maildir", "--from", source, "--to", "cat@boxes.test"}, data...)...); cat.Imported != n {
		t.Errorf("%+v", cat)
	}
	if log := i.GetText("/v1/audit?action=import%20maildir"); strings.Count(log, `"action":"import maildir"`) != 3 || strings.Count(log, `"name":"ann@boxes.test"`) != 2 {
		t.Errorf("three imports are in the audit log as %s", log)
	}
	same := func(got map[string][]keptMessage) {
		t.Helper()
		for folder := range folders {
			folder = folders[folder]
			if !slices.Equal(got[folder], want[folder]) {
				t.Errorf("folder %q: %d messages, want %d as they were", folder, len(got[folder]), len(want[folder]))
				for k := range min(len(got[folder]), len(want[folder])) {
					if got[folder][k] != want[folder][k] {
						t.Fatalf("message %d: %+v, want %+v", k, got[folder][k], want[folder][k])
					}
				}
			}
		}
	}
	out := transfer(t, 0, append([]string{"export", "maildir", "--to", filepath.Join(dir, "a"), "--from", "ann@boxes.test"}, data...)...)
	if out.Mailboxes != 1 || out.Messages != n || len(out.Errors) != 0 {
		t.Errorf("%+v", out)
	}
	same(readMaildir(t, filepath.Join(dir, "a", "ann@boxes.test")))
	var account struct {
		Domains   []struct{ Domain string }
		Mailboxes []struct{ Email string }
		Records   map[string]any
		Webhooks  []any
		Settings  map[string]any
	}
	text, err := os.ReadFile(filepath.Join(dir, "a", "account.json"))
	if err == nil {
		err = json.Unmarshal(text, &account)
	}
	if err != nil || len(account.Domains) != 1 || len(account.Mailboxes) != 3 || account.Settings["plan"] == nil || account.Webhooks == nil || account.Records["boxes.test"] == nil {
		t.Errorf("%v %s", err, text)
	}

	// By way of mbox files, with the server stopped. A message without an end of its last line gets
	// one there.
	i.Stop()
	transfer(t, 0, append([]string{"export", "mbox", "--to", filepath.Join(dir, "b"), "--all"}, data...)...)
	if text, code := rig.Run(t, append([]string{"export", "mbox", "--to", filepath.Join(dir, "b"), "--all"}, data...)...); code != 1 {
		t.Errorf("a second export to the same place: %d %s", code, text)
	}
	for folder, file := range map[string]string{"INBOX": "INBOX", "Sent": "Sent", "Work/Größe": "Work.Größe", "Lists": "Lists", "Junk": "Junk"} {
		transfer(t, 0, append([]string{"import", "mbox", "--from", filepath.Join(dir, "b", "ann@boxes.test", file+".mbox"), "--to", "bob@boxes.test", "--folder", folder}, data...)...)
	}
	transfer(t, 0, append([]string{"export", "maildir", "--to", filepath.Join(dir, "c"), "--from", "bob@boxes.test"}, data...)...)
	for _, list := range want {
		for k := range list {
			if !strings.HasSuffix(list[k].text, "\r\n") {
				list[k].text += "\r\n"
			}
			list[k].flags = strings.ReplaceAll(list[k].flags, "P", "") // mbox files have none
		}
	}
	same(readMaildir(t, filepath.Join(dir, "c", "bob@boxes.test")))

	// A list of mailboxes.
	list := filepath.Join(dir, "list.csv")
	if err := os.WriteFile(list, []byte("from,to\n"+source+",cat@boxes.test\n"+source+",nobody@boxes.test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	some := transfer(t, 1, append([]string{"import", "maildir", "--list", list}, data...)...)
	if some.Skipped != n || len(some.Errors) != 1 || some.Errors[0].Source != source || !strings.Contains(some.Errors[0].Message, "nobody@boxes.test") {
		t.Errorf("a mailbox that is not there: %+v", some)
	}
	bad := []string{"from,to", "one column", source + ",\"no end", "", dir + "/nothing,bob@boxes.test", source + ",nobody@boxes.test", source + ",bob@boxes.test"}
	if err := os.WriteFile(list, []byte(strings.Join(bad, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	in = transfer(t, 1, append([]string{"import", "maildir", "--list", list}, data...)...)
	if in.Imported != n || in.Failed != 0 || len(in.Errors) != 4 || in.Errors[0].Source != list+" line 2" || in.Errors[1].Source != list+" line 3" {
		t.Errorf("one line of five can be done: %+v", in)
	}
	i.Start()
	if got := len(i.Inbox(mailboxID(i, "ann@boxes.test"))); got != each {
		t.Errorf("%d messages in the inbox", got)
	}
}

// mailboxID finds a mailbox by its address.
func mailboxID(i *rig.Instance, email string) string {
	i.T.Helper()
	var page struct {
		Data []struct {
			ID    string `json:"user_id"`
			Email string
		}
	}
	i.Want(200, "GET", "/v1/email-users?q="+email, nil, &page)
	for _, m := range page.Data {
		if m.Email == email {
			return m.ID
		}
	}
	i.T.Fatalf("there is no %s", email)
	return ""
}

// TestImportIsKilled: an import that a crash of the server ends goes on where it was, and brings
// each message once, in the order of the file. CI has a few thousand messages; make soak-import has
// 200 000, with the time and the memory that they take.
func TestImportIsKilled(t *testing.T) {
	t.Parallel()
	n, kills := rig.NumberFrom(t, "MAILSTEAD_IMPORT", 3000), 3
	if n > 3000 {
		kills = 10
	}
	i := rig.Start(t, rig.GenerousLimits)
	i.AddDomain("boxes.test")
	ann := i.AddMailbox("ann@boxes.test", "correct horse")
	file := filepath.Join(t.TempDir(), "all.mbox")
	var text bytes.Buffer
	random := rand.New(rand.NewPCG(2026, 11))
	for k := range n {
		fmt.Fprintf(&text, "From a@far.test Tue Nov 24 10:00:00 2026\nFrom: a@far.test\nSubject: number %d\n\n", k)
		for range 20 {
			fmt.Fprintf(&text, "%x %x %x winter weekly\n", random.Uint64(), random.Uint64(), random.Uint64())
		}
		text.WriteString("\n")
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", "mbox", "--data", i.Dir, "--from", file, "--to", "ann@boxes.test", "--json"}
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for range kills {
		cmd := exec.Command(path, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(200+random.IntN(800)) * time.Millisecond) // the kill comes at any moment
		i.Kill()
		_ = cmd.Wait() // it may have been done
		i.Start()
	}
	last := timedTransfer(i, 3000, args[:len(args)-1]...)
	if last.Imported+last.Skipped != n || last.Failed != 0 {
		t.Errorf("%+v", last)
	}
	rows := i.Inbox(ann)
	if len(rows) != n {
		t.Fatalf("%d messages, want %d", len(rows), n)
	}
	slices.SortFunc(rows, func(a, b rig.InboxRow) int {
		x, _ := strconv.Atoi(a.UID)
		y, _ := strconv.Atoi(b.UID)
		return x - y
	})
	for k, r := range rows {
		if r.Subject != fmt.Sprintf("number %d", k) {
			t.Fatalf("message %d is %q", k, r.Subject)
		}
	}
}

// TestImportAccounts: mailboxes come with the password hashes of another server, and the first
// log-in replaces them.
func TestImportAccounts(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	i.AddDomain("boxes.test")
	i.AddMailbox("old@boxes.test", "correct horse")
	const sha512 = "{SHA512-CRYPT}$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1" // Hello world!
	file := filepath.Join(t.TempDir(), "accounts.csv")
	lines := []string{
		"email,password_hash,name", "ann@boxes.test," + sha512 + ",Ann", "bob@boxes.test,$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW,\"Bob, the \"\"first\"\"\"",
		"old@boxes.test," + sha512 + ",", "no@elsewhere.test," + sha512 + ",", "cat@boxes.test,plain,Cat", "not an address," + sha512 + ",",
		"dan@boxes.test," + sha512 + ",\"no end", "eve@boxes.test," + sha512 + "", "fay@boxes.test,a \"quote\",Fay",
		"gus@boxes.test,\"{ARGON2ID}$argon2id$v=19$m=65536,t=3,p=1$c29tZXNhbHRzb21lc2FsdA$rzqKKaxIFWGcRM7wp2mZMAOHtvMJiEqCTi6HPYlGr1k\",Gus",
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out struct {
		Accounts, Imported, Skipped, Failed int
		Errors                              []struct {
			Line           int
			Email, Message string
		}
	}
	read := func(code int) {
		t.Helper()
		text, got := rig.Run(t, "import", "accounts", "--data", i.Dir, "--from", file, "--json")
		if err := json.Unmarshal([]byte(text), &out); err != nil || got != code {
			t.Fatalf("exit code %d: %v %s", got, err, text)
		}
	}
	scram := func(want bool) {
		t.Helper()
		for _, offered := range []string{rig.Speak(t, i.Ready.IMAP, "a CAPABILITY", "b LOGOUT"), rig.Speak(t, i.Ready.Submission, "EHLO here", "QUIT")} {
			if strings.Contains(offered, "SCRAM-SHA-256") != want || !strings.Contains(offered, "PLAIN") {
				t.Errorf("SCRAM is to be offered: %v; offered is %s", want, offered)
			}
		}
	}
	scram(true)
	read(1)
	if out.Accounts != 10 || out.Imported != 3 || out.Skipped != 1 || out.Failed != 6 || len(out.Errors) != 6 {
		t.Fatalf("%+v", out)
	}
	for n, e := range out.Errors {
		if e.Line != 5+n {
			t.Errorf("the line of %+v is not %d", e, 5+n)
		}
	}
	scram(false)
	logIn := func(email, password string, want bool) {
		t.Helper()
		c, err := imapclient.DialInsecure(i.Ready.IMAP, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Login(email, password).Wait(); (err == nil) != want {
			t.Errorf("%s %q: %v", email, password, err)
		}
	}
	var exported struct {
		Data []struct{ Email, Name string }
	}
	i.Want(200, "GET", "/v1/email-users?limit=50", nil, &exported)
	if len(exported.Data) != 4 {
		t.Errorf("%+v", exported)
	}
	hashes := func() string {
		t.Helper()
		i.Stop()
		st, err := store.Open(i.Dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		err = st.View(func(tx *store.Tx) error {
			for _, email := range []string{"ann@boxes.test", "bob@boxes.test", "old@boxes.test"} {
				mb, err := store.MailboxByEmail.Get(tx, email)
				if err != nil {
					return err
				}
				text += mb.PasswordHash[:4] + fmt.Sprint(len(mb.PasswordSealed) > 0, " ")
			}
			return nil
		})
		if err := errors.Join(err, st.Close()); err != nil {
			t.Fatal(err)
		}
		i.Start()
		return text
	}
	if got := hashes(); got != "$6$sfalse $2a$false $argtrue " {
		t.Errorf("hashes: %s", got)
	}
	logIn("ann@boxes.test", "Hello world?", false)
	logIn("ann@boxes.test", "Hello world!", true)
	logIn("bob@boxes.test", "U*U", true)
	logIn("old@boxes.test", "Hello world!", false)
	if got := hashes(); got != "$argfalse $argfalse $argtrue " {
		t.Errorf("hashes after log-ins: %s", got)
	}
	logIn("ann@boxes.test", "Hello world!", true)
	logIn("bob@boxes.test", "U*U", true)
	if text, _ := rig.Run(t, "doctor", "--data", i.Dir, "--json"); !strings.Contains(text, "Nothing but an imported hash is kept of the passwords of ") {
		t.Errorf("doctor counts no argon2id hash: %s", text)
	}
	scram(false)
	i.Want(200, "PATCH", "/v1/email-users/"+mailboxID(i, "gus@boxes.test"), map[string]any{"password": "another horse"}, nil)
	scram(true)
	read(1)
	if out.Skipped != 4 || out.Imported != 0 {
		t.Errorf("%+v", out)
	}
	// Who downloads the passwords gets none for these.
	if text, code := rig.Run(t, "export", "maildir", "--data", i.Dir, "--to", filepath.Join(t.TempDir(), "x"), "--all"); code != 0 {
		t.Error(text)
	}
}

// TestImportFromDovecot: a mailbox comes from somebody else's IMAP server with its folders, bytes,
// flags and dates, and a second run fetches nothing.
func TestImportFromDovecot(t *testing.T) {
	t.Parallel()
	d := rig.StartDovecot(t, []string{"ann"})
	i := rig.Start(t, "")
	i.AddDomain("boxes.test")
	i.AddMailbox("ann@boxes.test", "correct horse")
	bob := i.AddMailbox("bob@boxes.test", "correct horse")
	home := filepath.Join(d.Dir, "mail", "ann")
	folders := map[string]string{"": "", ".Sent": ".Sent", ".Work.Gr&APYA3w-e": ".Work.Gr&APYA3w-e", ".Deleted Messages": ".Trash"}
	want := map[string][]keptMessage{}
	random := rand.New(rand.NewPCG(2026, 12))
	each := rig.NumberFrom(t, "MAILSTEAD_IMPORT", 160) / len(folders)
	n := 0
	for from, to := range folders {
		for range each {
			n++
			text := fmt.Sprintf("From: a%d@far.test\r\nSubject: number %d\r\n\r\n", n, n) + strings.Repeat("text\r\n", random.IntN(20))
			if n%40 == 7 && n < 4000 {
				text += strings.Repeat("a line of a long message\r\n", 30_000)
			}
			flags := ""
			for _, c := range "DFRST" {
				if random.IntN(3) == 0 {
					flags += string(c)
				}
			}
			date := time.Unix(1_700_000_000+int64(n), 0)
			writeMaildirMessage(t, filepath.Join(home, from), fmt.Sprintf("%d.M%04d.host:2,%s", date.Unix(), n, flags), text, date)
			want[to] = append(want[to], keptMessage{text, flags, date.Unix()})
		}
	}
	if os.Getuid() == 0 {
		if out, err := exec.Command("chown", "-R", "65534:65534", filepath.Join(d.Dir, "mail")).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", "imap", "--data", i.Dir, "--host", "127.0.0.1", "--port", strconv.Itoa(d.Port), "--security", "none", "--user", "ann", "--password-file", password, "--to", "ann@boxes.test"}
	if in := timedTransfer(i, 0, args...); in.Messages != n || in.Imported != n || in.Failed != 0 || in.Folders != len(folders) {
		t.Fatalf("%+v", in)
	}
	if in := transfer(t, 0, args...); in.Skipped != n || in.Imported != 0 || in.Bytes != 0 {
		t.Errorf("%+v", in)
	}

	// By API, into another mailbox.
	type importJob struct {
		rig.Job
		Result *imported
	}
	ask := func(password string) (job importJob) {
		t.Helper()
		i.Want(202, "POST", "/v1/email-users/"+bob+"/import", map[string]any{"imap": map[string]any{
			"host": "127.0.0.1", "port": d.Port, "security": "none", "username": "ann", "password": password,
		}}, &job)
		for job.Status == "queued" || job.Status == "in_progress" { // of so many messages it may take minutes
			i.Want(200, "GET", "/v1/jobs/"+job.JobID+"?wait=20", nil, &job)
		}
		return job
	}
	if end := ask("secret"); end.Status != "completed" || end.Result == nil || end.Result.Imported != n || end.Result.Failed != 0 {
		t.Errorf("import_messages: %+v", end)
	}
	if end := ask("secret"); end.Status != "completed" || end.Result == nil || end.Result.Skipped != n || end.Result.Imported != 0 {
		t.Errorf("import_messages again: %+v", end)
	}
	if end := ask("wrong"); end.Status != "error" || end.Error == nil || end.Error.Code != "upstream_error" {
		t.Errorf("import_messages with a wrong password: %+v", end)
	}
	for _, name := range []string{"ann", "bob"} {
		out := filepath.Join(t.TempDir(), name)
		transfer(t, 0, "export", "maildir", "--data", i.Dir, "--to", out, "--from", name+"@boxes.test")
		got := readMaildir(t, filepath.Join(out, name+"@boxes.test"))
		for folder, list := range want {
			if !slices.Equal(got[folder], list) {
				t.Errorf("folder %q of %s: %d messages, want %d as they were", folder, name, len(got[folder]), len(list))
			}
		}
	}
	if err := os.WriteFile(password, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := rig.Run(t, args...); code != 1 {
		t.Errorf("a wrong password: %d %s", code, text)
	}
}

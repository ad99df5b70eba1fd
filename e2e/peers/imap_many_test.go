package peers

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestIMAPSyncOfHundreds has mbsync and offlineimap bring together a tree and a mailbox of 300
// messages after each side has marked, deleted, moved and added some. Both must then be what the
// changes make of them, and one more run must change neither.
func TestIMAPSyncOfHundreds(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(c *rig.MailClient, near maildir, home string) (config string, args []string){
		"mbsync": func(c *rig.MailClient, near maildir, home string) (string, []string) {
			return mbsyncConfig(c, near), []string{"-a"}
		},
		"offlineimap": func(c *rig.MailClient, near maildir, home string) (string, []string) {
			return offlineimapConfig(c, near, home), []string{"-o", "-u", "quiet"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, home := rig.Peer(t, name), t.TempDir()
			c, near := startMailClient(t, name), maildir{t, filepath.Join(t.TempDir(), "mail")}
			near.must(os.MkdirAll(near.dir, 0o700))
			config, args := configure(c, near, home)
			rc := filepath.Join(home, "rc")
			near.must(os.WriteFile(rc, []byte(config), 0o600))
			sync := func() { t.Helper(); runTool(c, home, append([]string{program, "-c", rc}, args...)...) }

			var subjects []string
			for i := range 300 {
				subjects = append(subjects, fmt.Sprintf("m%03d", i))
			}
			c.Put("INBOX", subjects...)
			c.Put("Work", "plan")
			sync()
			near.holds("INBOX", subjects...)
			want := changeBothSides(c, near, subjects)
			sync()
			sync() // what came from one side in the first run is known on both in the second
			holdsOnBothSides(c, near, want)
			sync()
			holdsOnBothSides(c, near, want)
		})
	}
}

// changeBothSides changes nine of ten messages, each on one side, and gives what both must have
// then: by folder and subject, the letters of the flags.
func changeBothSides(c *rig.MailClient, near maildir, subjects []string) map[string]map[string]string {
	inbox, work := map[string]string{}, map[string]string{"plan": ""}
	files := near.letters("INBOX")
	mark := func(subject, flags string) {
		base, _, _ := strings.Cut(filepath.Base(files[subject]), ":2,")
		near.must(os.Rename(files[subject], filepath.Join(near.dir, "INBOX", "cur", base+":2,"+flags)))
	}
	var commands, added []string
	for i, s := range subjects {
		uid := i + 1
		inbox[s] = ""
		switch i % 10 {
		case 0:
			mark(s, "S")
			inbox[s] = "S"
		case 1:
			mark(s, "FRS")
			inbox[s] = "FRS"
		case 2:
			near.must(os.Remove(files[s]))
			delete(inbox, s)
		case 3: // a move, as Maildir has it
			near.must(os.Remove(files[s]))
			near.drop("Work", s)
			delete(inbox, s)
			work[s] = ""
		case 4:
			near.drop("INBOX", "near"+s)
			inbox["near"+s] = ""
		case 5:
			commands = append(commands, fmt.Sprintf(`UID STORE %d +FLAGS.SILENT (\Seen)`, uid))
			inbox[s] = "S"
		case 6:
			commands = append(commands, fmt.Sprintf(`UID STORE %d FLAGS.SILENT (\Flagged \Answered)`, uid))
			inbox[s] = "FR"
		case 7:
			commands = append(commands, fmt.Sprintf(`UID STORE %d +FLAGS.SILENT (\Deleted)`, uid))
			delete(inbox, s)
		case 8:
			commands = append(commands, fmt.Sprintf("UID MOVE %d Work", uid))
			delete(inbox, s)
			work[s] = ""
		case 9:
			added = append(added, "far"+s)
			inbox["far"+s] = ""
		}
	}
	c.Change("INBOX", append(commands, "EXPUNGE")...)
	c.Put("INBOX", added...)
	return map[string]map[string]string{"INBOX": inbox, "Work": work}
}

// holdsOnBothSides demands what changeBothSides gave.
func holdsOnBothSides(c *rig.MailClient, near maildir, want map[string]map[string]string) {
	c.T.Helper()
	letters := map[string]string{`\Flagged`: "F", `\Answered`: "R", `\Seen`: "S"}
	mail := mail(c)
	for folder, messages := range want {
		var all []string
		for subject, flags := range messages {
			all = append(all, strings.TrimSpace(subject+" "+flags))
		}
		near.holds(folder, all...)
		got := map[string]string{}
		for _, m := range mail[folder] {
			subject, flags, _ := strings.Cut(m, " ")
			var text []string
			for _, f := range strings.Fields(flags) {
				text = append(text, letters[f])
			}
			slices.Sort(text)
			got[subject] = strings.Join(text, "")
		}
		if len(mail[folder]) != len(messages) || !maps.Equal(got, messages) {
			c.T.Fatalf("far, %s has %v, want %v", folder, mail[folder], messages)
		}
	}
}

// objectsWithImapflow: a client reads the ids that the API gives, and follows them.
func objectsWithImapflow(t *testing.T, node, dir string) {
	c := startMailClient(t, "imapflow")
	c.Put("INBOX", "one", "two", "three", "four", "five")
	type message struct {
		UID      string `json:"uid"`
		EmailID  string `json:"email_id"`
		ThreadID string `json:"thread_id"`
	}
	var page struct{ Data []message }
	c.Want(200, "GET", "/v1/email-users/"+c.Box+"/inbox", nil, &page)
	slices.SortFunc(page.Data, func(a, b message) int { return strings.Compare(a.UID, b.UID) })
	var read struct {
		Folder, Made string
		Messages     []message
	}
	if err := json.Unmarshal([]byte(runTool(c, dir, node, "imapflow_objects.mjs", c.Host, c.Port, rig.AnnsAddress, rig.AnnsPassword)), &read); err != nil {
		t.Fatal(err)
	}
	if len(page.Data) != 5 || page.Data[0].EmailID == "" || !slices.Equal(read.Messages, page.Data) {
		t.Errorf("read %v, the API has %v", read.Messages, page.Data)
	}
	var folders struct{ Data []struct{ ID, Name string } }
	c.Want(200, "GET", "/v1/email-users/"+c.Box+"/folders", nil, &folders)
	ids := map[string]string{}
	for _, f := range folders.Data {
		ids[f.Name] = f.ID
	}
	if read.Folder == "" || ids["INBOX"] != read.Folder || ids["Work"] != read.Made {
		t.Errorf("read %s and %s, the API has %v", read.Folder, read.Made, ids)
	}
}

package imapd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

// TestDamagedMessageIsNotShown: of three messages the disk has changed one byte of the second. The
// others are shown and found, and that one is named and never shown.
func TestDamagedMessageIsNotShown(t *testing.T) {
	h := serve(t, nil)
	for _, subject := range []string{"first", "second", "third"} {
		h.put(t, "INBOX", letter(subject)+"this is the "+subject+" text\r\n", 0)
	}
	rot(t, h.Core.Store.Dir(), "the second text")
	defer rot(t, h.Core.Store.Dir(), "The second text") // for the check when the store is closed
	c := h.login(t)
	c.ok("SELECT INBOX")
	lines := strings.Join(c.expect("NO [CORRUPTION] Messages that are damaged on the server's disk were left out: UID 2", "FETCH 1:* BODY.PEEK[TEXT]"), "\n")
	if !strings.Contains(lines, "the first text") || !strings.Contains(lines, "the third text") || strings.Contains(lines, "second text") {
		t.Errorf("the answer:\n%s", lines)
	}
	c.has(c.ok("SEARCH BODY text"), "* SEARCH 1 3")
	c.has(c.ok("FETCH 2 (FLAGS)"), `* 2 FETCH (UID 2 FLAGS ())`)
	who := core.Actor{AccountID: h.Owner.AccountID, AccountNum: h.user.AccountNum, Permissions: []string{"admin"}}
	_, err := h.Inbox.GetMessage(t.Context(), who, inbox.MessageIn{UserID: h.user.MailboxID, MessageID: "2"})
	if e := core.Explain(err); err == nil || !strings.Contains(e.Message, "mailstead check") {
		t.Errorf("by the API: %v", err)
	}
}

// rot changes a byte of a text in one of the segments.
func rot(t *testing.T, dir, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(data, []byte(text)); at >= 0 {
			data[at] ^= 0x20
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%q is in no segment", text)
}

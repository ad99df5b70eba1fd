package imapd

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// connect logs in with go-imap's client, to test the commands that its users send.
func connect(t testing.TB, h *host, o *imapclient.Options) *imapclient.Client {
	t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := imapclient.New(conn, o)
	t.Cleanup(func() { c.Close() })
	if err := c.Login(email, password).Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

const mixed = "From: Bob <bob@example.org>\nTo: ann@example.test\nSubject: mixed\nMIME-Version: 1.0\n" +
	"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n" +
	"Gr=C3=BC=C3=9Fe\n--b\nContent-Type: application/octet-stream\nContent-Transfer-Encoding: base64\n" +
	"Content-Disposition: attachment; filename*=utf-8''%C3%BC.bin\n\nAAECAwQ=\n--b\nContent-Type: message/rfc822\n\n" +
	"From: carl@example.net\nSubject: inner\nContent-Type: multipart/alternative; boundary=c\n\n--c\n\nplain\n--c\nContent-Type: text/html\n\n<p>\n--c--\n\n--b--\n"

func TestClientFetchesParts(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", mixed, 0)
	c := connect(t, h, nil)
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	raw := strings.ReplaceAll(mixed, "\n", "\r\n")
	section := func(part []int, s imap.PartSpecifier, p *imap.SectionPartial) *imap.FetchItemBodySection {
		return &imap.FetchItemBodySection{Part: part, Specifier: s, Partial: p, Peek: true}
	}
	for _, tc := range []struct {
		item *imap.FetchItemBodySection
		want string
	}{
		{section(nil, "", nil), raw},
		{section(nil, "", &imap.SectionPartial{Offset: 6, Size: 3}), "Bob"},
		{section(nil, "", &imap.SectionPartial{Offset: 1 << 40, Size: 1 << 62}), ""},
		{section(nil, "HEADER", nil), raw[:strings.Index(raw, "--b\r\n")]},
		{section([]int{1}, "", nil), "Gr=C3=BC=C3=9Fe"},
		{section([]int{1}, "MIME", nil), "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"},
		{section([]int{1}, "HEADER", nil), ""},
		{section([]int{3}, "HEADER", nil), "From: carl@example.net\r\nSubject: inner\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n"},
		{section([]int{3, 1}, "", nil), "plain"},
		{section([]int{3, 2}, "MIME", nil), "Content-Type: text/html\r\n\r\n"},
		{section([]int{3, 2, 1}, "", nil), ""},
		{section([]int{4}, "", nil), ""},
	} {
		msgs, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{tc.item}}).Collect()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(msgs[0].BodySection[0].Bytes); got != tc.want {
			t.Errorf("BODY[%v %s %v]: %q, want %q", tc.item.Part, tc.item.Specifier, tc.item.Partial, got, tc.want)
		}
	}
	options := &imap.FetchOptions{
		BodyStructure:     &imap.FetchItemBodyStructure{Extended: true},
		BinarySection:     []*imap.FetchItemBinarySection{{Part: []int{2}, Peek: true}},
		BinarySectionSize: []*imap.FetchItemBinarySectionSize{{Part: []int{1}}},
	}
	msgs, err := c.Fetch(imap.SeqSetNum(1), options).Collect()
	if err != nil {
		t.Fatal(err)
	}
	if got := msgs[0].BinarySection[0].Bytes; !bytes.Equal(got, []byte{0, 1, 2, 3, 4}) {
		t.Errorf("BINARY: %v", got)
	}
	if got := msgs[0].BinarySectionSize[0].Size; got != 7 {
		t.Errorf("BINARY.SIZE: %d", got)
	}
	var types []string
	msgs[0].BodyStructure.Walk(func(path []int, part imap.BodyStructure) bool {
		types = append(types, part.MediaType())
		if single, ok := part.(*imap.BodyStructureSinglePart); ok && single.Filename() != "" && single.Filename() != "ü.bin" {
			t.Errorf("file name %q", single.Filename())
		}
		return true
	})
	if want := []string{"multipart/mixed", "text/plain", "application/octet-stream", "message/rfc822"}; !slices.Equal(types[:min(4, len(types))], want) {
		t.Errorf("structure: %v", types)
	}
}

func TestClientIdlesAndMoves(t *testing.T) {
	h := serve(t, nil)
	exists := make(chan uint32, 10)
	c := connect(t, h, &imapclient.Options{UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Mailbox: func(data *imapclient.UnilateralDataMailbox) {
			if data.NumMessages != nil {
				exists <- *data.NumMessages
			}
		},
	}})
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	idle, err := c.Idle()
	if err != nil {
		t.Fatal(err)
	}
	h.put(t, "INBOX", letter("one"), 0)
	select {
	case n := <-exists:
		if n != 1 {
			t.Errorf("EXISTS %d", n)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("IDLE tells nothing")
	}
	if err := idle.Close(); err != nil {
		t.Fatal(err)
	}
	if err := idle.Wait(); err != nil {
		t.Fatal(err)
	}
	moved, err := c.Move(imap.UIDSetNum(1), "Archive").Wait()
	if err != nil || moved.SourceUIDs.String() != "1" {
		t.Fatalf("MOVE: %+v, %v", moved, err)
	}
	lists, err := c.List("", "*", &imap.ListOptions{ReturnStatus: &imap.StatusOptions{NumMessages: true, Size: true}}).Collect()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		if want := l.Mailbox == "Archive"; (*l.Status.NumMessages == 1) != want {
			t.Errorf("%s has %d messages", l.Mailbox, *l.Status.NumMessages)
		}
	}
}

func TestLargeMessageStreams(t *testing.T) {
	h := serve(t, nil)
	c := connect(t, h, nil)
	want := []byte("Subject: large\r\n\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 150_000))
	a := c.Append("INBOX", int64(len(want)), nil)
	if _, err := a.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	fetch := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{{Peek: true}}})
	body := fetch.Next().Next().(imapclient.FetchItemDataBodySection)
	got, err := io.ReadAll(body.Literal)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(want), err)
	}
	if err := fetch.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestQuotaRefusesAppendAndCopy(t *testing.T) {
	h := serve(t, nil)
	quota := int64(250)
	who := core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
	_, err := h.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: h.user.MailboxID, QuotaBytes: core.Opt[int64]{Set: true, Value: quota}})
	if err != nil {
		t.Fatal(err)
	}
	h.put(t, "INBOX", letter("one"), 0)
	h.put(t, "INBOX", letter("two"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	message := strings.ReplaceAll(letter("three"), "\n", "\r\n")
	c.n++
	c.send("q APPEND INBOX {" + itoa(len(message)) + "+}\r\n" + message + "\r\n")
	if got := c.until("q"); !strings.HasPrefix(got[0], "NO [OVERQUOTA]") {
		t.Errorf("APPEND: %q", got)
	}
	c.expect("NO [OVERQUOTA]", "COPY 1 Archive")
	c.ok("MOVE 1 Archive")
}

// TestFullStorageRefusesAppendAndCopy: the storage of the account counts like the quota of the
// mailbox, whatever that is.
func TestFullStorageRefusesAppendAndCopy(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	h.put(t, "INBOX", letter("two"), 0)
	set := func(limit int64) {
		t.Helper()
		h.ChangeAccount(t, h.Owner.AccountID, func(a *servicetest.Account) { a.Limits.StorageBytes = &limit })
	}
	set(250)
	c := h.login(t)
	c.ok("SELECT INBOX")
	message := strings.ReplaceAll(letter("three"), "\n", "\r\n")
	c.n++
	c.send("q APPEND INBOX {" + itoa(len(message)) + "+}\r\n" + message + "\r\n")
	if got := c.until("q"); !strings.HasPrefix(got[0], "NO [OVERQUOTA]") {
		t.Errorf("APPEND: %q", got)
	}
	c.expect("NO [OVERQUOTA]", "COPY 1 Archive")
	c.ok("MOVE 1 Archive")
	set(0) // no limit
	c.ok("COPY 1 Archive")
}

// TestMbsync mirrors the mailbox with Debian's isync, both ways.
func TestMbsync(t *testing.T) {
	program, err := exec.LookPath("mbsync")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	h := serve(t, nil)
	for _, s := range []string{"one", "two", "three"} {
		h.put(t, "INBOX", letter(s), 0)
	}
	h.put(t, "Sent", mixed, inbox.FlagSeen)
	dir := t.TempDir()
	rc := filepath.Join(dir, "mbsyncrc")
	host, port, _ := net.SplitHostPort(h.addr)
	config := "IMAPAccount a\nHost " + host + "\nPort " + port + "\nUser " + email + "\nPass \"" + password + "\"\nSSLType None\nAuthMechs LOGIN\n\n" +
		"IMAPStore far\nAccount a\n\nMaildirStore near\nPath " + dir + "/mail/\nInbox " + dir + "/mail/INBOX\nSubFolders Verbatim\n\n" +
		"Channel c\nFar :far:\nNear :near:\nPatterns *\nCreate Both\nRemove Both\nExpunge Both\nSyncState *\nCopyArrivalDate yes\n"
	if err := os.WriteFile(rc, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	sync := func() {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), program, "-c", rc, "-a").CombinedOutput(); err != nil {
			t.Fatalf("mbsync: %v\n%s", err, out)
		}
	}
	if err := os.MkdirAll(dir+"/mail", 0o700); err != nil {
		t.Fatal(err)
	}
	sync()
	files := func(folder string) []string {
		list, _ := filepath.Glob(dir + "/mail/" + folder + "/*/*")
		return list
	}
	if got := files("INBOX"); len(got) != 3 {
		t.Fatalf("INBOX came as %v", got)
	}
	got, err := os.ReadFile(files("Sent")[0])
	if text := regexp.MustCompile("X-TUID: .*\n").ReplaceAllString(string(got), ""); err != nil || text != mixed {
		t.Errorf("Sent came as %q, %v", got, err)
	}
	// Near: one is read and flagged, one is new, one is deleted.
	box := files("INBOX")
	name := filepath.Base(box[0])
	cut, _, _ := strings.Cut(name, ":2,")
	for _, err := range []error{
		os.Rename(box[0], dir+"/mail/INBOX/cur/"+cut+":2,FS"),
		os.Remove(box[1]),
		os.WriteFile(dir+"/mail/INBOX/new/1.new.host", []byte(letter("near")), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Far: one more message.
	h.put(t, "INBOX", letter("far"), inbox.FlagAnswered)
	sync()
	sync()
	if got := files("INBOX"); len(got) != 4 {
		t.Errorf("INBOX is %v", got)
	}
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.has(c.ok("SEARCH RETURN (COUNT) ALL"), `* ESEARCH (TAG "a`+itoa(c.n)+`") COUNT 4`)
	c.has(c.ok("SEARCH RETURN (COUNT) FLAGGED SEEN"), `* ESEARCH (TAG "a`+itoa(c.n)+`") COUNT 1`)
	c.has(c.ok("SEARCH RETURN (COUNT) SUBJECT near"), `* ESEARCH (TAG "a`+itoa(c.n)+`") COUNT 1`)
}

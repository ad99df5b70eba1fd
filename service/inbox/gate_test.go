package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// A key is a token or a password with a policy that taints.
type key struct {
	name string
	who  core.Actor       // of a token; its TokenID is "" for a password
	user core.MailboxUser // of a password
	id   string
}

func (k *key) api() bool   { return k.who.TokenID != "" }
func (k *key) reads() bool { return k.api() || k.user.MailboxID != "" }

// A gateRig is an account whose keys all taint, with groups, and a mailbox that sends its mail on.
type gateRig struct {
	*waitRig
	keys []*key
	seq  int
}

var gatePolicy = agents.Policy{SendPolicy: agents.SendPolicy{Send: "allow"}, Taint: true, TrustedSenders: []string{"boss@far.test"}}

func newGateRig(t *testing.T) *gateRig {
	r := &gateRig{waitRig: newWaitRig(t, core.Config{Settings: core.Settings{Outbound: "capture"}})}
	var d *store.Domain
	r.Update(func(tx *store.Tx) (err error) {
		d, err = store.Domains.Get(tx, r.ann.DomainID)
		return err
	})
	for _, mb := range []*store.Mailbox{r.ann, r.bob} {
		r.Update(func(tx *store.Tx) error {
			return tx.CreateFolder(&store.Folder{Mailbox: mb.Num, Name: "Drafts", SpecialUse: `\Drafts`})
		})
	}
	fwd := r.AddMailbox(d, "fwd", func(mb *store.Mailbox) { mb.ForwardTo = "drop@evil.test" })
	group := func(email string, members ...mailboxes.NewMember) {
		if _, err := r.Svc.Mailboxes.CreateGroup(t.Context(), r.who, mailboxes.CreateGroupIn{Email: email, Members: members, SendAs: "members"}); err != nil {
			t.Fatal(err)
		}
	}
	group("team@example.test", mailboxes.NewMember{UserID: r.ann.ID}, mailboxes.NewMember{UserID: r.bob.ID}, mailboxes.NewMember{Email: "drop@evil.test"})
	group("nest@example.test", mailboxes.NewMember{UserID: r.ann.ID}, mailboxes.NewMember{Email: "team@example.test"})
	group("inside@example.test", mailboxes.NewMember{UserID: r.ann.ID}, mailboxes.NewMember{UserID: fwd.ID})

	token := func(name string, only ...string) {
		in := accounts.CreateTokenIn{Name: name, Policy: &gatePolicy}
		if len(only) > 0 {
			in.Mailboxes = core.Opt[[]string]{Set: true, Value: only}
		}
		made, err := r.Svc.Accounts.CreateToken(t.Context(), r.who, in)
		if err != nil {
			t.Fatal(err)
		}
		r.keys = append(r.keys, &key{name: name, who: r.authenticate(made.Value), id: made.ID})
	}
	logIn := func(name string, made *mailboxes.CredentialCreated, err error) {
		if err != nil {
			t.Fatal(err)
		}
		u, err := r.Svc.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: core.ProtocolSMTP, Username: made.Username, Password: made.Password, IP: "192.0.2.7"})
		if err != nil {
			t.Fatal(err)
		}
		r.keys = append(r.keys, &key{name: name, user: u, id: made.ID})
		if made.Token != nil {
			who := r.authenticate(*made.Token)
			r.keys = append(r.keys, &key{name: name + "'s token", who: who, id: who.TokenID})
		}
	}
	token("limited", r.ann.ID)
	token("every")
	made, err := r.Svc.Mailboxes.CreateCredential(t.Context(), r.who, mailboxes.CreateCredentialIn{UserID: r.ann.ID, Name: "phone", Protocols: &[]string{"imap", "smtp", "api"}, Policy: &gatePolicy})
	logIn("phone", made, err)
	made, err = r.Svc.Mailboxes.CreateSMTPCredential(t.Context(), r.who, mailboxes.CreateSMTPCredentialIn{DomainID: d.ID, Name: "shop", Policy: &gatePolicy})
	logIn("shop", made, err)
	return r
}

// clear clears a key's taint.
func (r *gateRig) clear(k *key) {
	h := agents.Holder{TokenID: k.id}
	if !k.api() {
		h = agents.Holder{CredentialID: k.id}
	}
	r.Update(func(tx *store.Tx) error { return h.ClearReading(tx) })
}

// arrives delivers a message to a mailbox and returns its UID.
func (r *gateRig) arrives(mb *store.Mailbox, from string, cc ...string) uint32 {
	r.T.Helper()
	r.seq++
	text := fmt.Sprintf("From: %s\r\nTo: %s\r\nCc: %s\r\nMessage-ID: <%d@far.test>\r\nSubject: letter %d\r\n\r\nHello.\r\n", from, mb.Email, strings.Join(cc, ", "), r.seq, r.seq)
	if err := r.Receive(from, text, mb.Email); err != nil {
		r.T.Fatal(err)
	}
	r.words(mb, "INBOX", fmt.Sprint("letter ", r.seq))
	all := r.Folder(mb, "INBOX")
	return all[len(all)-1].UID
}

// read lets a key read a message.
func (r *gateRig) read(k *key, mb *store.Mailbox, folder string, uid uint32) error {
	if k.api() {
		_, err := r.Svc.Inbox.GetMessage(r.T.Context(), k.who, inbox.MessageIn{UserID: mb.ID, MessageID: core.UIDText(uid), Folder: folder})
		return err
	}
	f := uint32(store.InboxID)
	if folder != "INBOX" {
		sel, err := r.Svc.Inbox.SelectFolder(r.T.Context(), k.user, folder)
		if err != nil {
			return err
		}
		f = sel.Folder.ID
	}
	return r.Svc.Inbox.ReadMessages(r.T.Context(), k.user, f, []uint32{uid})
}

// send sends a message from a mailbox with a key, through one interface: send, draft or smtp.
func (r *gateRig) send(k *key, mb *store.Mailbox, door string, in submit.SendEmailIn) error {
	in.UserID, in.Subject, in.Text = mb.ID, "s", "t"
	switch door {
	case "send":
		_, err := r.Svc.Submit.SendEmail(r.T.Context(), k.who, in)
		return err
	case "draft":
		draft, err := r.Svc.Submit.CreateDraft(r.T.Context(), k.who, submit.CreateDraftIn{SendEmailIn: in})
		if err == nil {
			_, err = r.Svc.Submit.SendDraft(r.T.Context(), k.who, submit.DraftIn{UserID: mb.ID, UID: draft.UID})
		}
		return err
	}
	text := "From: " + mb.Email + "\r\nSubject: s\r\n"
	var to []outbound.Rcpt
	for name, list := range map[string]submit.Texts{"To": in.To, "Cc": in.Cc, "": in.Bcc} {
		for _, email := range list {
			to = append(to, outbound.Rcpt{Address: email})
		}
		if name != "" && len(list) > 0 {
			text += name + ": " + strings.Join(list, ", ") + "\r\n"
		}
	}
	if in.InReplyTo != "" {
		text += "In-Reply-To: " + in.InReplyTo + "\r\n"
	}
	body := r.Spool(text + "\r\nt\r\n")
	defer body.Close()
	_, err := r.Svc.Submit.Submit(r.T.Context(), k.user, submit.Submission{From: mb.Email, To: to, Body: body})
	return err
}

func isTainted(err error) bool { return servicetest.HasCode(err, "tainted") }

// TestSixtyWaysOut: whatever two keys of one mailbox read and pass to each other, through any
// interface, their mail reaches only people of every message that either has read.
func TestSixtyWaysOut(t *testing.T) {
	r := newGateRig(t)
	first := r.arrives(r.ann, "thief@evil.test", "mate@far.test")
	others := map[string]uint32{"a stranger's": r.arrives(r.ann, "other@far.test", "mate@far.test"), "a trusted sender's": r.arrives(r.ann, "boss@far.test", "mate@far.test")}
	to := func(list ...string) submit.SendEmailIn { return submit.SendEmailIn{To: list} }
	carries := []struct {
		name string
		in   submit.SendEmailIn
		bob  bool // from bob's mailbox
	}{
		{"To", to("thief@evil.test"), false},
		{"Cc", submit.SendEmailIn{To: submit.Texts{"mate@far.test"}, Cc: submit.Texts{"thief@evil.test"}}, false},
		{"Bcc", submit.SendEmailIn{To: submit.Texts{"mate@far.test"}, Bcc: submit.Texts{"drop@evil.test"}}, false},
		{"an answer", submit.SendEmailIn{To: submit.Texts{"thief@evil.test"}, InReplyTo: "<1@far.test>"}, false},
		{"a tag", to("mate+drop@far.test"), false},
		{"a group", to("team@example.test"), false},
		{"a group in a group", to("nest@example.test"), false},
		{"a group of mailboxes that send on", to("inside@example.test"), false},
		{"a mailbox that sends on", to("fwd@example.test"), false},
		{"a neighbour", to("bob@example.test"), false},
		{"another mailbox", to("mate@far.test"), true},
		{"another mailbox, to a stranger", to("drop@evil.test"), true},
	}
	ways, tries := map[string]bool{}, 0
	for _, reader := range r.keys {
		for _, sender := range r.keys {
			if !reader.reads() {
				continue
			}
			for what, other := range others {
				for _, k := range r.keys {
					r.clear(k)
				}
				own := sender
				if !own.reads() {
					own = r.keys[0] // which taints those who share the domain
				}
				for _, err := range []error{r.read(own, r.ann, "INBOX", first), r.read(reader, r.ann, "INBOX", other)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				doors := []string{"send", "draft"}
				if !sender.api() {
					doors = []string{"smtp"}
				}
				for _, door := range doors {
					for _, c := range carries {
						mb := r.ann
						if c.bob {
							mb = r.bob
						}
						ways[what+door+c.name] = true
						tries++
						err := r.send(sender, mb, door, c.in)
						if alone := c.bob && (servicetest.HasCode(err, "not_found") || sender.user.MailboxID != ""); !isTainted(err) && !alone { // it cannot see bob at all
							t.Errorf("%s reads %s, %s sends by %s, %s: %v", reader.name, what, sender.name, door, c.name, err)
						}
					}
					if err := r.send(sender, r.ann, door, to("mate@far.test")); err != nil {
						t.Errorf("%s reads %s, %s sends by %s to who is left: %v", reader.name, what, sender.name, door, err)
					}
				}
			}
		}
	}
	if len(ways) < 60 {
		t.Errorf("there are %d ways", len(ways))
	}
	t.Logf("%d ways, %d tries", len(ways), tries)
	r.onlyTo("mate@far.test")
}

// onlyTo checks the recipients in the sending log.
func (r *gateRig) onlyTo(emails ...string) {
	r.Update(func(tx *store.Tx) error {
		for row := range store.Outgoings.All(tx) {
			if !slices.Contains(emails, row.Recipient) {
				r.T.Errorf("it was sent to %s", row.Recipient)
			}
		}
		return nil
	})
}

// TestGateWalk performs random reads, moves, drafts, sends and clears with all keys and interfaces,
// and compares with a model of the rule.
func TestGateWalk(t *testing.T) {
	steps, err := strconv.Atoi(os.Getenv("MAILSTEAD_GATE"))
	if err != nil {
		steps = 1200
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	r := newGateRig(t)
	boxes := []*store.Mailbox{r.ann, r.bob}
	strangers := []string{"boss@far.test", "a@far.test", "b@far.test", "c@far.test"}
	members := map[string][]string{"team@example.test": {"ann@example.test", "bob@example.test", "drop@evil.test"}}
	type letter struct {
		mb      *store.Mailbox
		uid     uint32
		folder  string
		people  []string
		known   bool // its sender is trusted
		drafted bool
	}
	type model struct {
		people []string
		read   bool
		taint  *store.Mailbox
	}
	var letters []*letter
	models := map[*key]*model{}
	for _, k := range r.keys {
		models[k] = &model{}
	}
	sees := func(k *key, mb *store.Mailbox) bool { return mb == r.ann || k.name == "every" || k.name == "shop" }
	some := func(list []string, n int) (out []string) {
		for range n {
			out = append(out, list[random.IntN(len(list))])
		}
		return out
	}
	reached := func(list []string) (out []string) {
		for _, email := range list {
			out = append(append(out, email), members[email]...)
		}
		return out
	}
	folders := []string{"INBOX", "Archive", "Sent", "Trash", "Drafts", "Junk"}
	count := map[string]int{}
	for step := range steps {
		k := r.keys[random.IntN(len(r.keys))]
		m := models[k]
		mb := boxes[random.IntN(2)]
		fails := func(what string, err error, want bool) {
			t.Helper()
			if count[fmt.Sprint(what, " refused ", want)]++; isTainted(err) != want {
				t.Fatalf("step %d: %s of %s by %s: %v; refused should be %v. Model: %+v", step, what, mb.Email, k.name, err, want, *m)
			}
		}
		switch n := random.IntN(20); {
		case n == 0 && len(letters) < 80 || len(letters) < 4:
			from, cc := strangers[random.IntN(len(strangers))], some([]string{"a@far.test", "b@far.test", "c@far.test", "team@example.test", "bob@example.test"}, 1+random.IntN(3))
			l := &letter{mb: mb, folder: "INBOX", people: reached(append([]string{from, mb.Email}, cc...)), known: from == "boss@far.test"}
			l.uid = r.arrives(mb, from, cc...)
			letters = append(letters, l)
		case n == 1:
			r.clear(k)
			*m = model{}
			if k.name == "phone" { // its token with it
				*models[r.keys[slices.IndexFunc(r.keys, func(k *key) bool { return k.name == "phone's token" })]] = model{}
			}
		case n < 6: // read
			l := letters[random.IntN(len(letters))]
			mb = l.mb
			if !k.reads() || !sees(k, mb) {
				continue
			}
			if err := r.read(k, mb, l.folder, l.uid); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			count["read"]++
			for _, o := range r.keys {
				if !sees(o, mb) {
					continue
				}
				om := models[o]
				if !om.read {
					om.people = slices.Clone(l.people)
				}
				om.read = true
				om.people = slices.DeleteFunc(om.people, func(email string) bool { return !slices.Contains(l.people, email) })
				if !l.known && om.taint == nil && (o == k || o.name != "every") {
					om.taint = mb
				}
			}
		case n < 9: // move
			l := letters[random.IntN(len(letters))]
			to := folders[random.IntN(len(folders))]
			mb = l.mb
			if !k.reads() || !sees(k, mb) || to == l.folder {
				continue
			}
			refused := m.taint != nil && (l.folder == "Junk" || to != "Trash" && (l.drafted || l.folder == "Drafts"))
			var uid uint32
			var err error
			if k.api() {
				var out *inbox.MessagesMoved
				out, err = r.Svc.Inbox.BulkMoveMessages(t.Context(), k.who, inbox.BulkMoveMessagesIn{Messages: []inbox.MessageRef{{UID: core.UIDText(l.uid), Mailbox: mb.Email, Folder: l.folder}}, To: to})
				if err == nil && out.Moved == 1 {
					n, _ := strconv.ParseUint(out.Results[0].NewUID, 10, 32)
					uid = uint32(n)
				} else if err == nil {
					err = core.Errorf(out.Errors[0].Code, "%s", out.Errors[0].Error)
				}
			} else {
				sel, err2 := r.Svc.Inbox.SelectFolder(t.Context(), k.user, l.folder)
				if err2 != nil {
					t.Fatal(err2)
				}
				var out *inbox.Copied
				out, err = r.Svc.Inbox.MoveMessages(t.Context(), k.user, sel.Folder.ID, []uint32{l.uid}, to)
				if err == nil {
					uid = out.To[0]
				}
			}
			if fails("move", err, refused); err != nil {
				if !refused {
					t.Fatalf("step %d: move to %s: %v", step, to, err)
				}
				continue
			}
			l.folder, l.uid = to, uid
			l.drafted = l.drafted || to == "Drafts"
		default: // send
			if !sees(k, mb) {
				continue
			}
			list := some([]string{"a@far.test", "b@far.test", "c@far.test", "boss@far.test", "drop@evil.test", "ann@example.test", "bob@example.test", "team@example.test", "ann+x@example.test"}, 1+random.IntN(2))
			refused := false
			for _, email := range reached(list) {
				own := k.name != "shop" && (email == mb.Email || mb == r.ann && email == "ann+x@example.test")
				refused = refused || !own && !slices.Contains(m.people, email)
			}
			refused = m.taint != nil && (refused || m.taint != mb)
			door := "smtp"
			if k.api() {
				door = []string{"send", "draft"}[random.IntN(2)]
			}
			fails(door, r.send(k, mb, door, submit.SendEmailIn{To: list[:1], Cc: list[1:]}), refused)
		}
	}
	t.Logf("%d steps: %v", steps, count)
	for _, what := range []string{"send", "draft", "smtp", "move"} {
		for _, refused := range []bool{false, true} {
			if steps >= 1200 && count[fmt.Sprint(what, " refused ", refused)] == 0 {
				t.Errorf("the walk never came to %s, refused %v", what, refused)
			}
		}
	}
}

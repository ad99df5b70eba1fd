package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// calledAt finds uses of functions, methods and composite literals with these names outside tests,
// as "directory/file.go function name". A name with a directory counts only in that directory, and
// a name with a dot only with that qualifier.
func calledAt(t *testing.T, names ...string) (out []string) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../*.go", "../*/*.go", "../../*.go", "../../handlers/*.go", "../../handlers/*/*.go", "../../jobs/*.go"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	if len(files) < 100 {
		t.Fatal(len(files))
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Base(filepath.Dir(path))
		is := func(e ast.Expr) string {
			called, before := "", ""
			switch e := e.(type) {
			case *ast.Ident:
				called = e.Name
			case *ast.SelectorExpr:
				called = e.Sel.Name
				switch x := e.X.(type) {
				case *ast.SelectorExpr:
					before = x.Sel.Name
				case *ast.Ident:
					before = x.Name
				}
			}
			for _, name := range names {
				in, what, bound := strings.Cut(name, "/")
				if !bound {
					in, what = dir, name
				}
				if in == dir && (what == called || what == before+"."+called) {
					return what
				}
			}
			return ""
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				found := ""
				switch n := n.(type) {
				case *ast.CallExpr:
					found = is(n.Fun)
				case *ast.CompositeLit:
					found = is(n.Type)
				}
				if site := dir + "/" + filepath.Base(file) + " " + fn.Name.Name + " " + found; found != "" && !slices.Contains(out, site) {
					out = append(out, site)
				}
				return true
			})
		}
	}
	slices.Sort(out)
	return out
}

// listed compares the places in the source with the expected ones.
func listed(t *testing.T, got, want []string, why string) {
	t.Helper()
	for _, site := range got {
		if !slices.Contains(want, site) {
			t.Errorf("%s is new: %s", site, why)
		}
	}
	for _, site := range want {
		if !slices.Contains(got, site) {
			t.Errorf("%s is gone", site)
		}
	}
}

// TestProgramsSendThroughTheGate: rows of the sending log are only created for submissions of a
// person or program, for messages held for approval, and by SendAutomatic; all other code changes
// existing rows.
func TestProgramsSendThroughTheGate(t *testing.T) {
	listed(t, calledAt(t, "Outgoing", "NewRow", "Enqueue", "outbound/addDelivery", "enqueueLater", "holdForApproval", "deliverArgs", "putWithJob", "outbound/newJob"), []string{
		"outbound/enqueue.go NewRow Outgoing", // the one place that makes rows
		"outbound/enqueue.go Enqueue NewRow", "outbound/enqueue.go enqueueLater NewRow", "outbound/enqueue.go enqueueNextRecipients NewRow", "submit/approvals.go holdForApproval NewRow",
		"outbound/automatic.go SendAutomatic Enqueue",                                             // the gate
		"submit/submit.go queueOrHold Enqueue", "submit/submit.go holdSubmission holdForApproval", // a person, or a program of one
		"submit/auto_messages.go holdAutoMessage holdForApproval", // what a person must approve
		"outbound/enqueue.go Enqueue addDelivery", "outbound/enqueue.go Enqueue enqueueLater", "outbound/enqueue.go enqueueNextRecipients addDelivery",
		"outbound/enqueue.go addDelivery putWithJob", "outbound/schedule.go PutRowWithJob putWithJob", "outbound/enqueue.go putWithJob newJob",
		"outbound/routes.go newJob deliverArgs",                                                                                                // the one place that plans deliveries
		"submit/submit.go MaySendTo Outgoing", "outbound/sending_log.go statusIndex Outgoing", "servicetest/installation_help.go Row Outgoing", // which nobody keeps
		"outbound/waiting.go rerouteJob newJob", // another way for a job that is there
	}, "what a program starts goes through SendAutomatic")

	listed(t, calledAt(t, "Outgoings.Put", "PutRowWithJob"), []string{
		"outbound/enqueue.go addDelivery Outgoings.Put", "outbound/enqueue.go putWithJob Outgoings.Put", "submit/approvals.go holdForApproval Outgoings.Put", // new rows
		"submit/approvals.go queueApproved PutRowWithJob", "outbound/hold.go holdRow PutRowWithJob", "outbound/hold.go settleHeldRow PutRowWithJob", // rows that waited
		"outbound/schedule.go UpdateScheduledMessage PutRowWithJob",
		"outbound/delivery.go CloseRow Outgoings.Put", "outbound/delivery.go deliveryParked Outgoings.Put", "outbound/delivery.go scheduleRetry Outgoings.Put", "outbound/delivery.go waitUntilDue Outgoings.Put",
		"outbound/failures.go RecordBounce Outgoings.Put", "outbound/failures.go RecordComplaint Outgoings.Put", "outbound/hold.go resumeWaitingMail Outgoings.Put", "outbound/hold.go putHeldRow Outgoings.Put",
		"outbound/hold.go settleHeldRows Outgoings.Put", "outbound/hold.go deferWhilePaused Outgoings.Put", "outbound/sending_log.go RetryMessage Outgoings.Put", "outbound/waiting.go cancelAfterAttempt Outgoings.Put",
		"outbound/waiting.go reschedule Outgoings.Put", "outbound/waiting.go withNextTurns Outgoings.Put", "outbound/waiting.go rerouteJob Outgoings.Put",
	}, "it is to change rows that are there, or to go through SendAutomatic")
}

// A gateWorld is an installation in which programs send mail.
type gateWorld struct {
	*servicetest.Installation
	log     *servicetest.Log
	d, also *store.Domain
	ann     *store.Mailbox
	path    *gatePath
}

// A gatePath is one way in which the server sends automatic mail. by names the limits that it
// counts against besides the target's: of the mailbox, its domain and its account, or the limit of
// the kind for an account.
type gatePath struct {
	name  string
	sites []string // places in the source
	kind  string
	to    string // target address without its tag
	by    string // "sender", "domain" (one without a mailbox) or "account"
	begin func(w *gateWorld)
	// drive causes the mail once, for the n-th time.
	drive func(w *gateWorld, n int)
}

// receive delivers a message from a proven sender.
func (w *gateWorld) receive(from string, n int, to ...string) {
	w.T.Helper()
	if err := w.Installation.Receive(from, fmt.Sprintf(ruled, to[0], "s", fmt.Sprint("n", n)), to...); err != nil {
		w.T.Fatal(err)
	}
}

// change writes the mailbox or a domain.
func (w *gateWorld) change(fn func()) {
	w.T.Helper()
	w.Update(func(tx *store.Tx) error {
		fn()
		for _, d := range []*store.Domain{w.d, w.also} {
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
		}
		return store.Mailboxes.Put(tx, w.ann)
	})
}

func (w *gateWorld) must(_ any, err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// accountOf returns the id of the account of an owner.
func (w *gateWorld) accountOf(owner string) (id string) {
	w.T.Helper()
	err := w.St.View(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, owner)
		if err == nil {
			id = a.ID
		}
		return err
	})
	w.must(nil, err)
	return id
}

// unlessLimited fails on errors other than that of a message above its limit.
func (w *gateWorld) unlessLimited(err error) {
	w.T.Helper()
	if err != nil && !servicetest.HasCode(err, "rate_limited") {
		w.T.Fatal(err)
	}
}

const gatePerson = "p+%d@far.test"

// gatePaths are all ways in which the server sends automatic mail.
var gatePaths = []gatePath{
	{
		name: "vacation", sites: []string{"inbound/automation.go writeAutoReply SendAutoMessage"}, kind: "reply", to: "p@far.test", by: "sender",
		begin: func(w *gateWorld) {
			w.must(w.Svc.Rules.SetVacation(context.Background(), servicetest.Actor(w.Account), rules.SetVacationIn{UserID: w.ann.ID, Enabled: true, Text: "away"}))
		},
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, w.ann.Email) },
	},
	{
		name: "reply of a rule", sites: []string{"inbound/automation.go writeAutoReply SendAutoMessage"}, kind: "reply", to: "p@far.test", by: "sender",
		begin: func(w *gateWorld) { addRule(w.Installation, w.ann, "", "reply I am here.") },
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, w.ann.Email) },
	},
	{
		name: "forward of a rule", sites: []string{"inbound/automation.go fileWithRules planForwards", "inbound/automation.go planForwards PlanForward", "submit/auto_messages.go forwardMessage SendAutoMessage"}, kind: "forward", to: "on@else.test", by: "sender",
		begin: func(w *gateWorld) { addRule(w.Installation, w.ann, "", "forward on@else.test") },
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, w.ann.Email) },
	},
	{
		name: "forward_to of a mailbox", sites: []string{"inbound/receive.go deliver SendAutoMessage", "outbound/automatic.go SendAutomatic PlanForward"}, kind: "forward", to: "on@else.test", by: "sender",
		begin: func(w *gateWorld) { w.change(func() { w.ann.ForwardTo = "on@else.test" }) },
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, w.ann.Email) },
	},
	{
		name: "forward of a domain", sites: []string{"inbound/receive.go deliver SendAutoMessage"}, kind: "forward", to: "on@else.test", by: "domain",
		begin: func(w *gateWorld) { w.change(func() { w.d.Forward = "on@else.test" }) },
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, "nobody@example.test") },
	},
	{
		name: "catch-all elsewhere", sites: []string{"inbound/receive.go deliver SendAutoMessage"}, kind: "forward", to: "on@else.test", by: "domain",
		begin: func(w *gateWorld) { w.change(func() { w.d.CatchAll = "on@else.test" }) },
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, "nobody@example.test") },
	},
	{
		name: "member of a group elsewhere", sites: []string{"inbound/receive.go deliver SendAutoMessage"}, kind: "forward", to: "on@else.test", by: "domain",
		begin: func(w *gateWorld) {
			w.must(w.Svc.Mailboxes.CreateGroup(context.Background(), servicetest.Actor(w.Account), mailboxes.CreateGroupIn{Email: "all@example.test", Members: []mailboxes.NewMember{{Email: "on@else.test"}, {UserID: w.ann.ID}}}))
		},
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, "all@example.test") },
	},
	{
		name: "postmaster to the owner", sites: []string{"inbound/receive.go deliver SendAutoMessage"}, kind: "required", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, "postmaster@example.test") },
	},
	{
		name: "the host's postmaster to the owner", sites: []string{"inbound/receive.go deliver SendAutoMessage"}, kind: "required", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, "postmaster@mail.mailstead.test") },
	},
	{
		name: "report on a forward that fails", sites: []string{"outbound/bounces.go SendReport QueueReport", "outbound/bounces.go QueueReport SendSystemMail", "outbound/host_mail.go SendSystemMail SendAutomatic"}, kind: "notice", to: "p@far.test", by: "account",
		begin: func(w *gateWorld) { w.change(func() { w.ann.ForwardTo = "refused@else.test" }) },
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, w.ann.Email) },
	},
	{
		name: "report on mail that was taken and cannot be filed", sites: []string{"inbound/receive.go reportRefused QueueReport"}, kind: "notice", to: "p@far.test", by: "account",
		drive: func(w *gateWorld, n int) {
			blob, err := w.St.Append(nil, w.Spool("Subject: x\r\n\r\nhello\r\n"))
			w.must(nil, err)
			defer w.St.Release(blob)
			w.Update(func(tx *store.Tx) error {
				return fileLater(w, tx, &store.Arrival{Blob: blob, Facts: store.Facts{Genuine: true}, Sender: fmt.Sprintf(gatePerson, n), To: []string{"nobody@example.test"}, Placed: map[string]bool{}, ReceivedAt: tx.Now()})
			})
		},
	},
	{
		name: "report on mail of a domain's program that is rejected", sites: []string{"submit/approvals.go endApproval QueueReport"}, kind: "notice", by: "account",
		drive: func(w *gateWorld, n int) {
			approval := w.hold(core.MailboxUser{AccountID: w.d.AccountID, DomainID: w.d.ID})
			w.must(w.Svc.Submit.RejectMessage(context.Background(), servicetest.Actor(w.Account), submit.RejectMessageIn{ApprovalID: approval}))
		},
	},
	{
		name: "password link of a team user", sites: []string{"signin/password_reset.go sendPasswordLink SendHostMail", "outbound/host_mail.go SendHostMail SendSystemMail"}, kind: "letter", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, n int) {
			w.must(w.Svc.Signin.ForgotPassword(context.Background(), signin.Visitor{IP: fmt.Sprintf("192.0.2.%d", n)}, signin.ForgotIn{Email: "owner@elsewhere.test"}))
		},
	},
	{
		name: "confirmation of a recovery address", sites: []string{"signin/recovery.go sendConfirmation mailLink", "signin/recovery.go mailLink SendHostMail"}, kind: "letter", to: "p@far.test", by: "account",
		drive: func(w *gateWorld, n int) {
			mb := w.AddMailbox(w.d, fmt.Sprint("r", n), nil)
			w.must(w.Svc.Mailboxes.UpdateEmailUser(context.Background(), servicetest.Actor(w.Account), mailboxes.UpdateEmailUserIn{UserID: mb.ID, RecoveryEmail: core.Opt[string]{Set: true, Value: fmt.Sprintf(gatePerson, n)}}))
		},
	},
	{
		name: "password link of a mailbox", sites: []string{"signin/recovery.go sendRecovery mailLink", "signin/recovery.go mailLink SendHostMail"}, kind: "letter", to: "p@far.test", by: "account",
		drive: func(w *gateWorld, n int) {
			mb := w.AddMailbox(w.d, fmt.Sprint("r", n), func(mb *store.Mailbox) {
				mb.Recovery = &store.Recovery{Email: fmt.Sprintf(gatePerson, n), Confirmed: true}
			})
			w.must(w.Svc.Signin.RecoverMailbox(context.Background(), signin.Visitor{IP: fmt.Sprintf("192.0.2.%d", n)}, signin.ForgotIn{Email: mb.Email}))
		},
	},
	{
		name: "invitation to a team", sites: []string{"accounts/limited.go sendInvitation SendHostMail"}, kind: "letter", to: "p@far.test", by: "account",
		drive: func(w *gateWorld, n int) {
			member := store.UserRoleMember
			w.must(w.Svc.Accounts.InviteTeamUser(context.Background(), servicetest.Actor(w.Account), accounts.InviteTeamUserIn{Email: fmt.Sprintf(gatePerson, n), Role: &member, SendEmail: true}))
		},
	},
	{
		name: "letter about a link to sign in", sites: []string{"signin/sign_in_link.go CreateSignInLink SendHostMail"}, kind: "letter", to: "p@far.test",
		begin: func(w *gateWorld) { w.AddAccount("p@far.test") },
		drive: func(w *gateWorld, _ int) {
			_, err := w.Svc.Signin.CreateSignInLink(context.Background(), servicetest.Actor(w.Account), accounts.HostedAccountIn{AccountID: w.accountOf("p@far.test")})
			w.unlessLimited(err)
		},
	},
	{
		name: "letter about the deletion of an account", sites: []string{"accounts/hosted.go DeleteHostedAccount SendHostMail"}, kind: "letter", to: "p@far.test",
		begin: func(w *gateWorld) { w.AddAccount("p@far.test") },
		drive: func(w *gateWorld, _ int) {
			active, id := store.AccountActive, w.accountOf("p@far.test")
			w.must(w.Svc.Accounts.UpdateHostedAccount(context.Background(), servicetest.Actor(w.Account), accounts.UpdateHostedAccountIn{AccountID: id, Status: &active}))
			_, err := w.Svc.Accounts.DeleteHostedAccount(context.Background(), servicetest.Actor(w.Account), accounts.DeleteHostedAccountIn{AccountID: id, Confirm: "p@far.test"})
			w.unlessLimited(err)
		},
	},
	{
		name: "a letter that an older release planned", sites: []string{"outbound/host_mail.go sendHostMail SendHostMail"}, kind: "letter", to: "p@far.test", by: "account",
		drive: func(w *gateWorld, n int) {
			w.plan("letter", alert.HostMail{To: fmt.Sprintf(gatePerson, n), Subject: "s", Text: "t", About: w.Account.AccountID})
		},
	},
	{
		name: "alert about sending", sites: []string{"reputation/pause.go mailOwner alert.Plan", "outbound/host_mail.go sendAlerts SendSystemMail"}, kind: "alert", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, n int) {
			none := 0
			mb := w.AddMailbox(w.d, fmt.Sprint("l", n), func(mb *store.Mailbox) { mb.DailySendLimit = &none })
			if _, err := w.Send(mb, submit.SendEmailIn{To: submit.Texts{"x@else.test"}, Subject: "s", Text: "t"}); err == nil {
				w.T.Error("it may send")
			}
		},
	},
	{
		name: "alert about the host", sites: []string{"health/alerts.go sendAlert alert.Plan"}, kind: "alert", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, _ int) { w.lookAtHost() },
	},
	{
		name: "alert about a DNS credential", sites: []string{"edge/credentials.go alertRefused alert.Plan"}, kind: "alert", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, n int) {
			provider, token, who := servicetest.NewEdge("kept.test"), servicetest.EdgeToken, servicetest.Actor(w.Account)
			provider.With(nil)(&w.Svc.Core.Config)
			c, err := w.Svc.Edge.CreateDNSCredential(context.Background(), who, edge.CreateDNSCredentialIn{
				Provider: store.DomainProviderHetzner, Name: fmt.Sprint(n), DNSSecrets: edge.DNSSecrets{Token: &token},
			})
			w.must(c, err)
			provider.Set(func() { provider.Tokens = nil })
			if _, err := w.Svc.Edge.PreviewDNSPlan(context.Background(), who, edge.PreviewDNSPlanIn{Domain: "kept.test", DNSCredentialID: c.ID}); err == nil {
				w.T.Error("it is not refused")
			}
			w.must(w.Svc.Edge.DeleteDNSCredential(context.Background(), who, edge.DNSCredentialIn{CredentialID: c.ID}))
		},
	},
	{
		name: "letter about what waits for approval", sites: []string{"submit/approvals.go notifyApprovers alert.Plan"}, kind: "alert", to: "owner@elsewhere.test", by: "account",
		drive: func(w *gateWorld, n int) {
			w.Update(func(tx *store.Tx) error {
				a, err := store.Accounts.Get(tx, w.Account.AccountID)
				if err != nil {
					return err
				}
				a.HeldToldAt = time.Time{}
				return store.Accounts.Put(tx, a)
			})
			w.hold(core.MailboxUser{AccountID: w.ann.AccountID, MailboxID: w.ann.ID, Email: w.ann.Email})
		},
	},
	{
		name: "report on DMARC", sites: []string{"reports/dmarc_reporting.go sendReport SendSystemMail"}, kind: "report", to: "dmarc@far.test", by: "account",
		drive: func(w *gateWorld, _ int) {
			w.must(nil, w.ComeIn(netip.MustParseAddr("192.0.2.1"), "a@far.test", "ann@example.test", servicetest.LetterFrom("a@far.test")))
			w.Yesterday()
			w.plan("dmarc_report_sweep", nil)
		},
	},
	{
		name: "report on TLS", sites: []string{"reports/tlsrpt.go queueTLSReports SendSystemMail"}, kind: "report", to: "tls@far.test", by: "account",
		drive: func(w *gateWorld, _ int) {
			servicetest.CountTLSYesterday(w.Installation, "far.test", servicetest.Untrusted)
			servicetest.ReportTLS(w.Installation)
		},
	},
	{
		name: "a forward that a person must approve", sites: []string{"submit/auto_messages.go SendAutoMessage queueAutoHold", "submit/auto_messages.go SendAutoMessage PlanForward", "submit/auto_messages.go SendAutoMessage SendAutomatic"}, kind: "held",
		begin: func(w *gateWorld) {
			w.change(func() { w.ann.ForwardTo, w.ann.SendPolicy = "on@else.test", store.Policy{Send: store.SendApproval} })
		},
		drive: func(w *gateWorld, n int) { w.receive(fmt.Sprintf(gatePerson, n), n, w.ann.Email) },
	},
}

// TestEveryWayOfProgramsIsKnown: the table has every place in the source that calls SendAutomatic.
func TestEveryWayOfProgramsIsKnown(t *testing.T) {
	var want []string
	for _, p := range gatePaths {
		for _, site := range p.sites {
			if !slices.Contains(want, site) {
				want = append(want, site)
			}
		}
	}
	got := calledAt(t, "SendAutomatic", "SendAutoMessage", "queueAutoHold", "SendSystemMail", "SendHostMail", "mailLink", "alert.Plan", "QueueReport", "planForwards", "PlanForward")
	listed(t, got, want, "add a row that drives it")
}

// plan adds a job.
func (w *gateWorld) plan(kind string, args any) {
	w.T.Helper()
	w.Update(func(tx *store.Tx) error {
		_, err := w.Q.Add(tx, jobs.New{Kind: kind, Lane: "test", Args: args})
		return err
	})
}

// lookAtHost checks the host while its disk is nearly full, as if for the first time.
func (w *gateWorld) lookAtHost() {
	w.T.Helper()
	w.Update(func(tx *store.Tx) error {
		for _, a := range slices.Collect(store.Alerts.All(tx)) {
			if err := store.Alerts.Delete(tx, a.ID); err != nil {
				return err
			}
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Svc.Run(ctx) }()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		some := false
		_ = w.St.View(func(tx *store.Tx) error {
			for range store.Alerts.All(tx) {
				some = true
			}
			return nil
		})
		if some {
			break
		}
	}
	stop()
	<-done
}

// counters are the accounts and subjects whose limits a path counts against.
func (w *gateWorld) counters() (out [][2]string) {
	p, account := w.path, w.Account.AccountID
	hour := ""
	if p.kind == "alert" {
		hour = w.St.Now().Format(" 15")
	}
	if p.to != "" && p.kind != "held" {
		out = append(out, [2]string{"", toSubject(p.kind, p.to) + hour})
	}
	switch p.by {
	case "sender":
		out = append(out, [2]string{account, w.ann.ID}, [2]string{account, w.d.ID}, [2]string{account, account})
	case "domain":
		out = append(out, [2]string{account, w.d.ID}, [2]string{account, account})
	case "account":
		out = append(out, [2]string{account, p.kind + "s" + hour})
	}
	return out
}

func (w *gateWorld) counted(c [2]string) (n int) {
	w.T.Helper()
	err := w.St.View(func(tx *store.Tx) error {
		d, err := store.SendDays.Find(tx, store.SendDayID(c[0], tx.Now().UTC().Format(time.DateOnly), c[1]))
		n = 0
		if d != nil {
			n = d.Recipients
		}
		return err
	})
	w.must(nil, err)
	return n
}

// sent counts the rows for the path's target that are not held.
func (w *gateWorld) sent() (n int) {
	w.T.Helper()
	target := w.path.to
	if target == "" {
		target = w.ann.Email
	}
	err := w.St.View(func(tx *store.Tx) error {
		n = 0
		for o := range store.Outgoings.All(tx) {
			local, domain, _ := strings.Cut(o.Recipient, "@")
			local, _, _ = strings.Cut(local, "+")
			if local+"@"+domain == target {
				n++
			}
		}
		return nil
	})
	w.must(nil, err)
	return n
}

// calm ends the jobs that wait for another day or hour.
func (w *gateWorld) calm() {
	w.T.Helper()
	w.Update(func(tx *store.Tx) error {
		for _, j := range slices.Collect(store.Jobs.All(tx)) {
			if (j.Kind == "alert" || j.Kind == outbound.KindForward || j.Kind == "approval_letter") && j.State == store.JobQueued {
				if err := w.Q.Cancel(tx, j.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestTheGateCountsAndBoundsEveryWay causes each kind of automatic mail: it counts against each of
// its limits, and above any of them it is not sent, and the log says so.
func TestTheGateCountsAndBoundsEveryWay(t *testing.T) {
	for n := range gatePaths {
		p := &gatePaths[n]
		t.Run(p.name, func(t *testing.T) {
			h := (&servicetest.Host{Rcpt: func(to string) string {
				if strings.HasPrefix(to, "refused") {
					return "550 5.7.1 refused by policy"
				}
				return "250 Ok"
			}}).Start(t)
			began := time.Now()
			late := time.AfterFunc(2*time.Minute, func() { panic(p.name + " does not end") }) // which tells where it hangs
			t.Cleanup(func() { late.Stop() })
			i := servicetest.InstallWith(t, core.Config{
				Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}, Spam: core.Spam{Reports: true}, Limits: core.Limits{RecipientsPerMailbox: 1000, RecipientsPerDomain: 1000, RecipientsPerAccount: 1000}}, BaseURL: "https://mail.mailstead.test",
			}, store.Options{Now: func() time.Time { return time.Date(2026, 11, 28, 9, 5, 0, 0, time.UTC).Add(time.Since(began)) }})
			i.Room = func(string) (free, total int64, err error) { return 9 << 30, 100 << 30, nil }
			i.Reopen()
			i.DNS.Txt["far.test"], i.DNS.Txt["_smtp._tls.far.test"] = "v=spf1 ip4:192.0.2.1 -all", "v=TLSRPTv1; rua=mailto:tls@far.test"
			i.DNS.Txt["_dmarc.far.test"] = "v=DMARC1; p=reject; rua=mailto:dmarc@far.test"
			w := &gateWorld{Installation: i, log: listenIn(i), path: p}
			w.d = i.AddDomain(i.Account, "example.test", nil)
			w.also = i.AddDomain(i.Account, "also.test", nil)
			w.ann = i.AddMailbox(w.d, "ann", nil)
			if p.begin != nil {
				p.begin(w)
			}
			i.Run()
			if p.kind == "held" {
				w.provesHeld(t)
				return
			}
			p.drive(w, 1)
			servicetest.Eventually(t, "it is sent", func() bool { return w.sent() == 1 })
			for _, c := range w.counters() {
				if got := w.counted(c); got != 1 {
					t.Errorf("%q counts %d, want 1", c, got)
				}
			}
			if t.Failed() {
				return // what is not counted is not bounded either; each limit would be waited for
			}
			for n, c := range w.counters() {
				w.calm()
				before, logged := w.counted(c), w.log.Count("past a limit")
				setDay(i, c[0], c[1], 1<<30)
				p.drive(w, n+2)
				servicetest.Eventually(t, "the log tells of the limit "+strings.Join(c[:], " "), func() bool { return w.log.Count("past a limit") > logged })
				idle(i)
				servicetest.Eventually(t, "nothing is on its way", func() bool {
					_, left := i.Left()
					return left == 0
				})
				if w.sent() != 1 {
					t.Errorf("past %q it is sent", c)
				}
				if got := w.counted(c); got != 1<<30 {
					t.Errorf("what is not sent is counted at %q", c)
				}
				setDay(i, c[0], c[1], before)
			}
			for _, c := range w.counters() {
				if got := w.counted(c); got != 1 {
					t.Errorf("%q counts %d after what was not sent, want 1", c, got)
				}
			}
			w.calm()
			if !strings.Contains(w.log.String(), "kind="+p.kind+" ") {
				t.Errorf("the log does not name the kind:\n%s", w.log)
			}
		})
	}
}

// provesHeld: mail that waits for a person's approval is not sent, and its number is limited.
func (w *gateWorld) provesHeld(t *testing.T) {
	w.path.drive(w, 1)
	w.Becomes("on@else.test", store.OutgoingHeld)
	for n := range 10 {
		w.Update(func(tx *store.Tx) error {
			for k := range 100 {
				a := &store.Approval{ID: tx.NewID("apr"), AccountID: w.Account.AccountID, Status: store.ApprovalPending, SubmissionID: fmt.Sprint("sub_", n, k), ExpiresAt: tx.Now().Add(time.Hour)}
				if err := store.Approvals.Put(tx, a); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.path.drive(w, 2)
	servicetest.Eventually(t, "the log tells", func() bool { return w.log.Count("past a limit") == 1 })
	if rows := forwarded(w.Installation, "else.test"); rows != 1 {
		t.Errorf("%d rows, want 1", rows)
	}
	w.Update(func(tx *store.Tx) error {
		for _, a := range slices.Collect(store.Approvals.All(tx)) {
			if strings.HasPrefix(a.SubmissionID, "sub_") && a.Blob.Length == 0 {
				if err := store.Approvals.Delete(tx, a.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// fileLater queues a message that was accepted before for filing.
func fileLater(w *gateWorld, tx *store.Tx, a *store.Arrival) error {
	a.ID = tx.NewID("arr")
	if err := errors.Join(store.ArrivalBlobs.Ref(tx, a.Blob, a.ID), store.Arrivals.Put(tx, a)); err != nil {
		return err
	}
	_, err := w.Svc.Core.Queue.Add(tx, jobs.New{Kind: "arrival", Lane: "arrival " + a.ID, Args: map[string]string{"arrival_id": a.ID}})
	return err
}

// hold submits a message of a program that a person must approve, and returns the approval's ID.
func (w *gateWorld) hold(u core.MailboxUser) string {
	u.Policy = store.Policy{Send: store.SendApproval}
	w.Update(func(tx *store.Tx) error {
		u.CredentialID = tx.NewID("cred")
		return store.Credentials.Put(tx, &store.Credential{ID: u.CredentialID, AccountID: u.AccountID, MailboxID: u.MailboxID, DomainID: u.DomainID, Policy: u.Policy, CreatedAt: tx.Now()})
	})
	sent, err := w.Svc.Submit.Submit(context.Background(), u, submit.Submission{From: "ann@example.test", Body: w.Spool("From: ann@example.test\r\nTo: b@else.test\r\nSubject: s\r\n\r\nhello\r\n"), To: []outbound.Rcpt{{Address: "b@else.test"}}})
	w.must(nil, err)
	return sent.ApprovalID
}

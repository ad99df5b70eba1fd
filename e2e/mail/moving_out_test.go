package mail

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// ofItsOwn is why the fields of every kind of row that are named here are not carried.
var ofItsOwn = map[string]string{
	"ID": "each installation gives its own", "Num": "each installation gives its own", "AccountID": "the account that takes it",
	"AccountNum": "the account that takes it", "CreatedAt": "when it was made here", "UpdatedAt": "when it was changed here",
}

// carriedRows are the kinds of rows that an export and an import bring to another installation,
// with the fields that stay behind and why. Fields that are not named must be equal there, and
// something of the test must have them.
var carriedRows = map[string]struct {
	row  any
	not  map[string]string
	rows func(tx *store.Tx) []any
	key  func(row any) string
}{
	"Account": {store.Account{}, map[string]string{
		"Email": "the owner is that of the new installation", "Plan": "the operator sets it", "Status": "the operator sets it",
		"Limits": "the operator sets them", "DeleteAt": "the operator sets it", "SignInLink": "of the moment",
		"DeleteJob": "work of the moment", "SyncedAt": "history", "HeldToldAt": "history",
	}, rowsOf(store.Accounts), func(any) string { return "" }},
	"Domain": {store.Domain{}, map[string]string{
		"Claim": "proven anew", "ClaimedAt": "proven anew", "ProvenAt": "proven anew", "ProvenBy": "proven anew",
		"Status": "set up anew", "StatusDetail": "set up anew", "ErrorCode": "set up anew", "ErrorMessage": "set up anew",
		"Source": "it is connected, wherever it was bought", "Registrar": "it is connected, wherever it was bought", "ExpiresAt": "its registrar's",
		"AutoRenew": "its registrar's", "NSStatus": "looked up anew", "NSAwaited": "looked up anew", "DNSStatus": "looked up anew",
		"DKIM": "an own secret: the new installation signs with its own keys", "DMARCAt": "when it was set here", "JobID": "work of the moment",
		"CreatedTold": "history", "EdgeToken": "a secret: a domain at Cloudflare is connected with its token by hand", "EdgeRecords": "what was made there",
		"EdgePlace": "what was made there", "EdgePlaces": "what was made there",
		"DNSCredentialID": "a secret: it is made by hand", "Move": "work of the moment", "Replace": "work of the moment", "Replaced": "what was made there",
		"ReplaceDMARC": "work of the moment", "ForeignDMARC": "looked up anew", "ForeignMX": "looked up anew", "EdgeRemains": "work of the moment",
		"DNSSEC": "an own secret: the new installation signs with its own keys", "Challenges": "work of the moment", "Checks": "looked up anew",
		"CheckedAt": "looked up anew", "NextCheckAt": "looked up anew", "BadChecks": "looked up anew", "FailingSince": "looked up anew",
		"FailureTold": "history", "CurrentNS": "looked up anew", "CompletedAt": "set up anew", "ZoneChangedAt": "when it was changed here",
		"SendingPaused": "history of its sending", "Counting": "history of its sending",
		"ZoneGeneration": "each installation counts its own", "ZoneStaged": "work of the moment", "EdgeError": "work of the moment", "EdgeErrorAt": "work of the moment",
		"ScanJobID": "work of the moment", "ScanAt": "work of the moment",
		"PreviousNS": "looked up anew", "ForeignDS": "looked up anew", "Delegation": "looked up anew",
	}, domainRows, func(r any) string { return r.(*store.Domain).Name }},
	"CustomRecord": {store.CustomRecord{}, map[string]string{"Status": "of a domain at Cloudflare", "Error": "of a domain at Cloudflare",
		"From": "each installation counts its own", "Until": "history", "Was": "history"},
		rowsOf(store.CustomRecords), func(r any) string { c := r.(*store.CustomRecord); return c.Name + c.Type + c.Value }},
	"Mailbox": {store.Mailbox{}, map[string]string{
		"Ready": "its domain's", "JobID": "work of the moment", "ErrorCode": "of an external mailbox", "ErrorText": "of an external mailbox",
		"Type":           "an external mailbox needs its log-in, which is a secret, so it is made by hand",
		"PasswordSealed": "an own secret", "External": "a secret: it is made by hand", "LastSyncAt": "history", "LastLoginAt": "history", "Seen": "history",
		"PasswordAt": "history", "Salt": "an own secret, made at the first log-in", "SCRAM": "an own secret, made at the first log-in",
		"Recovery": "its holder has to confirm it anew", "SendingPaused": "history of its sending", "Counting": "history of its sending",
	}, rowsOf(store.Mailboxes), func(r any) string { return r.(*store.Mailbox).Email }},
	"Address": {store.Address{}, nil, rowsOf(store.Addresses), func(r any) string { return r.(*store.Address).Email }},
	"Group":   {store.Group{}, nil, rowsOf(store.Groups), func(r any) string { return r.(*store.Group).Email }},
	"Rule":    {store.Rule{}, nil, rowsOf(store.Rules), func(r any) string { return r.(*store.Rule).Name }},
	"Vacation": {store.Vacation{}, map[string]string{"Version": "names the text here"}, rowsOf(store.Vacations),
		func(r any) string { return r.(*store.Vacation).MailboxID }},
	"Template":        {store.Template{}, nil, rowsOf(store.Templates), func(r any) string { return r.(*store.Template).Name }},
	"MessageTemplate": {store.MessageTemplate{}, nil, rowsOf(store.MessageTemplates), func(r any) string { return r.(*store.MessageTemplate).Name }},
	"Webhook": {store.Webhook{}, map[string]string{
		"DisabledAt": "history", "Failures": "history", "Secret": "an own secret: the receiver is given the new one", "SecretHint": "of the secret",
		"OldSecret": "of the secret", "OldSecretEnds": "of the secret", "APIVersion": "that of the day on which it is made", "LastDeliveryAt": "history", "LastSuccessAt": "history",
		"Headers": "secrets of the receiver: they are entered by hand",
	}, rowsOf(store.Webhooks), func(r any) string { return r.(*store.Webhook).URL }},
	"Suppression": {store.Suppression{}, map[string]string{"MessageID": "names a message of the sending log"}, rowsOf(store.Suppressions),
		func(r any) string { return r.(*store.Suppression).Email }},
	"GroupMember": {store.GroupMember{}, nil, rowsOf(store.GroupMembers),
		func(r any) string { m := r.(*store.GroupMember); return m.GroupID + fmt.Sprint(m.Place) }},
}

// stayingRows are the kinds of rows that stay behind, and why.
var stayingRows = map[string]string{
	"User": "people of the team are invited anew: account.json lists them", "Token": "only a hash is kept: account.json lists them, with policy and own_words",
	"Credential": "only a hash is kept: account.json lists them, with policy and own_words", "OAuthClient": "clients register anew", "OAuthRequest": "work of the moment",
	"DayStat": "history", "Audit": "history", "Event": "history", "Delivery": "history", "MessageIDMapping": "history", "Report": "history", "SendDay": "history",
	"SendCount": "history", "SendAlert": "history", "DMARCCount": "history", "DMARCDay": "history", "TLSCount": "history", "AutoReply": "history",
	"Contact": "whom the mailbox wrote to is found anew in Sent", "KnownSender": "history of greylisting", "GreyTuple": "history of greylisting",
	"Idempotency": "work of the moment", "Job": "work of the moment", "Export": "work of the moment", "Submission": "mail that waits is sent by the old host",
	"PendingRcpts": "mail that waits is sent by the old host", "Outgoing": "mail that waits is sent by the old host", "Arrival": "work of the moment",
	"ReportMail": "work of the moment", "Batch": "work of the moment", "BatchItem": "work of the moment", "CopyIntent": "work of the moment", "ImportedMessage": "work of the moment",
	"RemoteBox": "of an external mailbox: its server has the mail", "RemoteCopy": "of an external mailbox: its server has the mail", "Subscriptions": "IMAP clients subscribe anew",
	"Purchase": "its registrar's", "PretendDomain": "of the sandbox", "Certificate": "each host asks for its own", "CertificateAccount": "each host asks for its own",
	"TLSPolicy": "looked up anew", "ZoneBase": "of the host", "Alert": "of the host", "Setting": "of the host", "BackupDrill": "of the host", "MasterKeyRecord": "of the host", "SandboxClock": "of the sandbox",
	"Approval": "what is held is decided at the old host", "SpamModel": "learnt anew of what people move", "SpamLesson": "learnt anew of what people move",
	"Hold": "what is held is decided at the old host", "ZoneChange": "history", "DNSCredential": "a secret: it is made by hand",
	"WarmupFolder": "how its mail arrived", "EdgeRecord": "what was made at a DNS provider, which is connected by hand", "ZoneScan": "looked up anew",
}

// ofMessages are the fields of messages and folders: "" for what a Maildir carries, or why it does
// not.
var ofMessages = map[string]map[string]string{
	"Message": {
		"Blob": "", "Received": "", "Flags": "", "UID": "the order is the same", "Keywords": "a Maildir has $Forwarded alone",
		"Account": "each installation gives its own", "Mailbox": "each installation gives its own", "Folder": "by its name", "Num": "each installation gives its own",
		"Saved": "when it came into its folder here", "Bits": "read from the message anew", "ModSeq": "each installation gives its own",
	},
	"Folder": {
		"Name": "", "Messages": "", "Mailbox": "each installation gives its own", "ID": "each installation gives its own", "Num": "each installation gives its own",
		"SpecialUse": "by its name", "Subscribed": "IMAP clients subscribe anew", "UIDValidity": "each installation gives its own", "UIDNext": "each installation gives its own",
		"ModSeq": "each installation gives its own", "Unseen": "of the flags", "Bytes": "of the messages",
	},
	"Meta": {
		"Structure": "read from the message anew", "Preview": "read from the message anew", "ThreadID": "read from the message anew", "OriginalMessageID": "of the sending log",
		"ReturnPath": "an mbox file has it", "SPF": "how it arrived: nothing that is imported has arrived", "DKIM": "how it arrived", "DMARC": "how it arrived", "Judged": "how it arrived",
		"Recipient": "how it arrived", "Bcc": "of the sending log", "AnsweredBy": "history", "Spam": "how it arrived", "Arrived": "how it arrived", "Origin": "how it arrived",
		"Drafted": "imported messages count as nobody's words", "Warmup": "how it arrived",
	},
}

func rowsOf[T any](table *store.Table[T]) func(*store.Tx) []any {
	return func(tx *store.Tx) (list []any) {
		for r := range table.All(tx) {
			list = append(list, r)
		}
		return list
	}
}

// domainRows are the domains without the times of lookups of aliases, which each installation has
// of its own.
func domainRows(tx *store.Tx) (list []any) {
	for d := range store.Domains.All(tx) {
		if d.Apex != nil {
			d.Apex.AliasSeenAt, d.Apex.AliasChangedAt = time.Time{}, time.Time{}
		}
		list = append(list, d)
	}
	return list
}

// TestEveryRowIsCarriedOrNamed: whoever adds a table, or a field of messages, says whether it
// moves.
func TestEveryRowIsCarriedOrNamed(t *testing.T) {
	found := 0
	for _, path := range append(rig.Glob(t, rig.FromRoot("store/*.go")), rig.Glob(t, rig.FromRoot("store/mailindex/*.go"))...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`engine\.NewTable\("\w+", func\(\w+ \*(?:\w+\.)?(\w+)\)`).FindAllStringSubmatch(string(text), -1) {
			found++
			if _, carried := carriedRows[m[1]]; carried == (stayingRows[m[1]] != "") {
				t.Errorf("%s: %s must be among the rows that an export carries, or among those that stay with a reason", path, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d tables were found", found)
	}
	for name, row := range map[string]any{"Message": store.Message{}, "Folder": store.Folder{}, "Meta": store.Meta{}} {
		for f := range reflect.TypeOf(row).Fields() {
			if _, ok := ofMessages[name][f.Name]; !ok {
				t.Errorf("%s.%s must be carried by a Maildir, or be named with a reason", name, f.Name)
			}
		}
	}
}

// rowsByKey reads all rows that are carried, each with the ids in it replaced by what they name.
func rowsByKey(t *testing.T, dir string) map[string]map[string]any {
	t.Helper()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := map[string]map[string]any{}
	err = s.View(func(tx *store.Tx) error {
		named := map[string]string{}
		for _, d := range rowsOf(store.Domains)(tx) {
			named[d.(*store.Domain).ID] = d.(*store.Domain).Name
		}
		for _, m := range rowsOf(store.Mailboxes)(tx) {
			named[m.(*store.Mailbox).ID] = m.(*store.Mailbox).Email
		}
		for _, g := range rowsOf(store.Groups)(tx) {
			named[g.(*store.Group).ID] = g.(*store.Group).Email
		}
		for name, kind := range carriedRows {
			all[name] = map[string]any{}
			for _, row := range kind.rows(tx) {
				v := reflect.ValueOf(row).Elem()
				for _, f := range v.Fields() {
					if f.Kind() == reflect.String && named[f.String()] != "" && f.CanSet() {
						f.SetString(named[f.String()])
					}
				}
				if w, ok := row.(*store.Webhook); ok && w.Filters != nil {
					for _, list := range [][]string{w.Filters.Mailboxes, w.Filters.Domains} {
						for i, id := range list {
							list[i] = named[id]
						}
					}
				}
				all[name][kind.key(row)] = v.Interface()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMovingOut: what an export has is in another installation after its import, field by field and
// byte by byte, but for what is named with a reason.
func TestMovingOut(t *testing.T) {
	t.Parallel()
	const relay = "outbound = \"capture\"\n[[relay]]\nname = \"r1\"\nkind = \"custom\"\nhost = \"127.0.0.1\"\nport = 2\ntls = \"none\"\n"
	old, dir := rig.Start(t, relay+rig.GenerousLimits), t.TempDir()
	furnish(old, dir)
	boxes := []string{"ann@here.test", "bob@here.test", "cat@manual.test"}

	out := transfer(t, 0, "export", "maildir", "--data", old.Dir, "--to", filepath.Join(dir, "out"), "--all", "--secrets")
	if out.Mailboxes != 4 || out.Messages == 0 {
		t.Fatalf("%+v", out)
	}
	var account struct {
		Records                                  map[string][]struct{ Type, Value string }
		Tokens, Team                             []any
		Credentials, SMTPCredentials             map[string][]struct{ Name string }
		Groups, Templates, Suppressions, Domains []any
	}
	file := filepath.Join(dir, "out", "account.json")
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &account)
	}
	if err != nil || len(account.Domains) != 4 || len(account.Records["here.test"]) != 2 || len(account.Records["manual.test"]) != 0 ||
		len(account.Tokens) == 0 || len(account.Team) != 2 || len(account.Credentials["ann@here.test"]) != 1 {
		t.Errorf("%v %s", err, text)
	}
	for _, secret := range []string{"correct horse", "whsec_", "$argon2id$"} {
		if strings.Contains(string(text), secret) != (secret != "correct horse") {
			t.Errorf("account.json with secrets has %q: %v", secret, secret == "correct horse")
		}
	}
	transfer(t, 0, "export", "mbox", "--data", old.Dir, "--to", filepath.Join(dir, "bare"), "--all")
	if bare, err := os.ReadFile(filepath.Join(dir, "bare", "account.json")); err != nil || strings.Contains(string(bare), "whsec_") || strings.Contains(string(bare), "$argon2id$") {
		t.Errorf("account.json without secrets: %v %s", err, bare)
	}

	// Until its domain is complete a mailbox has no alias, and there are no groups.
	young := rig.Start(t, relay+rig.GenerousLimits)
	settings := func() (out struct {
		Done, Failed int
		Errors       []struct{ What, Message string }
	}, code int) {
		text, code := rig.Run(t, "import", "settings", "--data", young.Dir, "--from", file, "--json")
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return out, code
	}
	settings()
	young.Until("here.test is complete", func() bool {
		var found struct {
			Data []struct{ Domain, Status string }
		} // elsewhere.test too
		young.Want(200, "GET", "/v1/domains?q=here.test", nil, &found)
		return slices.Contains(found.Data, struct{ Domain, Status string }{"here.test", "complete"})
	})
	again, code := settings()
	if code != 1 || again.Failed != 1 || again.Errors[0].What != "box@elsewhere.test" {
		t.Errorf("only the external mailbox is left to be made by hand: exit code %d, %+v", code, again)
	}
	list := "from,to\n"
	for _, box := range boxes {
		list += filepath.Join(dir, "out", box) + "," + box + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "list.csv"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	transfer(t, 0, "import", "maildir", "--data", young.Dir, "--list", filepath.Join(dir, "list.csv"))
	transfer(t, 0, "export", "maildir", "--data", young.Dir, "--to", filepath.Join(dir, "back"), "--all")
	for _, box := range boxes {
		had, has := readMaildir(t, filepath.Join(dir, "out", box)), readMaildir(t, filepath.Join(dir, "back", box))
		if len(had) == 0 && box != "cat@manual.test" || !reflect.DeepEqual(had, has) {
			t.Errorf("%s: the mail is\n%v, was\n%v", box, has, had)
		}
	}
	young.Stop()
	old.Stop()
	compareRows(t, rowsByKey(t, old.Dir), rowsByKey(t, young.Dir))
	young.Start()
	young.ReadMail("ann@here.test", "correct horse").Close()
}

// compareRows compares all that is carried.
func compareRows(t *testing.T, had, has map[string]map[string]any) {
	t.Helper()
	delete(had["Mailbox"], "box@elsewhere.test")
	for name, kind := range carriedRows {
		given := map[string]bool{}
		if len(had[name]) == 0 || len(had[name]) != len(has[name]) {
			t.Errorf("%s: %d rows, want %d", name, len(has[name]), len(had[name]))
		}
		for key, row := range had[name] {
			other, ok := has[name][key]
			if !ok {
				t.Errorf("%s %q is missing", name, key)
				continue
			}
			for f := range reflect.TypeOf(row).Fields() {
				is, want := reflect.ValueOf(other).FieldByIndex(f.Index), reflect.ValueOf(row).FieldByIndex(f.Index)
				if ofItsOwn[f.Name] != "" || kind.not[f.Name] != "" {
					continue
				}
				given[f.Name] = given[f.Name] || !want.IsZero()
				if !reflect.DeepEqual(is.Interface(), want.Interface()) {
					t.Errorf("%s %q: %s is %v, was %v", name, key, f.Name, is, want)
				}
			}
		}
		for f := range reflect.TypeOf(kind.row).Fields() {
			if ofItsOwn[f.Name] == "" && kind.not[f.Name] == "" && !given[f.Name] {
				t.Errorf("%s.%s must be carried, and nothing of this test has it; or name it with a reason", name, f.Name)
			}
		}
	}
}

// furnish gives an installation something of everything that an account can have.
func furnish(i *rig.Instance, dir string) {
	i.T.Helper()
	i.Want(200, "PATCH", "/v1/account", map[string]any{"name": "Far Away", "warmup_phrases": []string{"warm words"},
		"warmup_headers": []map[string]any{{"name": "X-Warm", "value": "yes"}}, "warmup_folder": "Warm", "warmup_days": 9}, nil)
	here := i.AddDomain("here.test")
	var connected struct {
		Domains []struct {
			DomainID string `json:"domain_id"`
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"manual.test"}, "manual_dns": true}, &connected)
	manual := connected.Domains[0].DomainID
	i.Want(200, "PATCH", "/v1/domains/"+manual, map[string]any{"apex": map[string]any{"mode": "elsewhere", "addresses": []string{"198.51.100.7"}}}, nil)
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"elsewhere.test"}, "external": true}, nil)
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"coming.test"}, "apex": "elsewhere", "mx": "elsewhere"}, &connected)
	i.Want(200, "PATCH", "/v1/domains/"+connected.Domains[0].DomainID, map[string]any{"apex": map[string]any{"mode": "elsewhere", "alias": "site.far.test"}}, nil)

	ann, bob := i.AddMailbox("ann@here.test", "correct horse"), i.AddMailbox("bob@here.test", "correct horse")
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": "cat@manual.test", "password": "correct horse"}, nil)
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": "box@elsewhere.test", "type": "external",
		"imap": map[string]any{"host": "127.0.0.1", "port": 1, "security": "none", "username": "u", "password": "p"}}, nil)
	i.Want(200, "PATCH", "/v1/email-users/"+ann, map[string]any{
		"name": "Ann", "aliases": []string{"anna@here.test"}, "footer": "foot", "signature": "sign", "daily_send_limit": 77, "quota_bytes": 50 << 20, "relay": "r1",
		"forward_to": "x@far.test", "forward_keep_copy": false, "expires_at": "2099-01-01T00:00:00.000Z",
		"send_policy": map[string]any{"send": "reply_only", "allowed_recipients": []string{"@friends.test"}},
	}, nil)
	i.Want(200, "PATCH", "/v1/domains/"+here, map[string]any{
		"tags": []string{"a", "b"}, "notes": "noted", "sending_mode": "direct", "relay": "r1", "list_unsubscribe": true, "catch_all": "ann@here.test", "tls_policy": "required",
		"sends_elsewhere": []any{map[string]any{"host": "mail.far.test", "selector": "s1"}, map[string]any{"network": "192.0.2.0/24", "selector": "s2"}},
	}, nil)
	i.Want(200, "PUT", "/v1/domains/"+here+"/dmarc", map[string]any{"value": "v=DMARC1; p=none"}, nil)
	i.Want(200, "PUT", "/v1/domains/"+here+"/spf", map[string]any{"extra": []string{"ip4:192.0.2.0/24"}, "all": "-"}, nil)
	i.Want(200, "PUT", "/v1/domains/"+here+"/zone/part/NS", map[string]any{"values": []string{"ns.far.test"}}, nil)
	i.Want(200, "PUT", "/v1/domains/"+here+"/zone/team/MX", map[string]any{"values": []string{"10 a.far.test", "20 b.far.test"}, "ttl": 600}, nil)
	i.Want(200, "POST", "/v1/domains/"+here+"/redirect", map[string]any{"redirect_url": "https://far.test/", "permanent": false, "preserve_path": true}, nil)
	i.Want(200, "POST", "/v1/domains/"+here+"/forward", map[string]any{"forward_address": "all@far.test"}, nil)
	i.Want(200, "PATCH", "/v1/domains/"+manual, map[string]any{"tags": []string{"m"}}, nil)
	for _, r := range []map[string]any{{"name": "www2", "type": "A", "value": "192.0.2.7", "ttl": 600}, {"name": "@", "type": "TXT", "value": "words \"quoted\""}} {
		i.Want(200, "POST", "/v1/domains/"+here+"/custom-dns-records", r, nil)
	}
	i.Want(201, "POST", "/v1/groups", map[string]any{"email": "few@here.test", "members": []any{map[string]any{"email": "bob@here.test"}}}, nil)
	i.Want(201, "POST", "/v1/groups", map[string]any{"email": "all@here.test", "name": "All", "send_as": "members", "members": []any{
		map[string]any{"email": "x@far.test"}, map[string]any{"email": "few@here.test"}, map[string]any{"user_id": ann}}}, nil)
	for n, enabled := range []bool{true, false} {
		i.Want(201, "POST", "/v1/email-users/"+ann+"/rules", map[string]any{"name": fmt.Sprintf("rule %d", n), "enabled": enabled, "match": "any",
			"conditions": []any{map[string]any{"field": "header", "header": "X-A", "op": "contains", "value": "v", "not": true}},
			"actions":    []any{map[string]any{"type": "move", "value": "Archive"}, map[string]any{"type": "webhook"}}}, nil)
	}
	i.Want(200, "PUT", "/v1/email-users/"+ann+"/vacation", map[string]any{"enabled": true, "subject": "Away", "text": "away", "from": "anna@here.test",
		"starts_at": "2026-01-01T00:00:00.000Z", "ends_at": "2098-01-01T00:00:00.000Z"}, nil)
	i.Want(200, "PATCH", "/v1/email-users/"+bob, map[string]any{"status": "suspended"}, nil)
	i.Want(200, "POST", "/v1/email-user-templates", map[string]any{"name": "names", "usernames": []string{"info", "sales"}}, nil)
	i.Want(201, "POST", "/v1/message-templates", map[string]any{"name": "hello", "subject": "Hi {{a}}", "text": "t {{a}}", "html": "<p>{{a}}</p>"}, nil)
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://127.0.0.1:1/on", "events": []string{"email.received"}, "description": "on"}, nil)
	var hook struct{ ID string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://127.0.0.1:1/off", "events": []string{"*"}, "filters": map[string]any{"mailboxes": []string{ann}, "domains": []string{here}}}, &hook)
	i.Want(200, "POST", "/v1/account/universal-inbox", map[string]any{"enabled": true}, nil)
	i.Want(200, "PATCH", "/v1/webhooks/"+hook.ID, map[string]any{"status": "disabled"}, nil)
	i.Want(200, "POST", "/v1/suppressions/import", map[string]any{"emails": []string{"c@far.test"}, "reason": "complaint"}, nil)
	i.Want(201, "POST", "/v1/suppressions", map[string]any{"email": "m@far.test"}, nil)
	i.Want(201, "POST", "/v1/email-users/"+ann+"/credentials", map[string]any{"name": "phone"}, nil)
	i.Want(201, "POST", "/v1/domains/"+here+"/smtp-credentials", map[string]any{"name": "printer"}, nil)
	i.Want(200, "POST", "/v1/account/users/invite", map[string]any{"email": "friend@far.test", "role": "member"}, nil)

	source := filepath.Join(dir, "source")
	for n, folder := range []string{"", "", ".Sent", ".Work.Gr&APYA3w-e", ".Junk"} {
		text := fmt.Sprintf("From: a%d@far.test\r\nSubject: number %d\r\n\r\nFrom here\r\n%s", n, n, strings.Repeat("\xff", n))
		writeMaildirMessage(i.T, filepath.Join(source, folder), fmt.Sprintf("%d.M%d.host:2,%s", 1_700_000_000+n, n, "DFPRST"[n:n+1]), text, time.Unix(1_700_000_000+int64(n), 0))
	}
	for _, box := range []string{"ann@here.test", "bob@here.test"} {
		if in := transfer(i.T, 0, "import", "maildir", "--data", i.Dir, "--from", source, "--to", box); in.Imported != 5 {
			i.T.Fatalf("%+v", in)
		}
	}
}

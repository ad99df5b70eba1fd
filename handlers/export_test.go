package handlers

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

// export makes one that does not have to wait for the one before.
func (b *sandbox) export(body string, header ...string) *reply {
	b.t.Helper()
	b.AgeExports(b.t, b.Owner.AccountID, 5*time.Second)
	return b.do("POST", "/v1/export", body, header...)
}

// fetch follows the link of an export, as somebody without a token.
func (b *sandbox) fetch(r *reply) *reply {
	b.t.Helper()
	path, ours := strings.CutPrefix(r.is(200).text("download_url"), b.Core.Config.BaseURL)
	if !ours {
		b.t.Fatalf("download_url is not below %s: %s", b.Core.Config.BaseURL, r.raw)
	}
	return b.with("").get(path)
}

// rows reads a CSV file as another program does, and holds that lines end with CRLF.
func (r *reply) rows() [][]string {
	r.t.Helper()
	if r.is(200); strings.Count(string(r.raw), "\n") != strings.Count(string(r.raw), "\r\n") {
		r.t.Errorf("a line ends without CRLF in %q", r.raw)
	}
	rows, err := csv.NewReader(bytes.NewReader(r.raw)).ReadAll()
	if err != nil {
		r.t.Fatalf("%v in %q", err, r.raw)
	}
	return rows
}

// boxesToExport makes an odd hosted mailbox, and two that live elsewhere.
func (b *sandbox) boxesToExport() {
	b.t.Helper()
	b.Domain(b.t, b.Owner.AccountID, "elsewhere.test", "external", "complete")
	for _, body := range []string{
		`{"email":"ann@boxes.test","name":"=Ann \"A\", Lee","password":"=p,\"w'+ é","footer":"- Ann\nSales","daily_send_limit":40}`,
		`{"email":"ext@elsewhere.test","name":"Ext","type":"external","imap":{"host":"imap.elsewhere.test","port":993,"security":"tls","username":"iu","password":"ip"},
			"smtp":{"host":"smtp.elsewhere.test","port":465,"security":"tls","username":"su","password":"sp"}}`,
		`{"email":"in@elsewhere.test","type":"external","imap":{"host":"imap.elsewhere.test","port":143,"security":"starttls","username":"ru","password":"rp"}}`,
	} {
		b.post("/v1/email-users", body).is(201)
	}
}

func TestExportFormats(t *testing.T) {
	b := newSandbox(t, nil)
	b.boxesToExport()
	const host = "mail.example.test"
	for format, want := range map[string][]string{
		"default": {
			"domain,from_email,from_name,user_name,password,smtp_host,smtp_port,imap_host,imap_port,imap_username,imap_password,footer",
			`boxes.test|ann@boxes.test|'=Ann "A", Lee|ann@boxes.test|=p,"w'+ é|` + host + `|2587|` + host + `|2143|ann@boxes.test|=p,"w'+ é|'- Ann` + "\n" + `Sales`,
			"elsewhere.test|ext@elsewhere.test|Ext|su|sp|smtp.elsewhere.test|465|imap.elsewhere.test|993|iu|ip|",
			"elsewhere.test|in@elsewhere.test||ru|rp|||imap.elsewhere.test|143|ru|rp|",
		},
		"smartlead": {
			"from_name,from_email,user_name,password,smtp_host,smtp_port,imap_host,imap_port,max_email_per_day,custom_tracking_url,warmup_enabled,total_warmup_per_day,daily_rampup,reply_rate_percentage,bcc,signature,different_reply_to_address,imap_user_name,imap_password",
			`'=Ann "A", Lee|ann@boxes.test|ann@boxes.test|=p,"w'+ é|` + host + `|2587|` + host + `|2143|40||false|||||'- Ann` + "\n" + `Sales||ann@boxes.test|=p,"w'+ é`,
			"Ext|ext@elsewhere.test|su|sp|smtp.elsewhere.test|465|imap.elsewhere.test|993|||false|||||||iu|ip",
			"|in@elsewhere.test|ru|rp|||imap.elsewhere.test|143|||false|||||||ru|rp",
		},
		"instantly": {
			"Email,First Name,Last Name,IMAP Username,IMAP Password,IMAP Host,IMAP Port,SMTP Username,SMTP Password,SMTP Host,SMTP Port,Daily Limit,Warmup Enabled,Warmup Limit,Warmup Increment",
			`ann@boxes.test|'=Ann "A",|Lee|ann@boxes.test|=p,"w'+ é|` + host + `|2143|ann@boxes.test|=p,"w'+ é|` + host + `|2587|40|false||`,
			"ext@elsewhere.test|Ext||iu|ip|imap.elsewhere.test|993|su|sp|smtp.elsewhere.test|465||false||",
			"in@elsewhere.test|||ru|rp|imap.elsewhere.test|143|ru|rp||||false||",
		},
		"emailbison": {
			"Name,Email,Password,IMAP Server,IMAP Port,SMTP Server,SMTP Port,Daily Limit,SMTP Secure,IMAP Secure",
			`'=Ann "A", Lee|ann@boxes.test|=p,"w'+ é|` + host + `|2143|` + host + `|2587|40|false|false`,
			"Ext|ext@elsewhere.test|ip|imap.elsewhere.test|993|smtp.elsewhere.test|465||true|true",
			"|in@elsewhere.test|rp|imap.elsewhere.test|143||||false|false",
		},
	} {
		r := b.export(`{"format":"`+format+`","all":true}`).is(200).has("format", format, "count", "3", "content_type", "text/csv; charset=utf-8", "expires_in", "900")
		rows := b.fetch(r).rows()
		if len(rows) != len(want) {
			t.Fatalf("%s: rows %q", format, rows)
		}
		for i, row := range rows {
			sep := "|"
			if i == 0 {
				sep = ","
			}
			if got := strings.Join(row, sep); got != want[i] {
				t.Errorf("%s: row %d is\n%s, want\n%s", format, i, got, want[i])
			}
		}
		listed := b.get("/v1/export/formats").is(200).has("count", "6")
		if at := indexOf(listed.list("data", "id"), format); at < 0 || listed.text(fmt.Sprintf("data.%d.columns", at)) != "["+strings.ReplaceAll(want[0], ",", " ")+"]" {
			t.Errorf("formats %s", listed.raw)
		}
	}
}

func indexOf(list []string, text string) int {
	for i, s := range list {
		if s == text {
			return i
		}
	}
	return -1
}

func TestExportAsJSON(t *testing.T) {
	b := newSandbox(t, nil)
	empty := b.fetch(b.export(`{"format":"json","all":true}`).has("count", "0"))
	if v, isArray := empty.json.([]any); !isArray || len(v) != 0 {
		t.Errorf("an empty export is %s", empty.raw)
	}
	b.boxesToExport()
	r := b.export(`{"format":"json","all":true}`).is(200).has("content_type", "application/json; charset=utf-8", "count", "3")
	if !regexp.MustCompile(`^mailstead-json-\d{8}-\d{6}\.json$`).MatchString(r.text("filename")) {
		t.Errorf("filename %s", r.text("filename"))
	}
	file := b.fetch(r).is(200)
	if _, bare := file.json.([]any); !bare {
		t.Fatalf("no bare array: %s", file.raw)
	}
	file.has("0.email", "ann@boxes.test", "0.username", "ann", "0.domain", "boxes.test", "0.domain_id", b.domain, "0.name", `=Ann "A", Lee`, "0.password", `=p,"w'+ é`,
		"0.smtp_host", "mail.example.test", "0.smtp_port", "2587", "0.smtp_security", "none", "0.imap_host", "mail.example.test", "0.imap_port", "2143", "0.imap_security", "none",
		"0.footer", "- Ann\nSales", "0.type", "hosted", "0.status", "active", "0.daily_send_limit", "40",
		"1.password", "ip", "1.smtp_username", "su", "1.smtp_password", "sp", "1.imap_username", "iu", "1.imap_password", "ip", "2.footer", "<nil>")
	var names []string
	dec := json.NewDecoder(bytes.NewReader(file.raw))
	for depth := 0; ; {
		token, err := dec.Token()
		if err == io.EOF || token == json.Delim('}') {
			break
		}
		if text, isText := token.(string); isText && depth%2 == 0 {
			names = append(names, text)
			depth++
		} else if token != json.Delim('[') && token != json.Delim('{') {
			depth++
		}
	}
	formats := b.get("/v1/export/formats").is(200)
	if got := "[" + strings.Join(names, " ") + "]"; got != formats.text("data.4.columns") {
		t.Errorf("fields %s, but the columns are %s", got, formats.text("data.4.columns"))
	}
}

// TestExportWithOwnColumns has columns that the request gives, and the fields that all formats
// have.
func TestExportWithOwnColumns(t *testing.T) {
	b := newSandbox(t, nil)
	b.boxesToExport()
	r := b.export(`{"format":"columns","all":true,"columns":[
		{"header":"Login","value":"{smtp_username}"},
		{"header":"Server, with \"port\"","value":"smtp://{smtp_host}:{smtp_port}"},
		{"header":"name","value":"{name}"},
		{"header":"name","value":"{name}","raw":true},
		{"header":"=1+1","value":"@{{{username}}} {daily_send_limit}"},
		{"header":"constant","value":"","raw":false},
		{"header":"Password","value":"{password}","raw":true}]}`).is(200)
	r.has("format", "columns", "count", "3", "content_type", "text/csv; charset=utf-8")
	if !strings.HasPrefix(r.text("filename"), "mailstead-columns-") {
		t.Errorf("filename %s", r.text("filename"))
	}
	want := []string{
		`Login|Server, with "port"|name|name|=1+1|constant|Password`,
		`ann@boxes.test|smtp://mail.example.test:2587|'=Ann "A", Lee|=Ann "A", Lee|'@{ann} 40||=p,"w'+ é`,
		`su|smtp://smtp.elsewhere.test:465|Ext|Ext|'@{ext} ||ip`,
		`ru|smtp://:|||'@{in} ||rp`,
	}
	for i, row := range b.fetch(r).rows() {
		if got := strings.Join(row, "|"); i >= len(want) || got != want[i] {
			t.Errorf("row %d is\n%s, want\n%s", i, got, want[min(i, len(want)-1)])
		}
	}
	formats := b.get("/v1/export/formats").is(200)
	if formats.text("data.5.id") != "columns" || formats.text("data.5.columns") != formats.text("data.4.columns") {
		t.Errorf("formats %s", formats.raw)
	}
}

func TestExportPicks(t *testing.T) {
	b := newSandbox(t, nil)
	more := b.Domain(t, b.Owner.AccountID, "more.test", "builtin", "complete").ID
	ann, bob := b.box("ann"), b.box("bob")
	b.post("/v1/email-users", `{"email":"carl@more.test"}`).is(201)
	b.post("/v1/email-users", `{"email":"dora@more.test"}`).is(201)
	b.get("/v1/jobs/"+b.remove("/v1/email-users/"+bob).is(200).text("job_id")+"?wait=10").has("status", "completed")
	for body, want := range map[string]string{
		`{"all":true}`:              "ann@boxes.test carl@more.test dora@more.test",
		`{"domains":["MORE.test"]}`: "carl@more.test dora@more.test",
		`{"domains":["` + more + `","boxes.test","more.test"]}`:                       "carl@more.test dora@more.test ann@boxes.test",
		`{"emails":["Dora@more.test","ann@boxes.test","dora@more.test"],"all":false}`: "dora@more.test ann@boxes.test",
		`{"user_ids":["` + ann + `"],"domains":null}`:                                 "ann@boxes.test",
	} {
		r := b.export(body)
		var got []string
		for _, row := range b.fetch(r).rows()[1:] {
			got = append(got, row[1])
		}
		if strings.Join(got, " ") != want || r.text("count") != fmt.Sprint(len(got)) {
			t.Errorf("%s: %q, count %s", body, got, r.text("count"))
		}
	}
}

func TestExportRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	gone := b.box("gone")
	b.remove("/v1/email-users/" + gone).is(200)
	foreign := b.Account(t, "other@example.test")
	b.Domain(t, foreign.AccountID, "foreign.test", "builtin", "complete")
	theirs := b.with(foreign.Token).post("/v1/email-users", `{"email":"x@foreign.test"}`).is(201).text("id")
	for body, want := range map[string]string{
		``:                              "exactly_one_parameter",
		`{}`:                            "exactly_one_parameter",
		`{"all":false}`:                 "exactly_one_parameter",
		`{"all":true,"emails":["a@b"]}`: "exactly_one_parameter",
		`{"domains":["boxes.test"],"user_ids":["x"]}`:                                          "exactly_one_parameter",
		`{"format":"xml","all":true}`:                                                          "validation_error format",
		`{"format":7,"all":true}`:                                                              "validation_error format",
		`{"format":"columns","all":true}`:                                                      "validation_error columns",
		`{"format":"columns","all":true,"columns":[]}`:                                         "validation_error columns",
		`{"all":true,"columns":[{"header":"a","value":"b"}]}`:                                  "validation_error columns",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"b"},{"value":"b"}]}`: "validation_error columns.1.header",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"b"},{"header":"a","value":"{email} {nothing}"}]}`:                                                                        "validation_error columns.1.value {nothing}",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"{Email}"}]}`:                                                                                                             "validation_error columns.0.value {Email}",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"{email"}]}`:                                                                                                              "validation_error columns.0.value {{",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"{{email}"}]}`:                                                                                                            "validation_error columns.0.value }}",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"{}"}]}`:                                                                                                                  "validation_error columns.0.value {}",
		`{"format":"columns","all":true,"columns":[` + strings.Repeat(`{"header":"a","value":""},`, 60) + `{"header":"a","value":""}]}`:                                                            "too_many_items columns",
		`{"format":"columns","all":true,"columns":[` + strings.Repeat(`{"header":"a","value":""},`, 9) + `{"header":"a","value":"` + strings.Repeat("{footer}", 121) + `"}]}`:                      "too_many_items columns",
		`{"format":"columns","all":true,"columns":[{"header":"a","value":"` + strings.Repeat("é", 900) + `"}` + strings.Repeat(`,{"header":"a","value":"`+strings.Repeat("é", 900)+`"}`, 9) + `]}`: "too_many_items columns",
		`{"domains":[]}`:                                           "validation_error domains",
		`{"domains":"boxes.test"}`:                                 "validation_error domains",
		`{"domains":["boxes.test","nowhere.test"]}`:                "validation_error domains.1 nowhere.test",
		`{"domains":["foreign.test"]}`:                             "validation_error domains.0 foreign.test",
		`{"emails":["x@foreign.test"]}`:                            "validation_error emails.0 x@foreign.test",
		`{"emails":["gone@boxes.test"]}`:                           "validation_error emails.0 gone@boxes.test",
		`{"emails":["no address"]}`:                                "validation_error emails.0",
		`{"user_ids":["` + theirs + `"]}`:                          "validation_error user_ids.0 " + theirs,
		`{"user_ids":["` + gone + `"]}`:                            "validation_error user_ids.0 " + gone,
		`{"all":"yes"}`:                                            "validation_error all",
		`{"user_ids":["` + strings.Repeat(`x","`, 10_000) + `x"]}`: "too_many_items user_ids",
		`{"all":true}{}`:                                           "invalid_json",
	} {
		code, rest, _ := strings.Cut(want, " ")
		field, name, _ := strings.Cut(rest, " ")
		r := b.post("/v1/export", body).fails(400, code).has("error.details.0.field", field)
		if !strings.Contains(r.text("error.details.0.message"), name) || !strings.Contains(r.text("error.message"), name) {
			t.Errorf("%s does not name %s: %s", body, name, r.raw)
		}
	}
	b.post("/v1/export", `{"all":true}`).is(200) // none of them has used the five seconds up
	member := b.with(b.Token(t, b.Owner.AccountID, "member", "write"))
	member.post("/v1/export", `{"all":true}`).fails(403, "forbidden_role")
	member.get("/v1/export/formats").is(200)
	b.with(b.Token(t, b.Owner.AccountID, "admin", "read")).post("/v1/export", `{"all":true}`).fails(403, "insufficient_scope")
}

func TestExportIsOnceInFiveSeconds(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.with(b.Account(t, "other@example.test").Token)
	b.post("/v1/export", `{"all":true}`).is(200)
	for range 2 { // being refused does not start the time again
		r := b.post("/v1/export", `{"all":true,"inline":true}`).fails(429, "export_rate_limited")
		if s := r.header.Get("Retry-After"); s == "" || s > "5" || s != r.text("error.retry_after") {
			t.Errorf("Retry-After %q: %s", s, r.raw)
		}
	}
	b.post("/v1/export", `{"all":true,"domains":["x"]}`).fails(400, "exactly_one_parameter")
	other.post("/v1/export", `{"all":true,"inline":true}`).is(200)
	other.post("/v1/export", `{"all":true}`).fails(429, "export_rate_limited")
	b.AgeExports(t, b.Owner.AccountID, 5*time.Second)
	b.post("/v1/export", `{"all":true}`).is(200)
}

func TestExportInline(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	for _, r := range []*reply{
		b.export(`{"all":true,"inline":true}`),
		b.export(`{"all":true}`, "Accept", "text/csv"),
		b.export(`{"all":true}`, "Accept", "text/html;q=0.5, text/csv"),
	} {
		if rows := r.rows(); len(rows) != 2 || rows[1][1] != "ann@boxes.test" || rows[1][4] != "correct horse" {
			t.Errorf("rows %q", rows)
		}
		if d := r.header.Get("Content-Disposition"); !strings.HasPrefix(d, "attachment; filename=mailstead-default-") || r.header.Get("Content-Type") != "text/csv; charset=utf-8" {
			t.Errorf("headers %v", r.header)
		}
	}
	for _, accept := range []string{"*/*", "application/json, text/csv", "text/csv;q=0", "text/*", ";;"} {
		b.export(`{"all":true}`, "Accept", accept).is(200).has("count", "1")
	}
	b.export(`{"all":true,"inline":true,"format":"json"}`).is(200).has("0.email", "ann@boxes.test")
}

func TestExportLinkWorksOnce(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	made := b.export(`{"all":true}`)
	if !strings.HasPrefix(made.text("export_id"), "exp_") {
		t.Errorf("export %s", made.raw)
	}
	link, _ := strings.CutPrefix(made.text("download_url"), b.Core.Config.BaseURL)
	stranger := b.with("")
	for _, method := range []string{"HEAD", "POST"} {
		if r := stranger.do(method, link, nil); r.status != 405 || r.header.Get("Allow") != "GET" {
			t.Errorf("%s: %d %v", method, r.status, r.header)
		}
	}
	file := stranger.get(link).is(200)
	for name, want := range map[string]string{
		"Content-Type": "text/csv; charset=utf-8", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Content-Disposition": "attachment; filename=" + made.text("filename"), "Content-Security-Policy": "default-src 'none'; sandbox",
	} {
		if got := file.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	stranger.get(link).fails(404, "not_found")
	stranger.get(link+"x").fails(404, "not_found")
	stranger.get("/export/").fails(404, "not_found")
	if len(file.rows()) != 2 {
		t.Errorf("file %s", file.raw)
	}
}

// TestExportLinkIsFoundByOne has many follow the same link at once, and many exports be asked for
// at once.
func TestExportLinkIsFoundByOne(t *testing.T) {
	b := newSandbox(t, nil)
	link, _ := strings.CutPrefix(b.export(`{"all":true}`).text("download_url"), b.Core.Config.BaseURL)
	b.AgeExports(t, b.Owner.AccountID, 5*time.Second)
	var wg sync.WaitGroup
	var fetched, made atomic.Int32
	for range 8 {
		wg.Go(func() {
			if b.with("").get(link).status == 200 {
				fetched.Add(1)
			}
			if b.post("/v1/export", `{"all":true}`).status == 200 {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	if fetched.Load() != 1 || made.Load() != 1 {
		t.Errorf("%d got the file, and %d made another", fetched.Load(), made.Load())
	}
}

func TestExportLinkEnds(t *testing.T) {
	b := newSandbox(t, nil)
	late := b.export(`{"all":true}`)
	b.AgeExports(t, b.Owner.AccountID, 900*time.Second)
	b.fetch(late).fails(404, "not_found")
	id := b.invite("ann@team.test", "admin")
	for _, end := range []func(){
		func() { b.patch(users+"/"+id, `{"role":"member"}`).is(200) },
		func() { b.patch(users+"/"+id, `{"role":"admin"}`).is(200); b.remove(users + "/" + id).is(200) },
	} {
		b.AgeExports(t, b.Owner.AccountID, 5*time.Second)
		b.patch(users+"/"+id, `{"role":"admin"}`).is(200)
		link := b.tokenOf("ann@team.test", "write").post("/v1/export", `{"all":true}`)
		end()
		b.fetch(link).fails(404, "not_found")
	}
}

// An export can have passwords of its own, which work and are named after it.
func TestExportWithAppPasswords(t *testing.T) {
	b := newSandbox(t, nil)
	b.boxesToExport()
	r := b.export(`{"format":"json","all":true,"app_passwords":true}`).is(200)
	var rows []struct {
		Email, Password, Type string
		IMAPPassword          string `json:"imap_password"`
	}
	if err := json.Unmarshal(b.fetch(r).raw, &rows); err != nil || len(rows) != 3 {
		t.Fatalf("%v, %v", rows, err)
	}
	for _, row := range rows {
		if row.Type != "hosted" {
			if row.IMAPPassword != "ip" && row.IMAPPassword != "rp" {
				t.Errorf("%s: %q", row.Email, row.IMAPPassword)
			}
			continue
		}
		if row.Password != row.IMAPPassword || len(row.Password) < 20 {
			t.Errorf("%s: %q", row.Email, row.Password)
		}
		if _, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: core.ProtocolIMAP, Username: row.Email, Password: row.Password, IP: "192.0.2.1"}); err != nil {
			t.Errorf("%s: %v", row.Email, err)
		}
	}
	id := b.get("/v1/email-users?q=ann").text("data.0.user_id")
	path := "/v1/email-users/" + id + "/credentials"
	b.get(path).is(200).has("count", "1", "data.0.name", "export "+r.text("export_id"), "data.0.protocols.0", "imap")
	for range 24 {
		b.post(path, `{"name":"one more"}`).is(201)
	}
	b.AgeExports(t, b.Owner.AccountID, 5*time.Second)
	b.post("/v1/export", `{"all":true,"app_passwords":true}`).fails(403, "credential_limit_reached")
}

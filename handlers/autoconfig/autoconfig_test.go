package autoconfig

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A sandbox is a service with a domain, boxes.test.
type sandbox struct{ *servicetest.Sandbox }

func newSandbox(t *testing.T, change func(*core.Config)) *sandbox {
	t.Helper()
	b := servicetest.New(t, change)
	b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
	return &sandbox{b}
}

// visitor asks for documents by host.
type visitor struct {
	t *testing.T
	s *Server
}

func (b *sandbox) visitor(t *testing.T) visitor { return visitor{t, &Server{b.Service, time.Now}} }

// ask does what the HTTP server does with a request.
func (v visitor) ask(method, host, uri, body string) *http.Response {
	v.t.Helper()
	r := httptest.NewRequestWithContext(v.t.Context(), method, "http://"+host+uri, strings.NewReader(body))
	w := httptest.NewRecorder()
	var document *Document
	for _, d := range Documents() {
		if d.Path == PathOf(r.URL.Path) {
			document = d
		}
	}
	answered, err := v.s.Answer(w, r, document)
	if err != nil {
		v.t.Fatal(err)
	}
	if !answered {
		http.NotFound(w, r)
	}
	return w.Result()
}

// get returns a document that must be there.
func (v visitor) get(host, uri, contentType string) string {
	v.t.Helper()
	resp := v.ask("GET", host, uri, "")
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != contentType || resp.Header.Get("Cache-Control") != "public, max-age=3600" {
		v.t.Fatalf("%s%s: %d %v %s, %v", host, uri, resp.StatusCode, resp.Header, text, err)
	}
	return string(text)
}

// outlook posts a request as Outlook does.
func (v visitor) outlook(host, uri, email, schema string) string {
	v.t.Helper()
	resp := v.ask("POST", host, uri, `<?xml version="1.0" encoding="utf-8"?>
<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/requestschema/2006"><Request>
<EMailAddress>`+email+`</EMailAddress><AcceptableResponseSchema>`+schema+`</AcceptableResponseSchema></Request></Autodiscover>`)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/xml; charset=utf-8" || resp.Header.Get("Cache-Control") != "no-store" {
		v.t.Fatalf("%s%s: %d %v %s, %v", host, uri, resp.StatusCode, resp.Header, text, err)
	}
	return string(text)
}

func (v visitor) status(want int, method, host, uri string) *http.Response {
	v.t.Helper()
	resp := v.ask(method, host, uri, "")
	if resp.StatusCode != want {
		v.t.Errorf("%s %s%s: %d, want %d", method, host, uri, resp.StatusCode, want)
	}
	return resp
}

// tool finds a program that checks documents; in CI it must be there.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing; run .ci/peers", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// run passes a text to a program, which must succeed, and returns its output.
func run(t *testing.T, text, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s\nof\n%s", name, args, err, out, text)
	}
	return string(out)
}

// withTLS is an installation in production, with every port.
func withTLS(c *core.Config) {
	c.SubmissionPort, c.SMTPSecurity, c.SubmissionBeside = 465, "tls", 587
	c.IMAPPort, c.IMAPSecurity, c.IMAPBeside = 993, "tls", 143
	c.HTTPS, c.HTTPSPort = true, 443
}

const ours, outlookSchema = "mail.example.test", "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"

func TestMTASTSPolicy(t *testing.T) {
	b := newSandbox(t, withTLS)
	v := b.visitor(t)
	got := v.get("MTA-STS.boxes.test:8080", "/.well-known/mta-sts.txt", "text/plain; charset=utf-8")
	if want := "version: STSv1\r\nmode: enforce\r\nmx: mail.example.test\r\nmax_age: 604800\r\n"; got != want {
		t.Errorf("policy %q", got)
	}
	b.Domain(t, b.Owner.AccountID, "far.test", "external", "complete")
	b.Domain(t, b.Owner.AccountID, "early.test", "builtin", "pending_ns")
	for _, host := range []string{"boxes.test", "autoconfig.boxes.test", "mta-sts.early.test", "mta-sts.far.test", "mta-sts.nobody.test", "mta-sts.x.boxes.test", "mta-sts", ours, "127.0.0.1"} {
		v.status(404, "GET", host, "/.well-known/mta-sts.txt")
	}
	v.status(404, "GET", "mta-sts.boxes.test", "/")
	v.status(404, "GET", "mta-sts.boxes.test", "/v1/account")
	if resp := v.status(405, "POST", "mta-sts.boxes.test", "/.well-known/mta-sts.txt"); resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("Allow %q", resp.Header.Get("Allow"))
	}
	if resp := v.status(200, "HEAD", "mta-sts.boxes.test", "/.well-known/mta-sts.txt"); resp.ContentLength <= 0 {
		t.Errorf("HEAD: %v", resp.Header)
	}
}

func TestAutoconfig(t *testing.T) {
	b := newSandbox(t, withTLS)
	b.Domain(t, b.Owner.AccountID, "xn--mnchen-3ya.test", "builtin", "complete")
	v := b.visitor(t)
	for _, at := range []struct{ host, uri, user, domain string }{
		{"autoconfig.boxes.test", "/mail/config-v1.1.xml", "%EMAILADDRESS%", "boxes.test"},
		{"autoconfig.boxes.test", "/mail/config-v1.1.xml?emailaddress=Ann%40boxes.test", "ann@boxes.test", "boxes.test"},
		{"autoconfig.boxes.test", "/mail/config-v1.1.xml?emailaddress=ann%40xn--mnchen-3ya.test", "%EMAILADDRESS%", "boxes.test"},
		{"boxes.test", "/.well-known/autoconfig/mail/config-v1.1.xml?emailaddress=%22%3C%26%22@boxes.test", `"<&"@boxes.test`, "boxes.test"},
		{ours, "/mail/config-v1.1.xml?emailaddress=nobody%40xn--mnchen-3ya.test", "nobody@xn--mnchen-3ya.test", "xn--mnchen-3ya.test"},
	} {
		text := v.get(at.host, at.uri, "text/xml; charset=utf-8")
		run(t, text, "xmllint", "--noout", "--nonet", "--relaxng", filepath.Join("testdata", "clientconfig.rng"), "-")
		var got clientConfig
		if err := xml.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		want := newClientConfig(&mailboxes.MailSettings{
			Domain: at.domain, Name: got.Provider.Name,
			IMAP: []core.MailServer{{Host: ours, Port: 993, Security: "tls"}, {Host: ours, Port: 143, Security: "starttls"}},
			SMTP: []core.MailServer{{Host: ours, Port: 465, Security: "tls"}, {Host: ours, Port: 587, Security: "starttls"}},
		}, at.user)
		want.XMLName = got.XMLName
		if g, w := asJSON(t, got), asJSON(t, want); g != w {
			t.Errorf("%s%s:\n got %s\nwant %s", at.host, at.uri, g, w)
		}
	}
	if text := v.get(ours, "/mail/config-v1.1.xml?emailaddress=x%40xn--mnchen-3ya.test", "text/xml; charset=utf-8"); !strings.Contains(text, "<displayName>münchen.test</displayName>") {
		t.Errorf("no name in its own letters: %s", text)
	}
	v.status(404, "GET", ours, "/mail/config-v1.1.xml")
	v.status(404, "GET", ours, "/mail/config-v1.1.xml?emailaddress=ann@nobody.test")
	v.status(404, "GET", "autoconfig.nobody.test", "/mail/config-v1.1.xml?emailaddress=ann@boxes.test")
	v.status(404, "GET", "boxes.test", "/mail/config-v1.1.xml")
	v.status(404, "GET", "autodiscover.boxes.test", "/mail/config-v1.1.xml")
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whether a mailbox exists shows nowhere.
func TestDiscoveryDoesNotTellMailboxes(t *testing.T) {
	b := newSandbox(t, withTLS)
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Email: "real@boxes.test"}); err != nil {
		t.Fatal(err)
	}
	v := b.visitor(t)
	same := func(a, b string) {
		t.Helper()
		if strings.ReplaceAll(a, "real@", "fake@") != b {
			t.Errorf("they differ:\n%s\n%s", a, b)
		}
	}
	of := func(name string) string {
		return v.get("autoconfig.boxes.test", "/mail/config-v1.1.xml?emailaddress="+name+"@boxes.test", "text/xml; charset=utf-8")
	}
	same(of("real"), of("fake"))
	same(v.outlook("autodiscover.boxes.test", "/autodiscover/autodiscover.xml", "real@boxes.test", ""), v.outlook("autodiscover.boxes.test", "/autodiscover/autodiscover.xml", "fake@boxes.test", ""))
}

func TestOutlookAutodiscover(t *testing.T) {
	b := newSandbox(t, withTLS)
	v := b.visitor(t)
	valid := func(text string) string {
		t.Helper()
		run(t, text, "xmllint", "--noout", "--nonet", "--schema", filepath.Join("testdata", "autodiscover.xsd"), "-")
		return text
	}
	for host, uri := range map[string]string{"autodiscover.boxes.test": "/autodiscover/autodiscover.xml", "boxes.test": "/Autodiscover/Autodiscover.xml", ours: "/AutoDiscover/autodiscover.xml"} {
		text := valid(v.outlook(host, uri, "Ann@Boxes.test", outlookSchema))
		for _, want := range []string{
			`<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006">`, `<Response xmlns="` + outlookSchema + `">`,
			"<Type>IMAP</Type>", "<Type>SMTP</Type>", "<Server>mail.example.test</Server>", "<Port>993</Port>", "<Port>465</Port>",
			"<LoginName>ann@boxes.test</LoginName>", "<Encryption>SSL</Encryption>", "<AuthRequired>on</AuthRequired>",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", host, want, text)
			}
		}
	}
	for _, tc := range []struct{ host, email, schema, code string }{
		{"autodiscover.boxes.test", "ann@nobody.test", outlookSchema, "500"},
		{"autodiscover.boxes.test", "not an address", "", "500"},
		{"autodiscover.boxes.test", "", "", "600"},
		{"boxes.test", "<x/>", "", "600"},
		{"boxes.test", "ann@boxes.test", "http://schemas.microsoft.com/exchange/autodiscover/mobilesync/responseschema/2006", "601"},
	} {
		if text := valid(v.outlook(tc.host, "/autodiscover/autodiscover.xml", tc.email, tc.schema)); !strings.Contains(text, "<ErrorCode>"+tc.code+"</ErrorCode>") {
			t.Errorf("%+v: %s", tc, text)
		}
	}
	if resp := v.ask("POST", "boxes.test", "/autodiscover/autodiscover.xml", strings.Repeat(" ", 20<<10)); resp.StatusCode != 413 {
		t.Errorf("a long request: %d", resp.StatusCode)
	}
	if resp := v.status(302, "GET", "autodiscover.boxes.test", "/autodiscover/autodiscover.xml"); resp.Header.Get("Location") != "https://mail.example.test/autodiscover/autodiscover.xml" {
		t.Errorf("GET leads to %q", resp.Header.Get("Location"))
	}
	v.status(405, "GET", ours, "/autodiscover/autodiscover.xml")
	v.status(405, "PUT", "boxes.test", "/autodiscover/autodiscover.xml")
	v.status(404, "POST", "nobody.test", "/autodiscover/autodiscover.xml")
}

func TestAutodiscoverJSON(t *testing.T) {
	b := newSandbox(t, withTLS)
	v := b.visitor(t)
	const at = "/autodiscover/autodiscover.json"
	for _, uri := range []string{at + "?Email=ann@boxes.test&Protocol=AutodiscoverV1&RedirectCount=1", "/Autodiscover/Autodiscover.json?email=x@boxes.test&protocol=autodiscoverv1", at + "/v1.0/ann@boxes.test?Protocol=Autodiscoverv1"} {
		if got := v.get("autodiscover.boxes.test", uri, "application/json"); got != `{"Protocol":"AutodiscoverV1","Url":"https://mail.example.test/autodiscover/autodiscover.xml"}` {
			t.Errorf("%s: %s", uri, got)
		}
	}
	v.status(400, "GET", "autodiscover.boxes.test", at)
	v.status(400, "GET", "autodiscover.boxes.test", at+"?Email=ann@boxes.test")
	v.status(400, "GET", "autodiscover.boxes.test", at+"?Email=ann@boxes.test&Protocol=ActiveSync")
	v.status(404, "GET", "autodiscover.boxes.test", at+"?Email=ann@nobody.test&Protocol=AutodiscoverV1")
}

const readPlist = `import json, plistlib, sys
print(json.dumps(plistlib.loads(sys.stdin.buffer.read())))`

func TestAppleProfile(t *testing.T) {
	b := newSandbox(t, withTLS)
	v := b.visitor(t)
	text := v.get("autoconfig.boxes.test", "/mail/boxes.mobileconfig?email=Ann@boxes.test", "application/x-apple-aspen-config")
	if again := v.get(ours, "/mail/any.mobileconfig?email=ann@boxes.test", "application/x-apple-aspen-config"); again != text {
		t.Errorf("it changes:\n%s\n%s", text, again)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(run(t, text, "python3", "-c", readPlist)), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"PayloadType": "Configuration", "PayloadVersion": 1.0, "PayloadRemovalDisallowed": false}
	contents, _ := got["PayloadContent"].([]any)
	if len(contents) != 1 {
		t.Fatalf("%s", text)
	}
	mail, _ := contents[0].(map[string]any)
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	for key, value := range map[string]any{
		"PayloadType": "com.apple.mail.managed", "PayloadVersion": 1.0, "EmailAccountType": "EmailTypeIMAP", "EmailAddress": "ann@boxes.test",
		"IncomingMailServerAuthentication": "EmailAuthPassword", "IncomingMailServerHostName": ours, "IncomingMailServerPortNumber": 993.0,
		"IncomingMailServerUseSSL": true, "IncomingMailServerUsername": "ann@boxes.test",
		"OutgoingMailServerAuthentication": "EmailAuthPassword", "OutgoingMailServerHostName": ours, "OutgoingMailServerPortNumber": 465.0,
		"OutgoingMailServerUseSSL": true, "OutgoingMailServerUsername": "ann@boxes.test", "OutgoingPasswordSameAsIncomingPassword": true,
	} {
		if mail[key] != value {
			t.Errorf("%s is %v, want %v", key, mail[key], value)
		}
	}
	seen := map[any]bool{}
	for _, of := range []map[string]any{got, mail} {
		for _, key := range []string{"PayloadUUID", "PayloadIdentifier"} {
			if of[key] == nil || seen[of[key]] {
				t.Errorf("%s is %v", key, of[key])
			}
			seen[of[key]] = true
		}
	}
	other := v.get(ours, "/mail/any.mobileconfig?email=bob@boxes.test", "application/x-apple-aspen-config")
	if id, _ := got["PayloadUUID"].(string); strings.Contains(other, id) {
		t.Error("two people have one profile")
	}
	odd := v.get("autoconfig.boxes.test", "/mail/boxes.mobileconfig?email=o%27neill%26co%40boxes.test", "application/x-apple-aspen-config")
	if got := run(t, odd, "python3", "-c", readPlist); !strings.Contains(got, `"EmailAddress": "o'neill&co@boxes.test"`) {
		t.Errorf("%s", got)
	}
	v.status(400, "GET", "autoconfig.boxes.test", "/mail/x.mobileconfig")
	v.status(404, "GET", "autoconfig.boxes.test", "/mail/x.mobileconfig?email=ann@nobody.test")
	v.status(404, "GET", "autoconfig.boxes.test", "/mail/a/b.mobileconfig?email=ann@boxes.test")
	v.status(404, "GET", "boxes.test", "/mail/x.mobileconfig?email=ann@boxes.test")
}

// RFC 9562 appendix A.4 has another name space; this value is that of Python's uuid5(NAMESPACE_URL,
// ...).
func TestNamesOfProfiles(t *testing.T) {
	if got := nameUUID("mail.example.test"); got != strings.ToUpper(strings.TrimSpace(run(t, "", "python3", "-c", `import uuid; print(uuid.uuid5(uuid.NAMESPACE_URL, "mail.example.test"))`))) {
		t.Errorf("%s", got)
	}
}

// What is off is left out, and what has no TLS is told as such.
func TestDiscoveryTellsWhatIsOn(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.IMAPPort = 0 }) // submission without TLS
	v := b.visitor(t)
	text := v.get("autoconfig.boxes.test", "/mail/config-v1.1.xml", "text/xml; charset=utf-8")
	if strings.Contains(text, "incomingServer") || !strings.Contains(text, "<port>2587</port>") || !strings.Contains(text, "<socketType>plain</socketType>") {
		t.Errorf("%s", text)
	}
	answer := v.outlook("boxes.test", "/autodiscover/autodiscover.xml", "a@boxes.test", "")
	if strings.Contains(answer, "IMAP") || !strings.Contains(answer, "<Encryption>None</Encryption>") || !strings.Contains(answer, "<SSL>off</SSL>") {
		t.Errorf("%s", answer)
	}
	v.status(404, "GET", "autoconfig.boxes.test", "/mail/x.mobileconfig?email=a@boxes.test")
	v.status(405, "GET", "autodiscover.boxes.test", "/autodiscover/autodiscover.xml") // nowhere to send it to
	b = newSandbox(t, func(c *core.Config) { c.IMAPPort, c.SubmissionPort = 0, 0 })
	b.visitor(t).status(404, "GET", "autoconfig.boxes.test", "/mail/config-v1.1.xml")
}

// FuzzAutodiscoverRequest: whatever is posted is refused or has an address, and is read without
// leaving the text.
func FuzzAutodiscoverRequest(f *testing.F) {
	f.Add(`<Autodiscover><Request><EMailAddress>a@b.test</EMailAddress></Request></Autodiscover>`)
	f.Add(`<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><Autodiscover><Request><EMailAddress>&y;</EMailAddress></Request></Autodiscover>`)
	f.Add(`<a:Autodiscover xmlns:a="x"><a:Request><a:EMailAddress>a&amp;<![CDATA[b]]></a:EMailAddress></a:Request></a:Autodiscover>`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseAutodiscover([]byte(text))
		if err != nil {
			if !errors.Is(err, errNoRequest) {
				t.Fatalf("%v", err)
			}
			return
		}
		if got.Email == "" || len(got.Email)+len(got.Schema) > 4*len(text) {
			t.Fatalf("%q gave %+v", text, got)
		}
	})
}

func TestAutodiscoverRequestHasNoEntities(t *testing.T) {
	for _, text := range []string{
		`<!DOCTYPE x [<!ENTITY y "z">]><Autodiscover><Request><EMailAddress>&y;@b.test</EMailAddress></Request></Autodiscover>`,
		`<Autodiscover><Request><EMailAddress>&y;@b.test</EMailAddress></Request></Autodiscover>`,
		`<Autodiscover><Request><EMailAddress>a@b.test</EMailAddress></Request>`,
		`<Autodiscover><EMailAddress>a@b.test</EMailAddress></Autodiscover>`,
		`<?xml version="1.0" encoding="utf-16"?><Autodiscover/>`, ``, `a@b.test`,
	} {
		if got, err := parseAutodiscover([]byte(text)); !errors.Is(err, errNoRequest) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

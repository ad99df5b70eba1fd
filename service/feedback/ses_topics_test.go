package feedback_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// fakeAWS is a fake of SNS and SES. It checks signatures (AWS Signature Version 4) with its own
// code, and accepts only one key.
type fakeAWS struct {
	t       *testing.T
	service string
	mu      sync.Mutex
	calls   []string
	policy  string
	denied  bool
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// checkSignature computes a request's signature from its parts, as described in Amazon's
// documentation.
func (f *fakeAWS) checkSignature(r *http.Request, body string) error {
	const prefix = "AWS4-HMAC-SHA256 "
	header := r.Header.Get("Authorization")
	if !strings.HasPrefix(header, prefix) {
		return fmt.Errorf("Authorization is %q", header)
	}
	fields := map[string]string{}
	for _, part := range strings.Split(header[len(prefix):], ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || time.Since(at).Abs() > 5*time.Minute {
		return fmt.Errorf("X-Amz-Date is %q", date)
	}
	scope := date[:8] + "/eu-west-1/" + f.service + "/aws4_request"
	if fields["Credential"] != "AKIDEXAMPLE/"+scope {
		return fmt.Errorf("Credential is %q", fields["Credential"])
	}
	signed := strings.Split(fields["SignedHeaders"], ";")
	if !slices.Contains(signed, "host") || !slices.Contains(signed, "x-amz-date") || !slices.Contains(signed, "content-type") || !slices.IsSorted(signed) {
		return fmt.Errorf("SignedHeaders is %q", signed)
	}
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	lines := []string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery}
	for _, name := range signed {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		lines = append(lines, name+":"+strings.Join(strings.Fields(value), " "))
	}
	lines = append(lines, "", strings.Join(signed, ";"), sum(body))
	key := mac(mac(mac(mac([]byte("AWS4s3cret"), date[:8]), "eu-west-1"), f.service), "aws4_request")
	want := hex.EncodeToString(mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", date, scope, sum(strings.Join(lines, "\n"))}, "\n")))
	if fields["Signature"] != want {
		return fmt.Errorf("the signature is wrong")
	}
	return nil
}

const topicARN = "arn:aws:sns:eu-west-1:123456789012:mailstead-mail-mailstead-test-r1"

func (f *fakeAWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q, err := url.ParseQuery(string(body))
	refuse := func(status int, code, text string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>x</RequestId></ErrorResponse>", code, text)
	}
	if err != nil || r.Method != "POST" || r.URL.Path != "/" {
		refuse(400, "InvalidAction", r.Method+" "+r.URL.Path)
		return
	}
	if err := f.checkSignature(r, string(body)); err != nil {
		refuse(403, "SignatureDoesNotMatch", err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.denied {
		refuse(403, "AuthorizationError", "User is not authorized to perform: "+q.Get("Action"))
		return
	}
	f.calls = append(f.calls, f.service+" "+q.Get("Action")+" "+q.Get("Identity")+q.Get("Endpoint")+" "+q.Get("NotificationType"))
	action := q.Get("Action")
	answer := ""
	switch f.service + " " + action + " " + q.Get("Version") {
	case "sns CreateTopic 2010-03-31":
		answer = "<TopicArn>arn:aws:sns:eu-west-1:123456789012:" + q.Get("Name") + "</TopicArn>"
	case "sns SetTopicAttributes 2010-03-31":
		f.policy = q.Get("AttributeValue")
	case "sns Subscribe 2010-03-31":
		if q.Get("TopicArn") != topicARN || q.Get("Protocol") != "https" {
			refuse(400, "InvalidParameter", "topic or protocol")
			return
		}
		answer = "<SubscriptionArn>pending confirmation</SubscriptionArn>"
	case "ses ListIdentities 2010-12-01":
		if q.Get("NextToken") == "" {
			answer = "<Identities><member>Example.test</member><member>stranger.test</member></Identities><NextToken>more</NextToken>"
		} else {
			answer = "<Identities><member>second.test</member></Identities>"
		}
	case "ses SetIdentityNotificationTopic 2010-12-01":
		if q.Get("SnsTopic") != topicARN {
			refuse(400, "InvalidParameterValue", "topic")
			return
		}
	default:
		refuse(400, "InvalidAction", action)
		return
	}
	fmt.Fprintf(w, `<%sResponse xmlns="http://example/"><%sResult>%s</%sResult></%sResponse>`, action, action, answer, action, action)
}

// TestTopicIsMade: with an access key, the topic of a relay's notices is created and subscribed to,
// and our domains report to it; until then notices must be sent again.
func TestTopicIsMade(t *testing.T) {
	sns, ses := &fakeAWS{t: t, service: "sns"}, &fakeAWS{t: t, service: "ses", denied: true}
	pool, address := x509.NewCertPool(), map[*fakeAWS]string{}
	for _, f := range []*fakeAWS{sns, ses} {
		server := httptest.NewTLSServer(f)
		t.Cleanup(server.Close)
		pool.AddCert(server.Certificate())
		address[f] = server.URL
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("AKIDEXAMPLE\ns3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	relay := core.Relay{
		Name: "r1", Kind: "ses", Host: "127.0.0.1", Port: 1, TLS: "none", Region: "eu-west-1", AccessKeyFile: key,
		SNSURL: address[sns], SESURL: address[ses],
	}
	i := servicetest.Install(t, core.Config{BaseURL: "https://mail.example.test", Settings: core.Settings{Relays: []core.Relay{relay}}, RootCAs: pool})
	i.AddDomain(i.Account, "example.test", nil)
	i.AddDomain(i.Account, "second.test", nil)
	notice := feedback.Request{Header: http.Header{}, Body: []byte(`{"Type":"Notification","TopicArn":"` + topicARN + `"}`)}
	take := func() string {
		return servicetest.ErrorCode(i.Svc.Feedback.TakeNotices(context.Background(), "ses", "r1", notice))
	}
	if code := take(); code != "not_configured" {
		t.Errorf("a notice before the topic is there: %s", code)
	}
	if err := i.Svc.Feedback.StartRoom(); err != nil {
		t.Fatal(err)
	}
	i.Run()
	calls := func(f *fakeAWS) []string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Clone(f.calls)
	}
	job := func() (out *store.Job) {
		if err := i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.Kind == "ses_topic" {
					out = j
				}
			}
			return nil
		}); err != nil || out == nil {
			t.Fatalf("no job: %v", err)
		}
		return out
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited too long until %s: %v, %v; %s", what, calls(sns), calls(ses), job().Err)
			}
		}
	}
	until("SES refuses", func() bool { return job().Attempt == 1 && job().State == store.JobQueued })
	if code := take(); code != "forbidden" {
		t.Errorf("a notice without a signature: %s", code)
	}
	ses.mu.Lock()
	ses.denied = false
	ses.mu.Unlock()
	i.Update(func(tx *store.Tx) error { return i.Q.Wake(tx, job().ID, tx.Now()) })
	until("all report", func() bool { return len(calls(ses)) == 6 })
	want := []string{"ses ListIdentities  ", "ses SetIdentityNotificationTopic Example.test Bounce", "ses SetIdentityNotificationTopic Example.test Complaint",
		"ses ListIdentities  ", "ses SetIdentityNotificationTopic second.test Bounce", "ses SetIdentityNotificationTopic second.test Complaint"}
	if got := calls(ses); !slices.Equal(got, want) {
		t.Errorf("SES was asked for %q", got)
	}
	if got := calls(sns); !slices.Contains(got, "sns Subscribe https://mail.example.test/hooks/ses/r1 ") {
		t.Errorf("SNS was asked for %q", got)
	}
	var policy struct{ Statement []map[string]any }
	if err := json.Unmarshal([]byte(sns.policy), &policy); err != nil || len(policy.Statement) != 2 || !strings.Contains(sns.policy, `"AWS:SourceAccount":"123456789012"`) {
		t.Errorf("the policy is %s: %v", sns.policy, err)
	}
	until("it waits for an hour", func() bool { j := job(); return j.State == store.JobQueued && time.Until(j.Due) > 50*time.Minute })
}

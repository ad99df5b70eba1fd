package webhooks

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHeadersThatEndpointsMayHave: names that belong to the connection, the request or the
// signature are refused in any case; values are printable ASCII.
func TestHeadersThatEndpointsMayHave(t *testing.T) {
	for name, want := range map[string]bool{
		"X-Api-Key": true, "authorization": true, "User-Agent": true, "Cookie": true, "x_y.z~1": true, "Contents": true, "Hosts": true, "Webhooks": true, strings.Repeat("a", maxHeaderName): true,
		"": false, "Host": false, "HOST": false, "Content-Type": false, "content-length": false, "Connection": false, "Keep-Alive": false, "Proxy-Authorization": false, "TE": false,
		"Trailer": false, "Transfer-Encoding": false, "Upgrade": false, "HTTP2-Settings": false, "Expect": false, "Forwarded": false, "X-Forwarded-For": false, "x-service-signature": false,
		"Webhook-Id": false, "webhook-signature": false, "X_Forwarded_For": false, "webhook_id": false, "X Y": false, "X:Y": false, "X\r\nHost": false, "Ünicode": false, strings.Repeat("a", maxHeaderName+1): false,
	} {
		err := CheckHeaderName(name)
		if (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && len(name) > 4 && strings.Contains(err.Error(), name) {
			t.Errorf("the error has the name: %v", err)
		}
	}
	for value, want := range map[string]bool{
		"x": true, "Bearer a b  c": true, "~!\"'{}": true, strings.Repeat("v", maxHeaderValue): true,
		"": false, " x": false, "x ": false, "a\tb": false, "a\r\nX-Y: z": false, "a\x00b": false, "é": false, "…": false, "\x7f": false, strings.Repeat("v", maxHeaderValue+1): false,
	} {
		err := CheckHeaderValue(value)
		if (err == nil) != want {
			t.Errorf("%q: %v", value, err)
		}
		if err != nil && len(value) > 4 && strings.Contains(err.Error(), value) {
			t.Errorf("the error has the value: %v", err)
		}
	}
}

func TestMaskHeader(t *testing.T) {
	for value, want := range map[string]string{"": "…", "short": "…", "fifteen letters": "…", "sixteen letters.": "…ers.", strings.Repeat("x", 100) + "tail": "…tail"} {
		if got := MaskHeader(value); got != want {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// TestHeadersGoOutAndDoNotComeBack: the header fields are sent beside those of the signature, which
// they do not change; where the receiver repeats them, the excerpt has their masks.
func TestHeadersGoOutAndDoNotComeBack(t *testing.T) {
	const key, quoted, short = "Bearer key-0123456789abcdef", `say "0123456789" twice`, "prod"
	out, secret := newWorld(t), NewSecret()
	for _, http2 := range []bool{false, true} {
		for name, c := range map[string]struct{ answer, want string }{
			"whole":        {"you sent " + key + ", and " + key, "you sent …cdef, and …cdef"},
			"as JSON":      {`{"h":"say \"0123456789\" twice"}`, `{"h":"…wice"}`},
			"short values": {"in prod", "in prod"},
			"cut":          {strings.Repeat(".", excerptLimit-9) + key, strings.Repeat(".", excerptLimit-9)},
		} {
			var got http.Header
			var signed error
			d := delivery(out.serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Clone()
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				signed = Verify(secret, got.Get("X-Service-Timestamp"), got.Get("X-Service-Signature"), body, time.Now())
				fmt.Fprint(w, c.answer)
			}), secret)
			d.Headers = map[string]string{"authorization": key, "X-Quoted": quoted, "X-Env": short, "User-Agent": "ours/1.0", "Idempotency-Key": "idem-0123456789"}
			result := out.poster.Post(t.Context(), d)
			if result.Outcome != Success || result.Excerpt != c.want {
				t.Errorf("%s: %+v", name, result)
			}
			if signed != nil || got.Get("Authorization") != key || got.Get("X-Quoted") != quoted || got.Get("X-Env") != short || got.Get("User-Agent") != "ours/1.0" ||
				got.Get("Idempotency-Key") != "idem-0123456789" || got.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v %v", name, signed, got)
			}
		}
	}
}

func FuzzHideHeaders(f *testing.F) {
	f.Add("you sent secret-0123", "secret-0123", true)
	f.Add("aaaaaaaaaaaaaaaa", "aaaaaaaa", false)
	f.Add(`\"quoted\"long`, `"quoted"long`, true)
	f.Fuzz(func(t *testing.T, text, value string, cut bool) {
		if CheckHeaderValue(value) != nil {
			return
		}
		got := hideHeaders(text, map[string]string{"X": value}, cut)
		if len(value) >= fullMask && strings.Contains(got, value) && !strings.Contains(value, "…") {
			t.Fatalf("%q has %q", got, value)
		}
		if cut && len(value) >= minHidden && strings.HasSuffix(text, value[:len(value)-1]) && strings.HasSuffix(got, value[:len(value)-1]) {
			t.Fatalf("%q ends within %q", got, value)
		}
	})
}

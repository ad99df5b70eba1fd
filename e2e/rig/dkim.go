package rig

import (
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// VerifyDKIM has python3-dkim verify both signatures of a message, with the keys that the
// instance's DNS server publishes.
func VerifyDKIM(t *testing.T, python string, i *Instance, message []byte) {
	t.Helper()
	keys := map[string]string{}
	for _, line := range strings.Split(strings.NewReplacer("\r\n\t", " ", "\r\n ", " ").Replace(string(message)), "\r\n") {
		if !strings.HasPrefix(line, "DKIM-Signature:") {
			continue
		}
		selector := tag(line, "s")
		name := selector + "._domainkey." + tag(line, "d") + "."
		q := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
		a, _, err := (&dns.Client{Net: "tcp"}).Exchange(q, i.Ready.DNS)
		if err != nil || len(a.Answer) != 1 {
			t.Fatalf("key of %s: %v, %v", name, err, a)
		}
		keys[name] = strings.Join(a.Answer[0].(*dns.TXT).Txt, "")
	}
	if len(keys) != 2 {
		t.Fatalf("the message has %d signatures, want 2:\n%s", len(keys), message[:min(len(message), 3000)])
	}
	input, err := json.Marshal(map[string]any{"message": base64.StdEncoding.EncodeToString(message), "keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	script := `
import base64, dkim, json, sys
given = json.load(sys.stdin)
message = base64.b64decode(given["message"])
def txt(name, timeout=5):
    name = name.decode() if isinstance(name, bytes) else name
    return given["keys"].get(name, "").encode()
d = dkim.DKIM(message)
for index in range(2):
    if not d.verify(index, dnsfunc=txt):
        sys.exit("signature %d does not verify" % index)
`
	cmd := exec.Command("/usr/bin/python3", "-c", script)
	cmd.Stdin = strings.NewReader(string(input))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s (%s): %v\n%s", "python3-dkim", python, err, out)
	}
}

// tag returns the value of a tag of an unfolded DKIM-Signature; "" if it has none.
func tag(line, name string) string {
	_, line, _ = strings.Cut(line, ":")
	for _, part := range strings.Split(line, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.TrimSpace(k) == name {
			return strings.Join(strings.Fields(v), "")
		}
	}
	return ""
}

// QuoteStrings splits a long text into quoted strings of at most 200 bytes, as in a zone file.
func QuoteStrings(text string) string {
	var out []string
	for len(text) > 200 {
		out = append(out, `"`+text[:200]+`"`)
		text = text[200:]
	}
	return strings.Join(append(out, `"`+text+`"`), " ")
}

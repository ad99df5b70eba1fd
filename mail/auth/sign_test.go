package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
)

// messages are what mail looks like, by the traits that canonicalisation stumbles over.
func messages() map[string]string {
	const head = "From: =?utf-8?q?J=C3=BCrgen?= <user@x.com>\r\nTo: a@b.example,\r\n\tc@d.example\r\nSubject:  Many \t spaces \r\n\tfolded\r\n" +
		"Date: Fri, 20 Nov 2026 12:00:00 +0000\r\nMessage-ID: <1@x.com>\r\nMIME-Version: 1.0\r\n"
	return map[string]string{
		"plain":            head + "Content-Type: text/plain\r\n\r\nHello\r\n",
		"empty body":       head + "\r\n",
		"no body":          strings.TrimSuffix(head, "\r\n"),
		"blank body":       head + "\r\n\r\n\r\n\r\n",
		"trailing blanks":  head + "\r\n a  b\t \r\n\r\n\tc\r\n \r\n\r\n\r\n",
		"no last line end": head + "\r\nHello",
		"multipart": head + "Content-Type: multipart/mixed; boundary=\"b\"\r\nList-Unsubscribe: <https://x.com/u>\r\n" +
			"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nHi\r\n--b--\r\n",
		"UTF-8":          "From: Jürgen <user@x.com>\r\nSubject: Grüße \r\n\r\nÄÖÜ\r\n.\r\n..\r\n",
		"few fields":     "From: user@x.com\r\n\r\nHi\r\n",
		"repeated field": head + "Subject: again\r\nReceived: one\r\nReceived: two\r\n\r\nHi\r\n",
		"empty lines":    head + strings.Repeat("\r\n", 64<<10) + "y" + strings.Repeat(" \t\r\n", 64<<10),
		"bare CR":        head + "\r\na\rb\r\r\n\r",
		"long":           head + "\r\n" + strings.Repeat("A line of text that is repeated.  \r\n", 20_000),
	}
}

func bothKeys(keys testKeys) []Key {
	return []Key{{"x.com", "rsa", keys.rsa}, {"X.com.", "ed", keys.ed}}
}

func TestOurSignaturesVerify(t *testing.T) {
	keys := newTestKeys(t)
	v := &Verifier{Resolver: keys.dns(t)}
	for name, msg := range messages() {
		for _, omit := range []bool{false, true} {
			fields, err := Sign(iotest.HalfReader(strings.NewReader(msg)), SignOptions{Keys: bothKeys(keys), OmitMessageID: omit})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			whole := string(fields) + msg
			if omit {
				whole = strings.Replace(whole, "Message-ID: <1@x.com>", "Message-ID: <relay@amazonses.com>", 1)
				whole = strings.Replace(whole, "12:00:00", "13:00:00", 1)
			}
			got, err := v.Verify(t.Context(), request(whole, "user@x.com"))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Signatures) != 2 || got.Signatures[0].Result != Pass || got.Signatures[1].Result != Pass {
				t.Errorf("%s, omit=%v: %+v", name, omit, got.Signatures)
			}
		}
	}
}

func TestMessageIDIsSignedUnlessOmitted(t *testing.T) {
	keys := newTestKeys(t)
	for _, omit := range []bool{false, true} {
		fields, err := Sign(strings.NewReader(testMessage), SignOptions{Keys: bothKeys(keys)[:1], OmitMessageID: omit})
		if err != nil {
			t.Fatal(err)
		}
		signed := strings.ToLower(parseTags(string(fields))["h"])
		for _, name := range []string{"message-id", "date"} {
			if strings.Contains(signed, name) == omit {
				t.Errorf("omit=%v, h=%s", omit, signed)
			}
		}
		if strings.Count(signed, "from") != 2 || strings.Count(signed, "subject") != 2 || strings.Count(signed, "reply-to") != 2 {
			t.Errorf("h=%s does not oversign (in-reply-to counts as reply-to)", signed)
		}
	}
}

func TestSignatureFieldsFitInLines(t *testing.T) {
	keys := newTestKeys(t)
	var all strings.Builder
	for _, name := range append(append([]string{}, oversigned...), signedIfPresent...) {
		all.WriteString(name + ": x\r\n")
	}
	fields, err := Sign(strings.NewReader(all.String()+"\r\n"), SignOptions{Keys: bothKeys(keys)})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(fields, []byte("\r\n")) || bytes.Contains(fields, []byte("\r\n\r\n")) {
		t.Errorf("line ends of %q", fields)
	}
	starts := 0
	for _, line := range strings.Split(strings.TrimSuffix(string(fields), "\r\n"), "\r\n") {
		if strings.HasPrefix(line, "DKIM-Signature: ") {
			starts++
		} else if line[0] != '\t' {
			t.Errorf("line %q continues nothing", line)
		}
		if len(line) > 1+foldAt {
			t.Errorf("line of %d bytes", len(line))
		}
	}
	if starts != 2 {
		t.Errorf("%d fields, want 2", starts)
	}
}

func TestUnsignableIsRefused(t *testing.T) {
	keys := newTestKeys(t)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("input/output error")
	good := bothKeys(keys)
	for _, tc := range []struct {
		name    string
		message io.Reader
		keys    []Key
		want    error
	}{
		{"no From", strings.NewReader("To: x\r\n\r\n"), good, ErrUnsignable},
		{"two From fields", strings.NewReader("From: x\r\nfrom: y\r\n\r\n"), good, ErrUnsignable},
		{"too many fields", strings.NewReader("From: x\r\n" + strings.Repeat("X: y\r\n", maxFields)), good, ErrUnsignable},
		{"header too large", strings.NewReader("From: " + strings.Repeat("x", maxHeader)), good, ErrUnsignable},
		{"List-Id over and over", strings.NewReader("From: x\r\n" + strings.Repeat("List-Id: y\r\n", 200) + "\r\n"), good, ErrUnsignable},
		{"header breaks off", io.MultiReader(strings.NewReader("From: x"), iotest.ErrReader(broken)), good, broken},
		{"body breaks off", io.MultiReader(strings.NewReader(testMessage), iotest.ErrReader(broken)), good, broken},
		{"ECDSA", strings.NewReader(testMessage), []Key{good[0], {"x.com", "p256", p256}}, ErrKey},
		{"RSA of 768 bits", strings.NewReader(testMessage), []Key{good[1], {"x.com", "s", keys.short}}, ErrKey},
		{"no signer", strings.NewReader(testMessage), []Key{{Domain: "x.com", Selector: "s"}}, ErrKey},
		{"bad domain", strings.NewReader(testMessage), []Key{{"x.com; l=0", "s", keys.ed}}, ErrKey},
		{"bad selector", strings.NewReader(testMessage), []Key{{"x.com", "", keys.ed}}, ErrKey},
	} {
		if got, err := Sign(tc.message, SignOptions{Keys: tc.keys}); !errors.Is(err, tc.want) || got != nil {
			t.Errorf("%s: %q, %v, want %v", tc.name, got, err, tc.want)
		}
	}
	if got, err := Sign(strings.NewReader(testMessage), SignOptions{}); err != nil || len(got) != 0 {
		t.Errorf("no keys: %q, %v, want nothing", got, err)
	}
}

func TestKeysSurvivePEM(t *testing.T) {
	for name, generate := range map[string]func() ([]byte, crypto.Signer, error){"rsa": GenerateRSA, "ed25519": GenerateEd25519} {
		text, key, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		if KeyRecord(again) != KeyRecord(key) || !strings.HasPrefix(KeyRecord(key), "v=DKIM1; k="+name+"; p=") {
			t.Errorf("%s: record %q, then %q", name, KeyRecord(key), KeyRecord(again))
		}
	}
}

func TestParseKeyRefusesOthers(t *testing.T) {
	keys := newTestKeys(t)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(keys.rsa.(*rsa.PrivateKey))})
	for name, text := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "PKCS#1": pkcs1, "ECDSA": wrap(p256), "RSA of 768 bits": wrap(keys.short),
		"torn": wrap(keys.ed)[:80], "empty block": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}),
	} {
		if key, err := ParseKey(text); !errors.Is(err, ErrKey) || key != nil {
			t.Errorf("%s: %v, %v, want %v", name, key, err, ErrKey)
		}
	}
	if rec := KeyRecord(p256); rec != "" {
		t.Errorf("record of an ECDSA key: %q", rec)
	}
}

// runDKIMPy runs a script on the DKIM implementation of Debian's python3-dkim, which CI must have.
// It hands it in as JSON and reads out as JSON.
func runDKIMPy(t *testing.T, script string, in, out any) {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("CI") == "true" {
		missing = t.Fatalf
	}
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		missing("%v", err)
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import dkim, nacl").CombinedOutput(); err != nil {
		missing("%v: %s", err, out)
	}
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Stdin = bytes.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

const pyVerify = `
import dkim, json, sys
job = json.load(sys.stdin)
dns = {k.encode(): v.encode() for k, v in job["dns"].items()}
def one(m, i):
    try:
        return bool(dkim.DKIM(m).verify(idx=i, dnsfunc=lambda name, timeout=5: dns.get(name)))
    except dkim.ValidationError as e:
        if "body hash mismatch" in str(e):
            return False
        raise
def check(m):
    return [one(m, i) for i, (k, _) in enumerate(h for h in dkim.DKIM(m).headers if h[0].lower() == b"dkim-signature")]
json.dump([check(m.encode()) for m in job["messages"]], sys.stdout)
`

func TestDKIMPyVerifiesOurSignatures(t *testing.T) {
	keys := newTestKeys(t)
	var names, signed []string
	for name, msg := range messages() {
		fields, err := Sign(strings.NewReader(msg), SignOptions{Keys: bothKeys(keys)})
		if err != nil {
			t.Fatal(err)
		}
		names, signed = append(names, name), append(signed, string(fields)+msg)
	}
	// The other implementation has to be able to say no.
	fields, err := Sign(strings.NewReader(testMessage), SignOptions{Keys: bothKeys(keys)})
	if err != nil {
		t.Fatal(err)
	}
	names, signed = append(names, "altered"), append(signed, string(fields)+strings.Replace(testMessage, "Bye", "Buy", 1))
	var results [][]bool
	runDKIMPy(t, pyVerify, map[string]any{"messages": signed, "dns": map[string]string{
		"rsa._domainkey.x.com.": KeyRecord(keys.rsa), "ed._domainkey.x.com.": KeyRecord(keys.ed),
	}}, &results)
	if len(results) != len(names) {
		t.Fatalf("%d results, want %d", len(results), len(names))
	}
	for i, r := range results {
		want := names[i] != "altered"
		if len(r) != 2 || r[0] != want || r[1] != want {
			t.Errorf("%s: rsa, ed25519 %v, want %v", names[i], r, want)
		}
	}
}

const pySign = `
import dkim, json, sys
job = json.load(sys.stdin)
def sign(m, alg, h, b):
    key = job["keys"][alg].encode()
    return dkim.sign(m.encode(), alg.split("-")[0].encode(), b"x.com", key, canonicalize=(h.encode(), b.encode()),
        signature_algorithm=alg.encode()).decode()
json.dump([sign(*j) for j in job["sign"]], sys.stdout)
`

// pkcs1 is the RSA key as python3-dkim reads it.
func pkcs1(keys testKeys) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(keys.rsa.(*rsa.PrivateKey))}))
}

func TestWeVerifyDKIMPy(t *testing.T) {
	keys := newTestKeys(t)
	var jobs [][]string
	for name, msg := range messages() {
		if name == "no body" {
			continue // without an empty line there is no header for it
		}
		for _, algorithm := range []string{"rsa-sha256", "ed25519-sha256"} {
			for _, c := range []string{"simple simple", "simple relaxed", "relaxed simple", "relaxed relaxed"} {
				header, body, _ := strings.Cut(c, " ")
				jobs = append(jobs, []string{msg, algorithm, header, body})
			}
		}
	}
	var fields []string
	runDKIMPy(t, pySign, map[string]any{"sign": jobs, "keys": map[string]string{
		"rsa-sha256":     pkcs1(keys),
		"ed25519-sha256": base64.StdEncoding.EncodeToString(keys.ed.(ed25519.PrivateKey).Seed()),
	}}, &fields)
	v := &Verifier{Resolver: &fakeDNS{t: t, txt: map[string][]string{
		"rsa._domainkey.x.com": {KeyRecord(keys.rsa)}, "ed25519._domainkey.x.com": {KeyRecord(keys.ed)},
	}}}
	for i, job := range jobs {
		got, err := v.Verify(t.Context(), request(fields[i]+job[0], "user@x.com"))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Signatures) != 1 || got.Signatures[0].Result != Pass {
			t.Errorf("%q: %+v", job, got.Signatures)
		}
	}
}

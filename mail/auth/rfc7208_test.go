package auth

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// An spfScenario is one document of the openspf.org test suite for RFC 7208: cases, and the names
// that they look up.
type spfScenario struct {
	Description string
	Tests       map[string]struct {
		Spec                 any
		Helo, Host, Mailfrom string
		Result               any // one result, or those that will do
	}
	Zonedata map[string][]any
}

// TestRFC7208Suite runs the suite (release 2014.04, beside the library that evaluates SPF in the
// module cache) through our own resolver, bounds and reading of the envelope.
func TestRFC7208Suite(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "blitiri.com.ar/go/spf").Output()
	if err != nil {
		missing(t, err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "rfc7208-tests.yml"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var s spfScenario
		if err := documents.Decode(&s); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		zone := newSuiteZone(t, s.Zonedata)
		for name, c := range s.Tests {
			ran++
			ip, _ := netip.ParseAddr(c.Host)
			look, cancel := (&Verifier{Resolver: zone}).newLookups(t.Context())
			got, _, _, _ := checkSPF(look, Request{IP: ip, Helo: c.Helo, MailFrom: c.Mailfrom})
			cancel()
			if want := texts(c.Result); !slices.Contains(want, string(got)) {
				t.Errorf("%s, %s (section %v): %s, want %q", s.Description, name, c.Spec, got, want)
			}
		}
	}
	if ran < 200 {
		t.Errorf("the suite has %d cases", ran)
	}
}

// texts gives a value that stands alone or in a list.
func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		return []string{fmt.Sprint(v)}
	}
	out := make([]string, 0, len(list))
	for _, one := range list {
		out = append(out, fmt.Sprint(one))
	}
	return out
}

// A suiteZone answers from a scenario's zonedata.
type suiteZone struct {
	records map[string]map[string][][]string // by name and type
	slow    map[string]bool
}

// newSuiteZone reads zonedata. Records of the type SPF, which RFC 7208 has given up, stand for TXT
// where a name has none.
func newSuiteZone(t *testing.T, data map[string][]any) *suiteZone {
	z := &suiteZone{records: map[string]map[string][][]string{}, slow: map[string]bool{}}
	for name, list := range data {
		name = strings.ToLower(name)
		z.records[name] = map[string][][]string{}
		for _, one := range list {
			rr, ok := one.(map[string]any)
			if !ok {
				t.Fatalf("%s: %v", name, one)
			}
			for kind, value := range rr {
				z.slow[name] = z.slow[name] || kind == "TIMEOUT"
				z.records[name][kind] = append(z.records[name][kind], texts(value))
			}
		}
		if z.records[name]["TXT"] == nil {
			z.records[name]["TXT"] = z.records[name]["SPF"]
		}
	}
	return z
}

// find gives the records of a name, following aliases as a resolver does.
func (z *suiteZone) find(name, kind string) (out []string, err error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for range 10 {
		if alias := z.records[name]["CNAME"]; alias != nil {
			name = strings.ToLower(alias[0][0])
		}
	}
	for _, values := range z.records[name][kind] {
		value := strings.Join(values, "")
		if kind == "MX" {
			value = values[1]
		}
		if value != "NONE" {
			out = append(out, value)
		}
	}
	switch {
	case out != nil:
		return out, nil
	case z.slow[name]: // it is not answered for what it is not said to have
		return nil, &net.DNSError{Err: "timeout", Name: name, IsTimeout: true, IsTemporary: true}
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (z *suiteZone) LookupTXT(_ context.Context, name string) ([]string, error) {
	return z.find(name, "TXT")
}

func (z *suiteZone) LookupMX(_ context.Context, name string) (out []*net.MX, err error) {
	hosts, err := z.find(name, "MX")
	for _, h := range hosts {
		out = append(out, &net.MX{Host: h + "."})
	}
	return out, err
}

func (z *suiteZone) LookupIPAddr(_ context.Context, host string) (out []net.IPAddr, err error) {
	four, err := z.find(host, "A")
	six, err6 := z.find(host, "AAAA")
	for _, a := range append(four, six...) {
		out = append(out, net.IPAddr{IP: net.ParseIP(a)})
	}
	if len(out) > 0 || isNotFound(err) {
		err = nil
	}
	if len(out) == 0 && err == nil {
		err = err6
	}
	return out, err
}

func (z *suiteZone) LookupAddr(_ context.Context, addr string) ([]string, error) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	var name strings.Builder
	if ip.Is4() {
		b := ip.As4()
		fmt.Fprintf(&name, "%d.%d.%d.%d.in-addr.arpa", b[3], b[2], b[1], b[0])
	} else {
		b := ip.As16()
		for i := 15; i >= 0; i-- {
			fmt.Fprintf(&name, "%x.%x.", b[i]&15, b[i]>>4)
		}
		name.WriteString("ip6.arpa")
	}
	hosts, err := z.find(name.String(), "PTR")
	for i := range hosts {
		hosts[i] += "."
	}
	return hosts, err
}

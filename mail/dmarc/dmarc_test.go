package dmarc

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/taglist"
)

func TestCheck(t *testing.T) {
	for in, ok := range map[string]bool{
		"v=DMARC1; p=reject": true, "v=DMARC1;p=none;": true, "v=DMARC1; p=quarantine; sp=none; pct=50; adkim=s; aspf=r; rua=mailto:a@example.com,mailto:b@example.com; fo=1": true,
		"v=DMARC1 ; p=none": true, "v=DMARC1; p=Reject; x=unknown": true,
		"": false, "p=reject": false, "v=dmarc1; p=none": false, "v=DMARC1": false, "v=DMARC1; rua=mailto:a@example.com": false, "v=DMARC1; p=maybe": false,
		"v=DMARC1 p=reject": false, "v=DMARC12; p=none": false, "v=DMARC1; p=none; p=reject": false, "v=DMARC1; p=none; pct=101": false, "v=DMARC1; p=none; pct=-1": false,
		"v=DMARC1; p=none; rua=a@example.com": false, "v=DMARC1; p=none; rua=mailto:": false, "v=DMARC1; p=none; adkim=x": false, "v=DMARC1; p=none;; sp=none": false,
		"v=DMARC1; p=none; x": false, "v=DMARC1; p=none\n": false, "v=DMARC1; p=nöne": false, "v=DMARC1; p=none; x=" + strings.Repeat("a", 1024): false,
		`"v=DMARC1; p=none"`: false,
	} {
		if err := Check(in); (err == nil) != ok {
			t.Errorf("%.60q: %v", in, err)
		}
	}
}

// Whatever is taken is what receivers take for a policy.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"v=DMARC1; p=reject", "v=DMARC1;p=none;rua=mailto:a@b.c", "v=DMARC1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if Check(value) != nil {
			return
		}
		if tags, wellFormed := taglist.Parse(value); !IsRecord(value) || !wellFormed || tags["p"] == "" {
			t.Errorf("%q was taken", value)
		}
		if r, err := Parse(value); err != nil || !IsPolicy(r.Policy) || !IsPolicy(r.SubPolicy) || !IsPolicy(r.NoPolicy) {
			t.Errorf("%q is read as %+v, %v", value, r, err)
		}
	})
}

// FuzzParse holds that a record asks for one of three policies whatever it says.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"v=DMARC1; p=reject; sp=none; pct=20; adkim=s; aspf=r; rua=mailto:a@b.c!10m", "v=DMARC1", "v = DMARC1 ;p=x;rua=x:y", "v=DMARC1; p=none; p=reject"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if !IsPolicy(r.Policy) || !IsPolicy(r.SubPolicy) || !IsPolicy(r.NoPolicy) || !strings.ContainsRune("ynu", rune(r.PSD)) || len(r.Reports) > maxReportURIs {
			t.Errorf("%q is read as %+v", text, r)
		}
	})
}

package scan

import (
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestUsualNames: there are enough of them, each once, and docs/scan.md lists them.
func TestUsualNames(t *testing.T) {
	text, err := os.ReadFile("../../docs/scan.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{} // the names of each block
	for block := range strings.SplitSeq(string(text), "\n\n") {
		if strings.HasPrefix(block, "    ") {
			listed[strings.Join(strings.Fields(block), " ")] = true
		}
	}
	lists := []string{belowMail}
	for _, group := range usualNames {
		lists = append(lists, group.names)
	}
	for _, list := range lists {
		names := strings.Fields(list)
		if !listed[strings.Join(names, " ")] {
			t.Errorf("docs/scan.md does not list the names that begin with %s", strings.Join(names[:min(len(names), 5)], " "))
		}
	}
	seen := map[string]bool{}
	for _, target := range usual("example.com.") {
		if _, ok := dns.IsDomainName(target.name); !ok || seen[target.name] || target.name != dns.CanonicalName(target.name) {
			t.Errorf("%s is there twice, or is no name", target.name)
		}
		seen[target.name] = true
	}
	if len(seen) < 700 {
		t.Errorf("there are %d names", len(seen))
	}
}

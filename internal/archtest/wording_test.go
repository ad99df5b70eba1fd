package archtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/events"
)

// A wording is the dashboard's text for an error code, with a link to the page where the user can
// fix the cause.
type wording struct {
	Text, Href, Link string
	Request          bool
}

// readWordings reads the dashboard's table of texts.
func readWordings(t *testing.T) (codes map[string]wording, parts map[string]string) {
	t.Helper()
	text, err := os.ReadFile("web/src/api/wordings.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Codes   map[string]wording
		Details map[string]string
		Fields  map[string]string
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	parts = map[string]string{}
	for name, text := range table.Details {
		parts["detail "+name] = text
	}
	for name, text := range table.Fields {
		parts["field "+name] = text
	}
	return table.Codes, parts
}

// codesInSources finds where the sources name a code: the API's list, errors of requests, and
// errors of jobs and domains.
var codesInSources = regexp.MustCompile(`(?:(?m:^)\t\{\d{3}, |[^.]Errorf\(|core\.Errorf\(|refuse\(|unauthorized\(|JobFailure\{|(?:RefusedCode|ErrorCode)\b[^"\n]* = (?:[^"\n]*, )?)"([a-z_]+)"`)

// namedCodes finds constants for error codes. Codes of folders only reach mail clients, so they
// need a status but no text in the dashboard.
var namedCodes = regexp.MustCompile(`\b(?:Code[A-Z]\w*|claimExpired|claimedElsewhere) += "([a-z_]+)"`)

// laterCodes lists codes of the contract that need a text even if the sources do not contain them
// yet.
var laterCodes = strings.Fields("busy standby account_suspended storage_unavailable storage_full domain_claimed_elsewhere claim_expired zone_conflict")

// TestEveryErrorHasWords: the dashboard has a text for each code, and each code has an HTTP status.
func TestEveryErrorHasWords(t *testing.T) {
	codes, _ := readWordings(t)
	var files []string
	for _, pattern := range []string{"service/*.go", "service/*/*.go", "handlers/*.go", "service/core/code/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	wanted := map[string]string{"offline": "the dashboard", "unreadable": "the dashboard"}
	for _, name := range laterCodes {
		wanted[name] = "the contract"
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range namedCodes.FindAllSubmatch(text, -1) {
			if name := string(found[1]); code.Status(name) == 500 {
				t.Errorf("service/core/code has no HTTP status for %s of %s", name, file)
			}
		}
		for _, found := range codesInSources.FindAllSubmatch(text, -1) {
			wanted[string(found[1])] = file
		}
	}
	if len(wanted) < 75 {
		t.Fatalf("only %d codes were found in the sources", len(wanted))
	}
	for name, file := range wanted {
		if strings.HasSuffix(file, ".go") && name != "internal_error" && code.Status(name) == 500 {
			t.Errorf("service/core/code has no HTTP status for %s of %s", name, file)
		}
		if codes[name].Text == "" {
			t.Errorf("web/src/api/wordings.json has no words for %s of %s", name, file)
		}
	}
}

// TestEveryEventHasWords: the dashboard offers each event type of the server, and explains it.
func TestEveryEventHasWords(t *testing.T) {
	text, err := os.ReadFile("web/src/pages/webhooks/events.json")
	if err != nil {
		t.Fatal(err)
	}
	meanings := map[string]string{}
	if err := json.Unmarshal(text, &meanings); err != nil {
		t.Fatal(err)
	}
	for _, e := range service.EventTypes() {
		if e.Name == events.EventTestPing { // it comes where it is asked for
			continue
		}
		if meanings[e.Name] == "" {
			t.Errorf("web/src/pages/webhooks/events.json has no words for %s", e.Name)
		}
		delete(meanings, e.Name)
	}
	for name := range meanings {
		t.Errorf("web/src/pages/webhooks/events.json has %s, which the server does not have", name)
	}
}

// inAPITerms finds terms that mean nothing to users of the dashboard: paths and methods of the API,
// names of JSON fields.
var inAPITerms = regexp.MustCompile("/v1\\b|/session\\b|\\b(GET|POST|PUT|PATCH|DELETE)\\b|[A-Za-z0-9]_[a-z]|`|\\bJSON\\b|\\b[Hh]eader|\\bquery\\b|\\bparameter|Retry-After")

var dashboardPlaces = regexp.MustCompile(`(?:path: |(?:team|domains|operator)\()'([^']+)'`)

// TestWordsOfErrorsAreForPeople: texts contain no API paths and no field names, and links lead to
// pages of the dashboard.
func TestWordsOfErrorsAreForPeople(t *testing.T) {
	codes, parts := readWordings(t)
	text, err := os.ReadFile("web/src/pages/index.ts")
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]bool{}
	for _, found := range dashboardPlaces.FindAllSubmatch(text, -1) {
		places[regexp.MustCompile(`:\w+`).ReplaceAllString(string(found[1]), "*")] = true
	}
	if len(places) < 20 {
		t.Fatalf("only %d places were found", len(places))
	}
	for code, w := range codes {
		if found := inAPITerms.FindString(w.Text + " " + w.Link); found != "" {
			t.Errorf("%s: %q speaks of %q", code, w.Text, found)
		}
		if (w.Href == "") != (w.Link == "") {
			t.Errorf("%s: a link needs an address and words: %q %q", code, w.Href, w.Link)
		}
		path, _, _ := strings.Cut(strings.ReplaceAll(w.Href, "{field}", "*"), "?")
		if w.Href != "" && !places[path] {
			t.Errorf("%s: %s is no place of the dashboard", code, w.Href)
		}
	}
	for name, text := range parts {
		if found := inAPITerms.FindString(text); found != "" || text == "" {
			t.Errorf("%s: %q speaks of %q", name, text, found)
		}
	}
}

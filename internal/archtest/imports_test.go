package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/mailstead/mailstead"

// importRules lists which folders each folder may import, and why it may not import others. A row
// also holds for subfolders without rows of their own; permission to import a folder includes its
// subfolders.
var importRules = map[string]struct {
	may string
	why string
}{
	".":                   {"cli config handlers service jobs store mail dnsprov web internal", "the root wires everything together"},
	"cli":                 {"config handlers service jobs store mail packaging internal/killpoint internal/licenses internal/lookup internal/nearest internal/portholder", "cli asks the server, or opens what it is given a way to open; it does not know how the program is put together"},
	"handlers":            {"handlers service mail internal/buffers internal/jsonw internal/limit internal/metrics internal/nearest internal/otlp internal/cputime internal/lazyregexp", "handlers listen; rules belong in service and records in store"},
	"handlers/api":        {"service", "api says what each operation is; it does not know how a request is decoded and answered"},
	"handlers/listen":     {"handlers/connlimit handlers/proxyproto config service/health service/servicetest internal/metrics", "listen opens sockets as the settings say; it does not know what is answered there"},
	"handlers/operator":   {"handlers config packaging service store", "operator answers the operator's commands on this host; it does not know the command line, nor what people are shown"},
	"handlers/dnsd":       {"handlers dnsprov internal/limit", "dnsd answers for zones and secondaries as dnsprov knows them; no rule is needed for that"},
	"service":             {"service/core service/agents service/attachments service/backups service/spam service/reputation service/templates service/events service/inbox service/external service/transfer service/rules service/mailboxes service/edge service/zones service/scans service/domains service/certs service/recipients service/outbound service/feedback service/submit service/inbound service/reports service/accounts service/signin service/health service/settings service/requests jobs store internal", "service wires the rooms; it must not know who is asking, over HTTP, SMTP or IMAP"},
	"service/core":        {"jobs store mail dnsprov internal", "core has what every room needs, and so can know none of them"},
	"service/core/code":   {"", "code has the codes of errors; it does not know what an error is about"},
	"service/agents":      {"service/core store mail", "agents says what programs may do; it does not know how mail is read or sent"},
	"service/events":      {"service/core jobs store webhooks internal", "events tell webhooks what happened; the other rooms say what an event is about"},
	"service/core/alert":  {"service/core jobs store", "alert plans letters; it does not know how they are sent"},
	"service/recipients":  {"service/core store mail dnsprov", "recipients says where an address leads; it does not know how mail comes or goes"},
	"service/outbound":    {"service/core service/agents service/events service/external service/inbox service/recipients service/reputation jobs store mail internal", "outbound sends what is in the queue; it does not know who may send what, nor how mail comes to a mailbox here"},
	"service/feedback":    {"service/core service/inbox service/outbound service/recipients jobs store mail", "feedback reads what others say of mail that left here; what follows for the message is outbound's matter"},
	"service/submit":      {"service/core service/agents service/events service/inbox service/outbound service/recipients service/reputation service/templates jobs store mail internal", "submit takes messages from those who send them; it does not know how mail leaves"},
	"service/inbound":     {"service/core service/agents service/inbox service/outbound service/feedback service/recipients service/rules service/spam jobs store mail internal", "inbound receives mail; it does not know how mail is sent on, nor how folders are kept"},
	"service/reputation":  {"service/core service/events jobs store mail", "reputation counts what is sent; it does not know how mail goes out"},
	"service/spam":        {"service/core jobs store mail", "spam says what mail is and learns; it does not know folders, nor how mail comes"},
	"service/images":      {"service/core internal", "images are fetched without knowing which message has them"},
	"service/inbox":       {"service/core service/agents service/spam service/events service/images jobs store mail internal", "inbox has what is in mailboxes; it does not know how mail came there"},
	"service/attachments": {"service/core service/images service/inbox store mail", "attachments opens files in messages; it does not know how messages are found"},
	"service/external":    {"service/core service/events service/inbox jobs store mail internal", "external syncs mailboxes on other servers; inbox and what is above it use its servers as interfaces of their own"},
	"service/transfer":    {"service/core service/external service/inbox jobs store mail", "transfer moves mail in and out; it does not know where files come from or go to"},
	"service/mailboxes":   {"service/core service/agents service/reputation service/events service/inbox service/external service/transfer jobs store mail dnsprov internal", "a mailbox does not know how its domain is set up"},
	"service/zonedata":    {"service/core store dnsprov", "zonedata says what a zone has; it does not know who serves it, nor who writes it"},
	"service/edge":        {"service/core service/zonedata jobs store mail dnsprov internal", "edge changes records at DNS providers of others; it does not know how a domain is set up, nor what is served here"},
	"service/zones":       {"service/core service/zonedata service/edge jobs store mail dnsprov internal", "zones know neither how a domain is set up nor what mail it has"},
	"service/scans":       {"service/core service/zones service/events jobs store mail dnsprov internal", "scans do not know how a domain is set up"},
	"service/domains":     {"service/core service/zonedata service/edge service/zones service/scans service/events service/mailboxes service/reputation jobs store mail dnsprov internal", "domains do not know mail on its way"},
	"service/certs":       {"service/core jobs store dnsprov internal", "certificates publish in zones, and nothing else"},
	"service/templates":   {"service/core store", "a template does not know who sends it to whom"},
	"service/rules":       {"service/core service/spam service/inbox store mail", "rules say what a mailbox does by itself; inbound does it"},
	"service/reports":     {"service/core service/inbox service/outbound service/inbound jobs store mail dnsprov", "reports arrive as mail and leave as mail"},
	"service/accounts":    {"service/core service/agents service/mailboxes jobs store mail", "an account has mailboxes, which do not know accounts; it does not know how people sign in"},
	"service/signin":      {"service/core service/accounts service/agents service/mailboxes jobs store internal", "signin lets people in; it does not know what they may do then"},
	"service/settings":    {"mail/deliver service/core service/events store dnsprov internal", "settings keeps what the operator sets; it does not know which settings there are, nor what they mean"},
	"service/health":      {"service/core service/events jobs store mail internal", "health looks at what every room stands on; it knows no room"},
	"service/backups":     {"service/core service/inbox jobs store", "backups are made and tried at the operator's request; how they are stored is for store/backup to say"},
	"service/requests":    {"service/core store", "requests keeps the log of requests; it does not know how they are answered"},
	"service/servicetest": {"service jobs store mail dnsprov", "servicetest makes whole services for tests"},
	"jobs":                {"store internal/killpoint", "jobs repeat work without knowing what kind of work it is"},
	"store":               {"store internal/clock internal/killpoint", "store keeps records and knows nobody"},
	"mail":                {"internal/buffers internal/cputime internal/killpoint internal/lazyregexp internal/lookup", "mail dials out and reads messages; decisions and records are not its business"},
	"dnsprov":             {"mail/spf mail/dmarc mail/taglist mail/idn internal/cputime internal/lookup", "dnsprov speaks to DNS and registrars; it knows no accounts, and of mail only the grammars of what DNS says about it"},
	"webhooks":            {"internal/netguard", "webhooks signs and posts; it knows no accounts and no store"},
	"web":                 {"", "web is a client of /v1 like any other"},
	"e2e":                 {"e2e/rig store dnsprov handlers/dnsd mail/auth mail/tokenize internal/lookup internal/otlp internal/soak", "end-to-end tests drive the built program; of its packages they need the fakes, those that they hold against DNS software of others, what fills a large store, and their sizes"},
	"e2e/rig":             {"internal/lookup", "rig starts the program and talks to it; it does not know what a test proves"},
	"bench":               {"", "bench measures the built program from outside, side by side with other servers"},
	"packaging":           {"internal/npmlock", "packaging says how the program is installed and started; it does not know what it does"},
	"config":              {"service dnsprov mail internal/nearest", "config knows the shapes that settings are checked and handed on in; it starts nothing, and nothing below it asks for settings"},
	"docs":                {"", "docs has texts and examples; examples show what a client needs, and no client has our packages"},
	"internal":            {"", "internal has small tools that know nothing of mail"},
	"internal/archtest":   {"service", "archtest reads sources; of the packages it needs the lists that words are written for"},
	"internal/nearest":    {"", "nearest compares words; it does not know what they name"},
	"internal/portholder": {"", "portholder reads /proc; it does not know what the ports are for"},
	"internal/clock":      {"", "clock tells the time; it does not know who asks or waits"},
	"internal/killpoint":  {"", "killpoint names places of the write paths, which import it for that alone: a test ends the program there"},
	"internal/cputime":    {"", "cputime is for benchmarks and tests; it does not know what they measure"},
	"internal/lazyregexp": {"", "lazyregexp compiles expressions when they are needed; it does not know what for"},
	"internal/lookup":     {"", "lookup asks the DNS; it does not know who asks, or what the answers are for"},
	"internal/limit":      {"", "limit counts and waits by key; it does not know what it limits"},
	"internal/metrics":    {"", "metrics counts; it does not know what"},
	"internal/otlp":       {"", "otlp sends spans; it does not know what they are about"},
	"internal/netguard":   {"", "netguard decides what may be dialled; it does not know who asks, or what is spoken then"},
	"store/engine":        {"store/boltfile store/diskroom store/entry store/rowform store/segment internal/killpoint", "engine commits, keeps tables and counts commits; it knows no record"},
	"store/mailrow":       {"store/engine store/postings store/rowform store/segment", "mailrow says how rows of the message index are written down; it does not know when they are"},
	"store/mailindex":     {"store/engine store/mailrow store/rowform store/segment", "mailindex keeps the message index in step; it does not know whose mailboxes these are, nor where the bytes are"},
	"store/textindex":     {"store/engine store/mailindex store/mailrow store/postings store/rowform internal/killpoint", "textindex finds messages by words; it does not know what their words are"},
	"store/recordid":      {"", "recordid knows the form of ids; it does not know what they are of"},
	"store/digest":        {"store", "digest compares two stores; it does not know who asks, nor what changed one of them"},
	"store/backup":        {"store internal/killpoint", "backup copies a store; it does not know what rows mean, nor when it is asked"},
	"store/objects":       {"internal/killpoint", "objects keeps bytes by names; it does not know what they are for"},
	"store/entry":         {"store/segment", "an entry is rows and message bytes; it does not know what they mean"},
	"store/segment":       {"internal/killpoint", "segments keep bytes, and do not know the records that refer to them"},
	"store/boltfile":      {"", "boltfile knows the database file of bbolt, and not the records in it"},
	"store/diskroom":      {"", "diskroom looks at a disk; it does not know who writes to it"},
	"store/keyfile":       {"internal/killpoint", "keyfile keeps a key in its file; it does not know what is sealed under it"},
	"store/rowform":       {"", "rowform is the outside of rows; it does not know what they mean, nor where they are"},
	"store/policy":        {"", "policy says what may be sent under it; it does not know who sends, nor where it is kept"},
	"store/requestlog":    {"store/rowform", "requestlog keeps rows in files beside the store; it does not know what a request is"},
	"store/postings":      {"", "postings encodes and merges lists of numbers; it does not know where they are stored"},
	"handlers/markup":     {"", "markup escapes what pages show; it does not know what that is"},
	"handlers/openapi":    {"service handlers/api", "openapi describes what handlers give it; it reads no requests"},
	"handlers/docs":       {"docs handlers/api handlers/markup handlers/openapi service/core/code web", "docs makes pages of guides and of the API's description, in the look of the dashboard; it reads no requests"},
	"handlers/autoconfig": {"service", "autoconfig writes documents; who asks, and how often, is for handlers to say"},

	"handlers/openapi/generate": {"handlers", "generate reads the comments of what the API shows; it does not know what is made of them"},
}

// An edge means that files under a row import a folder that its rule permits.
type edge struct{ from, may string }

// breaches lists every import in the tree that importRules forbids, one sentence each, and the
// permitted edges that are in use.
func breaches(fset *token.FileSet, root string) (out []string, used map[edge]bool, err error) {
	used = map[edge]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "data") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		out = append(out, fileBreaches(rel, filepath.ToSlash(filepath.Dir(rel)), importPaths(file.Imports), used)...)
		return nil
	})
	return out, used, err
}

func fileBreaches(rel, dir string, imports []string, used map[edge]bool) []string {
	from := rowOf(dir)
	rule, known := importRules[from]
	if !known {
		return []string{rel + ": folder " + from + " has no row in importRules; add one that says what it may import and why"}
	}
	var out []string
	for _, imported := range imports {
		to, ours := strings.CutPrefix(imported, module+"/")
		inService := within(dir, "service") && within(to, "service")
		if !ours || rowOf(to) == from || inService && strings.HasSuffix(rel, "_test.go") { // tests of a room have a whole service
			continue
		}
		found := false
		for _, folder := range strings.Fields(rule.may) {
			if within(to, folder) {
				found = true
				used[edge{from, folder}] = true
			}
		}
		if !found {
			out = append(out, rel+" imports "+to+", which "+from+" may not: "+rule.why)
		}
	}
	return out
}

// rowOf returns the row of importRules for a folder: that of the folder itself, or of the closest
// folder above it; the top folder if there is none.
func rowOf(dir string) string {
	for at := dir; ; at = path.Dir(at) {
		if _, ok := importRules[at]; ok && (at != "." || dir == ".") {
			return at
		}
		if at == "." || !strings.Contains(at, "/") {
			return at
		}
	}
}

// within reports whether a folder equals another or is below it.
func within(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

func TestImportRules(t *testing.T) {
	found, used, err := breaches(token.NewFileSet(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		t.Error(b)
	}
	for from, rule := range importRules {
		for _, folder := range strings.Fields(rule.may) {
			if !used[edge{from, folder}] {
				t.Errorf("importRules: %s may import %s, and no file of it does", from, folder)
			}
			delete(used, edge{from, folder}) // so that it is not there twice
		}
	}
}

// TestImportRulesBite checks that the rules refuse forbidden imports.
func TestImportRulesBite(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		ok       bool
	}{
		{"handlers", "store", false},
		{"handlers", "service", true},
		{"service", "handlers", false},
		{"handlers/operator", "cli", false},
		{"cli", "handlers/operator", true},
		{"store", "jobs", false},
		{"store", "store/segment", true},
		{"store/segment", "store", false},
		{"jobs", "store", true},
		{"jobs", "service", false},
		{"webhooks", "store", false},
		{"mail", "store", false},
		{"web", "service", false},
		{"service/core", "service/events", false},
		{"service/domains", "service", false},
		{"unheard", "of", false},
	} {
		got := fileBreaches("x.go", tc.from, []string{module + "/" + tc.to + "/sub"}, map[edge]bool{})
		if (len(got) == 0) != tc.ok {
			t.Errorf("%s importing %s: breaches %v, want ok=%v", tc.from, tc.to, got, tc.ok)
		}
	}
}

func importPaths(specs []*ast.ImportSpec) []string {
	var out []string
	for _, s := range specs {
		if p, err := strconv.Unquote(s.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// TestCommentColumns: a comment line has at most 100 columns; a tab counts as four.
func TestCommentColumns(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "data") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := 0
		for line := range strings.SplitSeq(string(text), "\n") {
			at++
			comment := strings.HasPrefix(strings.TrimSpace(line), "// ")
			if comment && utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > 100 {
				t.Errorf("%s:%d: the comment line has more than 100 columns", path, at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mailstead/mailstead"

// importRules says which top folders each top folder may import, and why the others are closed to it.
var importRules = map[string]struct {
	may string
	why string
}{
	".":        {"handlers service jobs store mail dnsprov webhooks web", "the root wires everything together"},
	"handlers": {"handlers service mail", "handlers listen; rules belong in service and records in store"},
	"service":  {"service jobs store mail dnsprov webhooks", "service decides; it must not know who is asking, over HTTP, SMTP or IMAP"},
	"jobs":     {"store", "jobs repeat work without knowing what kind of work it is"},
	"store":    {"", "store keeps records and knows nobody"},
	"mail":     {"mail", "mail dials out and reads messages; decisions and records are not its business"},
	"dnsprov":  {"dnsprov", "dnsprov speaks to DNS and registrars; it knows no accounts"},
	"webhooks": {"", "webhooks signs and posts; it knows no accounts and no store"},
	"web":      {"", "web is a client of /v1 like any other"},
	"docs":     {"", "examples show what a client needs, and no client has our packages"},
}

// breaches lists every import in the tree that importRules forbids, one sentence each.
func breaches(fset *token.FileSet, root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
		from := topFolder(filepath.ToSlash(filepath.Dir(rel)))
		file, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		out = append(out, fileBreaches(rel, from, importPaths(file.Imports))...)
		return nil
	})
	return out, err
}

func fileBreaches(rel, from string, imports []string) []string {
	rule, known := importRules[from]
	if !known {
		return []string{rel + ": folder " + from + " has no row in importRules; add one that says what it may import and why"}
	}
	var out []string
	for _, path := range imports {
		to, ours := strings.CutPrefix(path, module+"/")
		if !ours || to == from || strings.HasPrefix(to, from+"/") {
			continue
		}
		if !strings.Contains(" "+rule.may+" ", " "+topFolder(to)+" ") {
			out = append(out, rel+" imports "+to+", which "+from+" may not: "+rule.why)
		}
	}
	return out
}

func topFolder(dir string) string {
	top, _, _ := strings.Cut(dir, "/")
	return top
}

func TestImportRules(t *testing.T) {
	found, err := breaches(token.NewFileSet(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		t.Error(b)
	}
}

// TestImportRulesBite proves that the rules refuse what they should.
func TestImportRulesBite(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		ok       bool
	}{
		{"handlers", "store", false},
		{"handlers", "service", true},
		{"service", "handlers", false},
		{"store", "jobs", false},
		{"jobs", "store", true},
		{"jobs", "service", false},
		{"webhooks", "store", false},
		{"mail", "store", false},
		{"web", "service", false},
		{"unheard", "of", false},
	} {
		got := fileBreaches("x.go", tc.from, []string{module + "/" + tc.to + "/sub"})
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

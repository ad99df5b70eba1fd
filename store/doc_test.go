package store

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// drawnBuckets gives the names that lines of the drawings in the package comment begin with, but
// for those of rows.
func drawnBuckets(t *testing.T) (drawn []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	_, buckets, ok := strings.Cut(file.Doc.Text(), "# The store itself\n")
	buckets, _, more := strings.Cut(buckets, "# What Open makes of older stores\n")
	if !ok || !more {
		t.Fatal("the package comment lacks the sections around the buckets")
	}
	for line := range strings.SplitSeq(buckets, "\n") {
		row, indented := strings.CutPrefix(line, "\t")
		name, rest, _ := strings.Cut(row, " ")
		if indented && name != "" && name != "place" && !strings.HasPrefix(rest, "row ") {
			drawn = append(drawn, name)
		}
	}
	return drawn
}

// TestEveryBucketIsDrawn compares doc.go with the buckets that Open makes.
func TestEveryBucketIsDrawn(t *testing.T) {
	drawn, want := drawnBuckets(t), bucketNames()
	slices.Sort(drawn)
	slices.Sort(want)
	for _, name := range want {
		if !slices.Contains(drawn, name) {
			t.Errorf("doc.go does not draw the bucket %s", name)
		}
	}
	if len(drawn) > len(want) {
		t.Errorf("doc.go draws %d buckets, there are %d: %v", len(drawn), len(want), drawn)
	}
}

// TestEveryBucketHasABound compares the list of bounds with the buckets that Open makes: a new
// table or bucket needs a line that says what keeps it from growing for ever.
func TestEveryBucketHasABound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(file.Doc.Text(), "# What bounds each bucket\n")
	if !ok {
		t.Fatal("the package comment does not say what bounds each bucket")
	}
	bounds := map[string]string{}
	for line := range strings.SplitSeq(list, "\n") {
		row, indented := strings.CutPrefix(line, "\t")
		name, bound, _ := strings.Cut(row, " ")
		if !indented {
			continue
		}
		if bounds[name] != "" || strings.TrimSpace(bound) == "" {
			t.Errorf("%q: a bucket has one bound", line)
		}
		bounds[name] = bound
	}
	for _, name := range bucketNames() {
		if table, _, index := strings.Cut(name, "."); index && bounds[table] != "" {
			continue
		}
		if bounds[name] == "" {
			t.Errorf("doc.go does not say what bounds the bucket %s", name)
		}
	}
	for name := range bounds {
		if !slices.Contains(bucketNames(), name) {
			t.Errorf("doc.go bounds a bucket that is not there: %s", name)
		}
	}
}

package main

import "testing"

// TestOrder guards the structure of the code: operations, packages and circles of files stay
// within their budgets, only errors are assigned in the head of an if, the facade names its rooms,
// and every field is read.
func TestOrder(t *testing.T) {
	p, err := loadModule()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range operations {
		is, err := p.callGraphSizeOf(f.root)
		if err != nil {
			t.Fatal(err)
		}
		if is.functions > f.budget.functions || is.files > f.budget.files || is.changes > f.budget.changes {
			t.Errorf("%s goes through %+v, more than its budget %+v: `make measure` says what they count, `go run ./internal/measure -list %q` lists the functions", f.name, is, f.budget, f.name)
		}
	}
	sizes, err := p.packageSizes()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range sizes {
		if r.circle > circleBudget {
			t.Errorf("%d files of %s depend on each other in a circle, more than %d: move what they share into a file that needs none of them", r.circle, r.path, circleBudget)
		}
		if r.lines > packageBudget {
			t.Errorf("package %s has %d lines, more than %d: move what belongs together to a package of its own", r.path, r.lines, packageBudget)
		}
	}
	for _, place := range p.hiddenAssignments() {
		t.Errorf("%s: assigns in the head of an if or a switch to a variable from before it, which is no error: give the assignment a line of its own", place)
	}
	for _, method := range p.promotedMethods() {
		t.Errorf("service.Service promotes %s: name its room as a field", method)
	}
	for _, field := range p.unreadFields() {
		t.Errorf("%s: nothing reads this field: delete it", field)
	}
}

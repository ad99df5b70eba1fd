// Measure prints figures about the structure of the code: the length of functions, the size of
// packages, how many files of a package depend on each other in a circle, and how many functions
// and files a flow, such as receiving a message, goes through. `make measure` runs it.
//
// What the words mean here:
//   - A line is a line of a Go file that is not a test, with comments and empty lines. A function
//     is a declaration with a body; its length goes from the word func to the closing brace.
//     Function literals are lines of the function around them.
//   - A file depends on another of its package if it names a constant, type, variable, function,
//     method or field that the other declares. A circle of files is a strongly connected component
//     of that graph.
//   - A call is any mention of a declared function or method inside a body, as a call or as a
//     value. A method called through an interface is not followed, since the code does not say
//     which it is.
//   - A flow begins with its root and goes through all calls, depth first in the order of the text,
//     each function once. It stays in package service and the packages below it. A change of file
//     is a step from one function to the next that is in another file.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/mailstead/mailstead"

// flows lists the flows that are measured. root is the function with which a flow begins: NAME or
// TYPE.NAME in package service or a package below it. A test fails if a flow is larger than its
// budget, which may be lowered but not raised.
var flows = []struct {
	name, root string
	budget     extent
}{
	{"receive", "Service.Receive", extent{131, 22, 72}},
	{"send_email", "Service.SendEmail", extent{120, 22, 70}},
	{"delivery attempt", "Service.deliverKind", extent{288, 47, 163}},
	{"domain_setup", "Service.setupKind", extent{188, 26, 84}},
}

// circleBudget is the maximum number of files in a circle.
const circleBudget = 12

// extent is the size of a flow: how many functions and files it goes through, and how often it
// moves from one file to another.
type extent struct{ functions, files, changes int }

func main() {
	list := flag.String("list", "", "print the functions of this flow, in order")
	flag.Parse()
	if err := run(os.Stdout, *list); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

// listedPackage is a package in the output of `go list -json`.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct {
		Main bool
		Dir  string
	}
}

// program is the module, parsed and type-checked.
type program struct {
	dir      string // top folder of the module
	fset     *token.FileSet
	packages []*checked
	funcs    map[*types.Func]*ast.FuncDecl
	infos    map[*types.Func]*types.Info
}

// checked is a package of the module, parsed and type-checked.
type checked struct {
	path  string
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// run prints all figures, or only the functions of the flow list if that is not "".
func run(w io.Writer, list string) error {
	p, err := load()
	if err != nil {
		return err
	}
	if list != "" {
		return p.listFlow(w, list)
	}
	p.printFunctions(w)
	fmt.Fprintf(w, "hidden assignments: %d; fields that nothing reads: %d; methods that the facade promotes: %d\n",
		len(p.hiddenAssignments()), len(p.unreadFields()), len(p.promotedMethods()))
	if err := p.printPackages(w); err != nil {
		return err
	}
	return p.printFlows(w)
}

// load parses and type-checks all packages of the module. It reads packages of other modules from
// the compiler's export data.
func load() (*program, error) {
	out, err := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Module", module+"/...").Output()
	if err != nil {
		return nil, err
	}
	p := &program{fset: token.NewFileSet(), funcs: map[*types.Func]*ast.FuncDecl{}, infos: map[*types.Func]*types.Info{}}
	exports, ours := map[string]string{}, map[string]*types.Package{}
	others := importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	config := types.Config{Importer: importFunc(func(path string) (*types.Package, error) {
		if pkg := ours[path]; pkg != nil {
			return pkg, nil
		}
		return others.Import(path)
	})}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listedPackage
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return p, nil
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if l.Module == nil || !l.Module.Main {
			continue
		}
		p.dir = l.Module.Dir
		c := &checked{path: l.ImportPath, info: &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
			Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{}}}
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(p.fset, filepath.Join(l.Dir, name), nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			c.files = append(c.files, f)
		}
		c.types, err = config.Check(l.ImportPath, p.fset, c.files, c.info)
		if err != nil {
			return nil, err
		}
		ours[l.ImportPath] = c.types
		p.packages = append(p.packages, c)
		for _, f := range c.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
					obj := c.info.Defs[fn.Name].(*types.Func)
					p.funcs[obj], p.infos[obj] = fn, c.info
				}
			}
		}
	}
}

// importFunc is a function that implements types.Importer.
type importFunc func(path string) (*types.Package, error)

func (f importFunc) Import(path string) (*types.Package, error) { return f(path) }

// printFunctions prints the number of functions and their lengths.
func (p *program) printFunctions(w io.Writer) {
	var lengths []int
	for _, fn := range p.funcs {
		lengths = append(lengths, p.line(fn.End())-p.line(fn.Pos())+1)
	}
	slices.Sort(lengths)
	n := len(lengths)
	fmt.Fprintf(w, "functions: %d; lines: median %d, p95 %d, max %d\n", n, lengths[n/2], lengths[n*95/100], lengths[n-1])
}

// printPackages prints the number of lines, the number of comment lines over 100 columns, and a
// table of the packages with more than 1000 lines.
func (p *program) printPackages(w io.Writer) error {
	type row struct {
		path                 string
		files, lines, circle int
	}
	var rows []row
	total, long := 0, 0
	for _, c := range p.packages {
		r := row{path: strings.TrimPrefix(strings.TrimPrefix(c.path, module), "/"), files: len(c.files), circle: p.largestCircle(c)}
		for _, f := range c.files {
			text, err := os.ReadFile(p.fset.Position(f.Pos()).Filename)
			if err != nil {
				return err
			}
			r.lines += strings.Count(string(text), "\n")
			for line := range strings.SplitSeq(string(text), "\n") {
				if strings.HasPrefix(strings.TrimSpace(line), "//") && len([]rune(strings.ReplaceAll(line, "\t", "    "))) > 100 && !strings.HasPrefix(line, "//go:") {
					long++
				}
			}
		}
		total += r.lines
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.lines, a.lines) })
	fmt.Fprintf(w, "lines: %d in %d packages; comment lines over 100 columns: %d\n\n%-32s %6s %6s %6s\n", total, len(rows), long, "package", "lines", "files", "circle")
	for _, r := range rows {
		if r.lines > 1000 {
			fmt.Fprintf(w, "%-32s %6d %6d %6d\n", cmp.Or(r.path, "."), r.lines, r.files, r.circle)
		}
	}
	return nil
}

// largestCircle returns the number of files in the largest circle of a package.
func (p *program) largestCircle(c *checked) int {
	deps := map[string]map[string]bool{}
	for _, f := range c.files {
		from := p.file(f.Pos())
		deps[from] = map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if obj := c.info.Uses[id]; obj != nil && obj.Pkg() == c.types && !isLocal(obj) {
					deps[from][p.file(obj.Pos())] = true
				}
			}
			return true
		})
	}
	// Find the strongly connected components with Tarjan's algorithm.
	index, low, onStack := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	largest := 0
	var visit func(string)
	visit = func(file string) {
		index[file] = len(index) + 1
		low[file] = index[file]
		stack, onStack[file] = append(stack, file), true
		for to := range deps[file] {
			if index[to] == 0 {
				visit(to)
				low[file] = min(low[file], low[to])
			} else if onStack[to] {
				low[file] = min(low[file], index[to])
			}
		}
		if low[file] != index[file] {
			return
		}
		at := slices.Index(stack, file)
		for _, member := range stack[at:] {
			onStack[member] = false
		}
		largest = max(largest, len(stack)-at)
		stack = stack[:at]
	}
	for file := range deps {
		if index[file] == 0 {
			visit(file)
		}
	}
	return largest
}

// isLocal reports whether an object is declared inside a function.
func isLocal(obj types.Object) bool {
	switch o := obj.(type) {
	case *types.Var:
		if o.IsField() {
			return false
		}
	case *types.Func:
		return false // methods have no parent scope
	}
	return obj.Parent() != obj.Pkg().Scope()
}

// printFlows prints a table of the flows.
func (p *program) printFlows(w io.Writer) error {
	fmt.Fprintf(w, "\n%-20s %10s %6s %16s\n", "flow", "functions", "files", "changes of file")
	for _, f := range flows {
		is, err := p.extentOf(f.root)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-20s %10d %6d %16d\n", f.name, is.functions, is.files, is.changes)
	}
	return nil
}

// extentOf measures the flow that begins with a root.
func (p *program) extentOf(root string) (extent, error) {
	order, err := p.flow(root)
	if err != nil {
		return extent{}, err
	}
	files, changes := map[string]bool{}, 0
	for i, fn := range order {
		files[p.file(fn.Pos())] = true
		if i > 0 && p.file(fn.Pos()) != p.file(order[i-1].Pos()) {
			changes++
		}
	}
	return extent{len(order), len(files), changes}, nil
}

// listFlow prints the functions of a flow, in order.
func (p *program) listFlow(w io.Writer, name string) error {
	for _, f := range flows {
		if f.name != name {
			continue
		}
		order, err := p.flow(f.root)
		for _, fn := range order {
			fmt.Fprintf(w, "%s:%d %s\n", filepath.Base(p.file(fn.Pos())), p.line(fn.Pos()), fullName(fn))
		}
		return err
	}
	return fmt.Errorf("there is no flow %q", name)
}

// flow returns the functions that the flow with a root goes through, in order.
func (p *program) flow(root string) ([]*types.Func, error) {
	var begin *types.Func
	for fn := range p.funcs {
		if inService(fn) && fullName(fn) == root {
			if begin != nil {
				return nil, fmt.Errorf("two functions of service have the name %s", root)
			}
			begin = fn
		}
	}
	if begin == nil {
		return nil, fmt.Errorf("no function of service has the name %s", root)
	}
	var order []*types.Func
	var visit func(*types.Func)
	visit = func(fn *types.Func) {
		if p.funcs[fn] == nil || !inService(fn) || slices.Contains(order, fn) {
			return
		}
		order = append(order, fn)
		ast.Inspect(p.funcs[fn].Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if called, ok := p.infos[fn].Uses[id].(*types.Func); ok {
					visit(called.Origin())
				}
			}
			return true
		})
	}
	visit(begin)
	return order, nil
}

func inService(fn *types.Func) bool {
	return fn.Pkg() != nil && (fn.Pkg().Path() == module+"/service" || strings.HasPrefix(fn.Pkg().Path(), module+"/service/"))
}

// fullName returns NAME for a function, and TYPE.NAME for a method.
func fullName(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return fn.Name()
	}
	t := recv.Type()
	if ptr, ok := t.(*types.Pointer); ok {
		t = ptr.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name() + "." + fn.Name()
	}
	return fn.Name()
}

func (p *program) file(pos token.Pos) string { return p.fset.Position(pos).Filename }

func (p *program) line(pos token.Pos) int { return p.fset.Position(pos).Line }

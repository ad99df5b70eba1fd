// Measure prints figures about the structure of the code: the length of functions, the size of
// packages, how many files of a package depend on each other in a circle, and how large the call
// graphs of operations are, such as receiving a message. `make measure` runs it.
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
//   - The call graph of an operation has the function with which the operation begins and all that
//     it calls, directly or not, in package service and the packages below it. It is walked depth
//     first in the order of the text, each function once. A change of file is a step of this walk
//     to a function in another file.
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

const modulePath = "github.com/mailstead/mailstead"

// operations lists the operations whose call graphs are measured. root is the function with which
// the operation begins: NAME or TYPE.NAME in package service or a package below it. A test fails if
// a call graph is larger than its budget, which may be lowered but not raised.
var operations = []struct {
	name, root string
	budget     callGraphSize
}{
	{"receive", "Service.Receive", callGraphSize{133, 22, 73}},
	{"send_email", "Service.SendEmail", callGraphSize{120, 22, 70}},
	{"delivery attempt", "Service.deliverKind", callGraphSize{294, 47, 163}},
	{"domain_setup", "Service.setupKind", callGraphSize{355, 51, 185}},
}

// circleBudget is the maximum number of files in a circle, packageBudget that of lines in a
// package.
const (
	circleBudget  = 12
	packageBudget = 8000
)

// callGraphSize is the size of the call graph of an operation: how many functions it has, in how
// many files, and how often a walk over it moves from one file to another.
type callGraphSize struct{ functions, files, changes int }

func main() {
	list := flag.String("list", "", "print the functions of this operation, in order")
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

// checkedModule is the module, parsed and type-checked.
type checkedModule struct {
	dir      string // top folder of the module
	fset     *token.FileSet
	packages []*checkedPackage
	funcs    map[*types.Func]*ast.FuncDecl
	infos    map[*types.Func]*types.Info
}

// checkedPackage is a package of the module, parsed and type-checked.
type checkedPackage struct {
	path  string
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// run prints all figures, or only the functions of the operation `list` if that is not "".
func run(w io.Writer, list string) error {
	p, err := loadModule()
	if err != nil {
		return err
	}
	if list != "" {
		return p.listCallGraph(w, list)
	}
	p.printFunctions(w)
	fmt.Fprintf(w, "hidden assignments: %d; fields that nothing reads: %d; methods that the facade promotes: %d\n",
		len(p.hiddenAssignments()), len(p.unreadFields()), len(p.promotedMethods()))
	if err := p.printPackages(w); err != nil {
		return err
	}
	return p.printCallGraphs(w)
}

// loadModule parses and type-checks all packages of the module. It reads packages of other modules
// from the compiler's export data.
func loadModule() (*checkedModule, error) {
	out, err := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Module", modulePath+"/...").Output()
	if err != nil {
		return nil, err
	}
	p := &checkedModule{fset: token.NewFileSet(), funcs: map[*types.Func]*ast.FuncDecl{}, infos: map[*types.Func]*types.Info{}}
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
		c := &checkedPackage{path: l.ImportPath, info: &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
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
func (p *checkedModule) printFunctions(w io.Writer) {
	var lengths []int
	for _, fn := range p.funcs {
		lengths = append(lengths, p.line(fn.End())-p.line(fn.Pos())+1)
	}
	slices.Sort(lengths)
	n := len(lengths)
	fmt.Fprintf(w, "functions: %d; lines: median %d, p95 %d, max %d\n", n, lengths[n/2], lengths[n*95/100], lengths[n-1])
}

// packageSize is the size of a package: its files, their lines, those of comments over 100 columns,
// and how many files are in its largest circle.
type packageSize struct {
	path                               string // below the module; "." for its top folder
	files, lines, longComments, circle int
}

// packageSizes returns the sizes of all packages, the largest first.
func (p *checkedModule) packageSizes() ([]packageSize, error) {
	var sizes []packageSize
	for _, c := range p.packages {
		path := strings.TrimPrefix(strings.TrimPrefix(c.path, modulePath), "/")
		r := packageSize{path: cmp.Or(path, "."), files: len(c.files), circle: p.largestCircle(c)}
		for _, f := range c.files {
			text, err := os.ReadFile(p.fset.Position(f.Pos()).Filename)
			if err != nil {
				return nil, err
			}
			r.lines += strings.Count(string(text), "\n")
			for line := range strings.SplitSeq(string(text), "\n") {
				if strings.HasPrefix(strings.TrimSpace(line), "//") && len([]rune(strings.ReplaceAll(line, "\t", "    "))) > 100 && !strings.HasPrefix(line, "//go:") {
					r.longComments++
				}
			}
		}
		sizes = append(sizes, r)
	}
	slices.SortFunc(sizes, func(a, b packageSize) int { return cmp.Compare(b.lines, a.lines) })
	return sizes, nil
}

// printPackages prints the number of lines, the number of comment lines over 100 columns, and a
// table of the packages with more than 1000 lines.
func (p *checkedModule) printPackages(w io.Writer) error {
	sizes, err := p.packageSizes()
	if err != nil {
		return err
	}
	lines, long := 0, 0
	for _, r := range sizes {
		lines += r.lines
		long += r.longComments
	}
	fmt.Fprintf(w, "lines: %d in %d packages; comment lines over 100 columns: %d\n\n%-32s %6s %6s %6s\n", lines, len(sizes), long, "package", "lines", "files", "circle")
	for _, r := range sizes {
		if r.lines > 1000 {
			fmt.Fprintf(w, "%-32s %6d %6d %6d\n", r.path, r.lines, r.files, r.circle)
		}
	}
	return nil
}

// largestCircle returns the number of files in the largest circle of a package.
func (p *checkedModule) largestCircle(c *checkedPackage) int {
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

// printCallGraphs prints a table of the sizes of the call graphs.
func (p *checkedModule) printCallGraphs(w io.Writer) error {
	fmt.Fprintf(w, "\n%-20s %10s %6s %16s\n", "operation", "functions", "files", "changes of file")
	for _, f := range operations {
		is, err := p.callGraphSizeOf(f.root)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-20s %10d %6d %16d\n", f.name, is.functions, is.files, is.changes)
	}
	return nil
}

// callGraphSizeOf measures the call graph of the operation that begins with the function root.
func (p *checkedModule) callGraphSizeOf(root string) (callGraphSize, error) {
	order, err := p.callGraph(root)
	if err != nil {
		return callGraphSize{}, err
	}
	files, changes := map[string]bool{}, 0
	for i, fn := range order {
		files[p.file(fn.Pos())] = true
		if i > 0 && p.file(fn.Pos()) != p.file(order[i-1].Pos()) {
			changes++
		}
	}
	return callGraphSize{len(order), len(files), changes}, nil
}

// listCallGraph prints the functions in the call graph of an operation, in the order of the walk.
func (p *checkedModule) listCallGraph(w io.Writer, name string) error {
	for _, f := range operations {
		if f.name != name {
			continue
		}
		order, err := p.callGraph(f.root)
		for _, fn := range order {
			fmt.Fprintf(w, "%s:%d %s\n", filepath.Base(p.file(fn.Pos())), p.line(fn.Pos()), fullName(fn))
		}
		return err
	}
	return fmt.Errorf("there is no operation %q", name)
}

// callGraph returns the functions in the call graph of the function root, in the order of the walk.
func (p *checkedModule) callGraph(root string) ([]*types.Func, error) {
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
	return fn.Pkg() != nil && (fn.Pkg().Path() == modulePath+"/service" || strings.HasPrefix(fn.Pkg().Path(), modulePath+"/service/"))
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

func (p *checkedModule) file(pos token.Pos) string { return p.fset.Position(pos).Filename }

func (p *checkedModule) line(pos token.Pos) int { return p.fset.Position(pos).Line }

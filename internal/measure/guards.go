package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// hiddenAssignments returns the positions of assignments, in the head of an if or switch, to a
// variable that is declared before and is not an error. Readers overlook such assignments.
func (p *checkedModule) hiddenAssignments() []string {
	var out []string
	for _, c := range p.packages {
		for _, f := range c.files {
			ast.Inspect(f, func(n ast.Node) bool {
				var init ast.Stmt
				switch s := n.(type) {
				case *ast.IfStmt:
					init = s.Init
				case *ast.SwitchStmt:
					init = s.Init
				}
				a, ok := init.(*ast.AssignStmt)
				if ok && a.Tok != token.DEFINE && slices.ContainsFunc(a.Lhs, c.isNotError) {
					out = append(out, p.position(a.Pos()))
				}
				return true
			})
		}
	}
	return out
}

// isNotError reports whether the expression on the left of an assignment is not a variable of type
// error.
func (c *checkedPackage) isNotError(to ast.Expr) bool {
	id, ok := to.(*ast.Ident)
	if !ok {
		return true
	}
	obj := c.info.Uses[id]
	return obj != nil && !types.Identical(obj.Type(), types.Universe.Lookup("error").Type())
}

// unreadFields returns the unexported struct fields that are never read, even if they are set. If
// structs of a type are compared, for example as map keys, all fields of the type count as read.
func (p *checkedModule) unreadFields() []string {
	var out []string
	for _, c := range p.packages {
		read := c.readObjects()
		for _, obj := range c.info.Defs {
			named, ok := obj.(*types.TypeName)
			if !ok || read[obj] {
				continue
			}
			s, ok := named.Type().Underlying().(*types.Struct)
			if !ok {
				continue
			}
			for field := range s.Fields() {
				if field.Pkg() == c.types && !field.Exported() && !field.Embedded() && field.Name() != "_" && !read[field] {
					out = append(out, fmt.Sprintf("%s %s.%s", p.position(field.Pos()), named.Name(), field.Name()))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// readObjects returns the fields that a package reads, and the types whose values it compares.
func (c *checkedPackage) readObjects() map[types.Object]bool {
	read := map[types.Object]bool{}
	compared := func(t types.Type) {
		if named, ok := t.(*types.Named); ok {
			read[named.Origin().Obj()] = true
		}
	}
	for _, instance := range c.info.Instances {
		for t := range instance.TypeArgs.Types() {
			compared(t)
		}
	}
	for _, f := range c.files {
		set := map[*ast.Ident]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.MapType:
				compared(c.info.TypeOf(n.Key))
			case *ast.CallExpr:
				if s, ok := c.info.TypeOf(n.Fun).(*types.Signature); ok {
					for i := range min(len(n.Args), s.Params().Len()) {
						if types.IsInterface(s.Params().At(i).Type()) {
							compared(c.info.TypeOf(n.Args[i])) // it may be printed or used as a key
						}
					}
				}
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					compared(c.info.TypeOf(n.X))
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					set[key] = true
				}
			case *ast.AssignStmt:
				for _, to := range n.Lhs {
					if sel, ok := to.(*ast.SelectorExpr); ok && n.Tok == token.ASSIGN {
						set[sel.Sel] = true
					}
				}
			case *ast.Ident:
				if field, ok := c.info.Uses[n].(*types.Var); ok && !set[n] {
					read[field.Origin()] = true
				}
			}
			return true
		})
	}
	return read
}

// promotedMethods returns the methods that service.Service gets from embedded types. A call of such
// a method does not show in which package it is.
func (p *checkedModule) promotedMethods() []string {
	var out []string
	for _, c := range p.packages {
		if c.path != modulePath+"/service" {
			continue
		}
		facade := c.types.Scope().Lookup("Service").Type()
		for method := range types.NewMethodSet(types.NewPointer(facade)).Methods() {
			if len(method.Index()) > 1 {
				out = append(out, method.Obj().Name())
			}
		}
	}
	return out
}

// position returns FILE:LINE. FILE is relative to the top folder of the module.
func (p *checkedModule) position(pos token.Pos) string {
	at := p.fset.Position(pos)
	_, file, _ := strings.Cut(at.Filename, p.dir+"/")
	return fmt.Sprintf("%s:%d", file, at.Line)
}

// Command generate writes the comments of the API's fields to fields.txt. `go generate
// ./handlers/openapi` runs it. It does not know how the comments are shown.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers"
)

func main() {
	text, err := fieldTexts("../..")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("fields.txt", []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

// fieldTexts returns a line for each field of the API that has a comment in the sources below root:
// the field's name, a tab and the comment.
func fieldTexts(root string) (string, error) {
	var out strings.Builder
	folders := map[string]map[string]string{}
	names := handlers.Description().Fields
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		folder, field, _ := strings.Cut(name, ".")
		if folders[folder] == nil {
			var err error
			folders[folder], err = commentsIn(filepath.Join(root, filepath.FromSlash(folder)))
			if err != nil {
				return "", err
			}
		}
		text, ok := folders[folder][field]
		if !ok {
			return "", fmt.Errorf("the API has the field %s, which is not in the sources", name)
		}
		if text != "" {
			out.WriteString(name + "\t" + text + "\n")
		}
	}
	return out.String(), nil
}

// commentsIn returns the comments of all struct fields in the Go files of a folder, by Type.Field.
// Each comment is on one line.
func commentsIn(folder string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					addComments(comments, spec.Name.Name, s)
				}
			}
			return true
		})
	}
	return comments, nil
}

// addComments adds the comments of a struct's fields: the comment above a field, or else the one
// after it.
func addComments(comments map[string]string, of string, s *ast.StructType) {
	for _, f := range s.Fields.List {
		text := strings.Join(strings.Fields(cmp.Or(f.Doc, f.Comment).Text()), " ")
		for _, name := range f.Names {
			comments[of+"."+name.Name] = text
		}
	}
}
